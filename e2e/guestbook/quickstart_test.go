package guestbook

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/e2e/process"
)

// mostLines is how many lines of their own people write at most before their cluster acts.
const mostLines = 30

// The README's program, in a module of its own and with the rights that the member library's README grants, acts only
// where its cluster leads.
func TestTheQuickStartActsWhereItsClusterLeads(t *testing.T) {
	root := musttest.Get(filepath.Abs("../.."))(t)
	code := musttest.Get(snippet(filepath.Join(root, "README.md")))(t)
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

	ns, other := harness.NewNamespace(t, admin), harness.NewNamespace(t, admin)
	for _, in := range []string{ns, other} {
		book := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: "book"}}
		musttest.Do(t, admin.Create(t.Context(), book))
	}
	start := time.Now()
	asReader(t, root)
	write(t, ns, them, 1, 10*time.Minute)
	write(t, other, them, 1, 10*time.Minute)
	p := musttest.Get(process.Start("quick start", filepath.Join(t.TempDir(), "log"), shops))(t)
	t.Cleanup(func() { musttest.Do(t, p.Kill()) })
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
	musttest.Do(t, p.Stop())
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
	m := musttest.Get(newModule(t.Context(), t.TempDir(), root, "member", map[string]string{
		"main.go": code,
		// Its metrics are at an address that other programs have too.
		"metrics.go": `package main

import "sigs.k8s.io/controller-runtime/pkg/metrics/server"

func init() { server.DefaultBindAddress = "0" }
`,
	}))(t)
	return musttest.Get(m.build(t.Context()))(t)
}

// asReader gives the programs of the test the service account of the member library's README, with the rights that its
// commands grant.
func asReader(t *testing.T, root string) {
	t.Helper()
	for _, command := range commands(t, filepath.Join(root, "member/README.md")) {
		args := strings.Fields(command)
		if args[0] != "kubectl" {
			t.Fatalf("%s is no command of kubectl", command)
		}
		musttest.Do(t, harness.Kubectl(t.Context(), cluster, "", args[1:]...))
	}
	const user = "system:serviceaccount:shop:shops"
	cfg := musttest.Get(cluster.UserConfig(user, accountGroups...))(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	musttest.Do(t, fleet.WriteKubeconfig(file, "shops", cfg))
	t.Setenv("KUBECONFIG", file)
	reader := musttest.Get(client.New(cfg, client.Options{}))(t)
	for _, list := range []client.ObjectList{&corev1.ConfigMapList{}, &coordinationv1.LeaseList{}} {
		await(t, fmt.Sprintf("it may read %T", list), func(ctx context.Context) error { return reader.List(ctx, list) })
	}
}

var accountGroups = []string{"system:serviceaccounts", "system:serviceaccounts:shop"}

// commands are the lines of the first snippet without a language in a file of Markdown.
func commands(t *testing.T, file string) (all []string) {
	t.Helper()
	text := musttest.Get(os.ReadFile(file))(t)
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

// says reports whether one line of a log contains all the texts.
func says(t *testing.T, file string, texts ...string) bool {
	log := musttest.Get(os.Open(file))(t)
	defer func() { musttest.Do(t, errors.Join(log.Close())) }()
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
