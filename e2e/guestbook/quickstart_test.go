package guestbook

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

// mostLines is how many lines of their own people write at most before their cluster acts.
const mostLines = 30

// The README's program, in a module of its own and with the rights that the member library's README grants, acts only
// where its cluster leads.
func TestTheQuickStartActsWhereItsClusterLeads(t *testing.T) {
	root := harness.Get(filepath.Abs("../.."))(t)
	code := harness.Get(snippet(filepath.Join(root, "README.md")))(t)
	if n := ownLines(code); n > mostLines {
		t.Errorf("the quick start has %d lines, want at most %d", n, mostLines)
	} else {
		t.Logf("the quick start has %d lines", n)
	}
	if strings.Count(code, `":8081"`) != 1 {
		t.Fatal(`the quick start has no probes at ":8081"`)
	}
	code = strings.Replace(code, `":8081"`, `"127.0.0.1:0"`, 1) // other programs may have that one
	shops := buildAlone(t, root, code)

	ns, other := namespace(t), namespace(t)
	for _, in := range []string{ns, other} {
		book := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: "book"}}
		harness.Must(t, admin.Create(t.Context(), book))
	}
	start := time.Now()
	asReader(t, root)
	write(t, ns, them, 1, 10*time.Minute)
	write(t, other, them, 1, 10*time.Minute)
	p := harness.Get(process.Start("quick start", filepath.Join(t.TempDir(), "log"), shops))(t)
	t.Cleanup(func() { harness.Must(t, p.Kill()) })
	says := func(texts ...string) func(context.Context) error {
		return func(context.Context) error {
			if err := p.Check(); err != nil {
				return err
			}
			if !says(t, p.Log(), texts...) {
				return fmt.Errorf("it has not said %q:\n%s", texts, p.Tail())
			}
			return nil
		}
	}
	await(t, "it follows", says(`"This cluster does not lead"`, `"namespace":"`+ns+`"`, `"leader":"west.fleet"`))
	if says(`east.fleet acts`)(t.Context()) == nil {
		t.Error("it acts in a cluster that does not lead")
	}
	write(t, ns, us, 2, 10*time.Minute)
	await(t, "east acts", says(`"msg":"east.fleet acts"`, `"controller":"configmap"`,
		`"namespace":"`+ns+`"`, `"name":"book"`, `"epoch":2`))
	t.Logf("from its rights to its first act it took %v", time.Since(start).Round(time.Millisecond))
	await(t, "the resync is logged", says(`"controller":"configmap"`, `"type":"ConfigMap"`,
		`Resynced after a promotion`, `"namespace":"`+ns+`"`))
	if says(`"msg":"east.fleet acts"`, `"namespace":"`+other+`"`)(t.Context()) == nil {
		t.Error("it acts in a namespace that another cluster leads")
	}
	if log, err := os.ReadFile(p.Log()); err != nil || strings.Contains(string(log), "orbidden") {
		t.Errorf("it lacks a right (%v):\n%s", err, p.Tail())
	}
	await(t, "it is ready", func(ctx context.Context) error { return ready(ctx, p.Log()) })
	harness.Must(t, p.Stop())
}

var probesLine = regexp.MustCompile(`"msg":"starting server","name":"health probe","addr":"([^"]*)"`)

// ready asks the probes of a program at the address that its log has.
func ready(ctx context.Context, file string) error {
	log, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	found := probesLine.FindSubmatch(log)
	if found == nil {
		return errors.New("the log has no address of the probes")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+string(found[1])+"/readyz/leases", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %w", resp.Status, err)
	}
	return nil
}

// ownLines counts the lines that an author has to think of: all but empty ones, comments, package and imports.
func ownLines(code string) (n int) {
	code = regexp.MustCompile(`(?ms)^import \(.*?^\)$|^package .*?$`).ReplaceAllString(code, "")
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	return n
}

