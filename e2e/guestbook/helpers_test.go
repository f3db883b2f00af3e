// Package guestbook holds the tests of the member library on a real API server, with
// the sample controller as its user. There is no hub here: the tests write the Leases
// that a hub would, so they know to the instant what was promised.
package guestbook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/e2e/fleet"
	webappv1 "github.com/leasecast/leasecast/e2e/guestbook/api"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	us       = "east.fleet"
	them     = "west.fleet"
	patience = 30 * time.Second // for what takes milliseconds on an idle machine
)

var (
	// cluster is the API server of all tests; each has a namespace of its own. One server
	// is all that is needed, and that of a fleet without members does.
	cluster *fleet.Server
	admin   client.Client
	program string // the built guestbook
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(zap.New())
	os.Exit(fleet.Main(m, nil, func(ctx context.Context, f *fleet.Fleet, _ string) error {
		var err error
		cluster = f.Hub()
		program, err = harness.Program(ctx, "guestbook", "e2e/guestbook/cmd")
		return errors.Join(err, install(ctx))
	}))
}

// install makes the client, and the CRD with it.
func install(ctx context.Context) error {
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), apiextensionsv1.AddToScheme(s), webappv1.AddToScheme(s)); err != nil {
		return err
	}
	cfg := cluster.AdminConfig()
	cfg.Timeout = patience
	var err error
	if admin, err = client.New(cfg, client.Options{Scheme: s}); err != nil {
		return err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(webappv1.CRD, crd); err != nil {
		return err
	}
	if err := admin.Create(ctx, crd); err != nil {
		return err
	}
	return must.Await(ctx, patience, "guestbooks are served", func(ctx context.Context) error {
		return admin.List(ctx, &webappv1.GuestbookList{})
	})
}

// books makes n guestbooks.
func books(t *testing.T, ns string, n int) (names []string) {
	for i := range n {
		g := &webappv1.Guestbook{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("book-%d", i)},
			Spec:       webappv1.GuestbookSpec{Book: "once upon a time"},
		}
		musttest.Do(t, admin.Create(t.Context(), g))
		names = append(names, g.Name)
	}
	return names
}

// write writes the Lease as the hub does, and returns its deadline on the boot clock.
func write(t *testing.T, ns, holder string, epoch int64, d time.Duration) (deadline time.Duration) {
	return harness.PutLease(t, admin, ns, us, holder, epoch, d).Boot + d
}

// await fails the test if the condition does not come about.
func await(t *testing.T, what string, condition func(context.Context) error) {
	musttest.Eventually(t, patience, what, condition)
}

// user returns the configuration of a user who may read leases, and work on
// guestbooks and elect, in these namespaces only.
func user(t *testing.T, name string, namespaces ...string) *rest.Config {
	group := webappv1.GroupVersion.Group
	electing := may(coordinationv1.GroupName, "leases", "update")
	electing.ResourceNames = []string{"guestbook"}
	for _, ns := range namespaces {
		allow(t, ns, "guestbook", name, electing,
			may(coordinationv1.GroupName, "leases", "get", "list", "watch", "create"),
			may(group, "guestbooks", "get", "list", "watch"), may(group, "guestbooks/status", "patch"),
			may("", "events", "create", "patch"), may("events.k8s.io", "events", "create", "patch"))
	}
	return musttest.Get(cluster.UserConfig(name))(t)
}

func may(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// allow gives a user a role of this name in a namespace.
func allow(t *testing.T, ns, role, user string, rules ...rbacv1.PolicyRule) {
	meta := metav1.ObjectMeta{Namespace: ns, Name: role + "-" + user}
	musttest.Do(t, admin.Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}))
	musttest.Do(t, admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}))
}

// guestbook is a running guestbook.
type guestbook struct {
	*process.Process
	*harness.ActLog
	t *testing.T
}

// start runs the guestbook as a user who may work in ns only, until the test is over.
// The act log gives its name as that of the cluster.
func start(t *testing.T, cfg *rest.Config, name, ns string, args ...string) *guestbook {
	dir := t.TempDir()
	musttest.Do(t, fleet.WriteKubeconfig(filepath.Join(dir, "kubeconfig"), name, cfg))
	run := musttest.Get(process.Start(name, filepath.Join(dir, "log"), program, append([]string{
		"-kubeconfig=" + filepath.Join(dir, "kubeconfig"),
		"-cluster=" + name,
		"-namespaces=" + ns,
		"-acts=" + filepath.Join(dir, "acts"),
		"-zap-log-level=debug",
	}, args...)...))(t)
	p := &guestbook{run, harness.NewActLog(filepath.Join(dir, "acts")), t}
	t.Cleanup(func() {
		musttest.Do(t, p.Kill())
		if t.Failed() {
			log, _ := os.ReadFile(p.Log())
			t.Logf("log of %s:\n%s", p.Name(), log[max(0, len(log)-8000):])
		}
	})
	return p
}

// terminate asks the process to end, which it must do in good order.
func (p *guestbook) terminate() {
	p.t.Helper()
	musttest.Do(p.t, p.Stop())
	if !p.InOrder() {
		p.t.Errorf("%s did not end in good order: %s", p.Name(), p.How())
	}
}

// acts returns what the process has done so far.
func (p *guestbook) acts() []harness.Act {
	p.t.Helper()
	return musttest.Get(p.Acts())(p.t)
}

// acted is a condition: all these guestbooks have been printed in this epoch.
func (p *guestbook) acted(names []string, epoch int64) func(context.Context) error {
	return func(context.Context) error {
		all, err := p.Acts()
		if err != nil {
			return err
		}
		printed := map[string]bool{}
		for _, a := range all {
			if a.What == "print" && a.Epoch == epoch && a.Result == "ok" {
				printed[a.Object] = true
			}
		}
		for _, name := range names {
			if !printed[name] {
				return fmt.Errorf("%s has printed %d of %d guestbooks in epoch %d; %s is missing",
					p.Name(), len(printed), len(names), epoch, name)
			}
		}
		return nil
	}
}

// logged is a condition: the log of the process contains the text.
func (p *guestbook) logged(text string) func(context.Context) error {
	return func(context.Context) error {
		log, err := os.ReadFile(p.Log())
		if err == nil && !bytes.Contains(log, []byte(text)) {
			err = fmt.Errorf("%s has not logged %q", p.Name(), text)
		}
		return err
	}
}
