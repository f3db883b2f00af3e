package harness

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/leasecast/leasecast/e2e/fleet"
	webappv1 "github.com/leasecast/leasecast/e2e/guestbook/api"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	// guestbookName is the name of the service account and its role, and of the guestbook in each namespace.
	guestbookName = "guestbook"
	// guestbookHome is where the service account lives.
	guestbookHome = "guestbook-system"
	// servedPatience bounds the wait for a CRD to be served.
	servedPatience = 30 * time.Second
)

// Guestbook is a guestbook process in one member.
type Guestbook struct {
	*process.Process
	// Acts is what it and those in its place before it did.
	Acts *ActLog

	run func() (*process.Process, error)
}

// Kill ends the process at once, in the middle of its acts: they end with it.
func (g *Guestbook) Kill() error {
	return errors.Join(g.Process.Kill(), g.Acts.Ended(Now().Boot))
}

// registerRules are what registering takes, in the namespace of the process itself.
var registerRules = []rbacv1.PolicyRule{
	{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
		Verbs: []string{"get", "create", "update", "delete"}},
}

// guestbookRules are all that the process may do else, and only in its namespaces.
var guestbookRules = []rbacv1.PolicyRule{
	{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{webappv1.GroupVersion.Group}, Resources: []string{"guestbooks"},
		Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{webappv1.GroupVersion.Group}, Resources: []string{"guestbooks/status"}, Verbs: []string{"patch"}},
}

// installGuestbook makes the CRD, a guestbook in each namespace, and a service account with a Role in
// each; then it writes a kubeconfig file for that account, straight at the API server: a controller lives in
// the member.
func installGuestbook(ctx context.Context, c client.Client, s *fleet.Server, namespaces []string,
	dir string) (kubeconfig string, err error) {
	crd, err := parse(webappv1.CRD)
	if err != nil {
		return "", fmt.Errorf("CRD of the guestbook: %w", err)
	}
	if err := apply(ctx, c, crd); err != nil {
		return "", err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: guestbookHome, Name: guestbookName}}
	home := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: guestbookHome}}
	for _, object := range []client.Object{home, account} {
		if err := c.Create(ctx, object); client.IgnoreAlreadyExists(err) != nil {
			return "", fmt.Errorf("make %s: %w", object.GetName(), err)
		}
	}
	if err := grant(ctx, c, account, home.Name, registerRules); err != nil {
		return "", fmt.Errorf("namespace %s of %s: %w", home.Name, s.Name(), err)
	}
	for _, namespace := range namespaces {
		if err := admit(ctx, c, account, namespace); err != nil {
			return "", fmt.Errorf("namespace %s of %s: %w", namespace, s.Name(), err)
		}
	}
	config, err := s.TokenConfig(ctx, account.Namespace, account.Name)
	if err != nil {
		return "", err
	}
	kubeconfig = filepath.Join(dir, "guestbook-"+s.Name()+".kubeconfig")
	return kubeconfig, fleet.WriteKubeconfig(kubeconfig, s.Name(), config)
}

// admit lets the account work in a namespace, and gives it a guestbook to work on.
func admit(ctx context.Context, c client.Client, account *corev1.ServiceAccount, namespace string) error {
	if err := grant(ctx, c, account, namespace, guestbookRules); err != nil {
		return err
	}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: guestbookName}
	return Await(ctx, servedPatience, "guestbooks are served", func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(c.Create(ctx, &webappv1.Guestbook{
			ObjectMeta: meta,
			Spec:       webappv1.GuestbookSpec{Book: "What happened in " + namespace},
		}))
	})
}

// grant lets the account do something in a namespace.
func grant(ctx context.Context, c client.Client, account *corev1.ServiceAccount, namespace string,
	rules []rbacv1.PolicyRule) error {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: guestbookName}
	role, binding := &rbacv1.Role{ObjectMeta: meta}, &rbacv1.RoleBinding{ObjectMeta: meta}
	if _, err := controllerutil.CreateOrUpdate(ctx, c, role, func() error {
		role.Rules = rules
		return nil
	}); err != nil {
		return fmt.Errorf("role: %w", err)
	}
	if _, err := controllerutil.CreateOrUpdate(ctx, c, binding, func() error {
		binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}
		binding.Subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace,
			Name: account.Name}}
		return nil
	}); err != nil {
		return fmt.Errorf("role binding: %w", err)
	}
	return nil
}

// startGuestbook starts the process. Its acts go to the file <member>.acts.
func startGuestbook(p Programs, member, kubeconfig string, namespaces []string, o Options) (*Guestbook, error) {
	file := filepath.Join(o.Dir, member+".acts")
	register := ""
	if o.Register {
		register = guestbookHome
	}
	g := &Guestbook{Acts: NewActLog(file), run: func() (*process.Process, error) {
		return process.Start("guestbook in "+member, filepath.Join(o.Dir, "guestbook-"+member+".log"), p.Guestbook,
			"-kubeconfig="+kubeconfig,
			"-cluster="+member,
			"-namespaces="+strings.Join(namespaces, ","),
			"-acts="+file,
			"-act-every="+o.ActEvery.String(),
			"-max-clock-skew="+o.Timings.Skew.String(),
			"-register="+register,
		)
	}}
	return g.start()
}

// start starts the program once more, with the same log of acts.
func (g *Guestbook) start() (*Guestbook, error) {
	p, err := g.run()
	if err != nil {
		return nil, err
	}
	return &Guestbook{Process: p, Acts: g.Acts, run: g.run}, nil
}