// buildAlone builds a program as its author does.
func buildAlone(t *testing.T, root, code string) (program string) {
	m := harness.Get(newModule(t.Context(), t.TempDir(), root, "member", map[string]string{
		"main.go": code,
		// Its metrics are at an address that other programs have too.
		"metrics.go": `package main

import "sigs.k8s.io/controller-runtime/pkg/metrics/server"

func init() { server.DefaultBindAddress = "0" }
`,
	}))(t)
	return harness.Get(m.build(t.Context()))(t)
}

// asReader gives the programs of the test the service account of the member library's README, with the rights that its
// commands grant.
func asReader(t *testing.T, root string) {
	t.Helper()
	dir := t.TempDir()
	operator := kubeconfig(t, dir, "admin", "system:masters")
	for _, command := range commands(t, filepath.Join(root, "member/README.md")) {
		args := strings.Fields(command)
		if args[0] != "kubectl" {
			t.Fatalf("%s is no command of kubectl", command)
		}
		cmd := exec.CommandContext(t.Context(), filepath.Join(os.Getenv(fleet.AssetsVariable), "kubectl"),
			append([]string{"--kubeconfig", operator}, args[1:]...)...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	const user = "system:serviceaccount:shop:shops"
	t.Setenv("KUBECONFIG", kubeconfig(t, dir, user, accountGroups...))
	cfg := harness.Get(cluster.UserConfig(user, accountGroups...))(t)
	awaitRights(t, cfg, "shop", "shops")
}

var accountGroups = []string{"system:serviceaccounts", "system:serviceaccounts:shop"}

// awaitRights returns when the API server grants a service account every right of the ClusterRoles bound to it. The
// authorizer observes a stored binding with a delay.
func awaitRights(t *testing.T, as *rest.Config, namespace, account string) {
	t.Helper()
	var bindings rbacv1.ClusterRoleBindingList
	harness.Must(t, admin.List(t.Context(), &bindings))
	var rules []rbacv1.PolicyRule
	for _, b := range bindings.Items {
		if slices.Contains(b.Subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}) {
			role := &rbacv1.ClusterRole{}
			harness.Must(t, admin.Get(t.Context(), client.ObjectKey{Name: b.RoleRef.Name}, role))
			rules = append(rules, role.Rules...)
		}
	}
	if len(rules) < 2 {
		t.Fatalf("%s/%s has %d rules, want those of what it reads and of Leases", namespace, account, len(rules))
	}
	reader := harness.Get(client.New(as, client.Options{}))(t)
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			what := authorizationv1.ResourceAttributes{Group: rule.APIGroups[0], Resource: rule.Resources[0], Verb: verb}
			await(t, "the account may "+verb+" "+what.Resource, func(ctx context.Context) error {
				review := &authorizationv1.SelfSubjectAccessReview{
					Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what},
				}
				must.Do(reader.Create(ctx, review))
				if !review.Status.Allowed {
					return errors.New(review.Status.Reason)
				}
				return nil
			})
		}
	}
}

// commands are the lines of the first snippet without a language in a file of Markdown.
func commands(t *testing.T, file string) (all []string) {
	t.Helper()
	text := harness.Get(os.ReadFile(file))(t)
	found := regexp.MustCompile("(?ms)^```\n(.*?)^```$").FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s has no commands", file)
	}
	for line := range strings.Lines(string(found[1])) {
		line, _, _ = strings.Cut(line, "#")
		all = append(all, strings.TrimSpace(line))
	}
	return all
}

// kubeconfig writes a file for a user and returns its path.
func kubeconfig(t *testing.T, dir, user string, groups ...string) string {
	cfg := harness.Get(cluster.UserConfig(user, groups...))(t)
	file := filepath.Join(dir, strings.ReplaceAll(user, ":", "-")+".kubeconfig")
	harness.Must(t, fleet.WriteKubeconfig(file, user, cfg))
	return file
}

// says reports whether one line of a log contains all the texts.
func says(t *testing.T, file string, texts ...string) bool {
	log := harness.Get(os.Open(file))(t)
	defer func() { harness.Must(t, errors.Join(log.Close())) }()
	for lines := bufio.NewScanner(log); lines.Scan(); {
		missing := false
		for _, text := range texts {
			missing = missing || !strings.Contains(lines.Text(), text)
		}
		if !missing {
			return true
		}
	}
	return false
}
