package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
)

// pluginBinary builds kubectl-leasecast, once.
var pluginBinary = sync.OnceValues(func() (string, error) {
	return harness.Program(context.Background(), "kubectl-leasecast", "cmd/kubectl-leasecast")
})

// plugin runs kubectl-leasecast as an operator of the fleet, and returns what it prints and its exit code.
func (w *world) plugin(input string, args ...string) (out string, code int) {
	w.T.Helper()
	binary, err := pluginBinary()
	w.Must(err)
	dir := w.T.TempDir()
	kubeconfig := func(name string, to *fleet.Server) string {
		path := filepath.Join(dir, name)
		w.Must(fleet.WriteKubeconfig(path, name, to.AdminConfig()))
		return path
	}
	args = append(args, "--kubeconfig", kubeconfig("hub", w.Servers.Hub()), "-n", w.Fleet, "--hub-namespace", w.System)
	if args[0] == "verify" || args[0] == "fence" {
		for _, m := range all {
			args = append(args, "--member-kubeconfigs", m+"="+kubeconfig(m, w.Servers.Member(m)))
		}
	}
	ctx, cancel := context.WithTimeout(w.T.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Stdin = &text, &text, strings.NewReader(input)
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.Must(err)
	}
	return text.String(), cmd.ProcessState.ExitCode()
}

// runs runs the plugin, and fails unless it ends with a code and has said all this.
func (w *world) runs(code int, words []string, args ...string) {
	w.T.Helper()
	out, is := w.plugin("", args...)
	if err := contains(out, words...); is != code || err != nil {
		w.T.Errorf("leasecast %s ends with code %d, %v:\n%s", strings.Join(args, " "), is, err, out)
	}
}

// shows runs the plugin until it ends with a code and has said all this: a status comes after what it explains.
func (w *world) shows(code int, words []string, args ...string) {
	w.T.Helper()
	w.Eventually("leasecast "+strings.Join(args, " "), w.lost()+soon, func() error {
		out, is := w.plugin("", args...)
		if err := contains(out, words...); is != code || err != nil {
			return fmt.Errorf("code %d, %w: %s", is, err, out)
		}
		return nil
	})
}

func TestThePluginShowsAFleetAndActsThere(t *testing.T) {
	t.Parallel()
	w, a, _ := eastLeads(t, brief)
	w.awaitPolicy("p", v1alpha1.ConditionReady, metav1.ConditionTrue, "Ready")
	w.shows(0, []string{"writes since", "east", "Eligible", "No namespace and no policy needs attention"}, "status")
	w.shows(0, []string{`"leads": 1`, `"alive": true`}, "status", "-o", "json")
	w.shows(0, []string{"east leads since", "would follow", "takes nothing by itself"}, "explain", a)
	w.shows(1, []string{"no record of namespace"}, "explain", "nothing")
	w.shows(0, []string{"1 of 1 namespaces would move", "west", "Unreachable"}, "what-if", "--without", "east")
	w.shows(0, []string{"0 of 1 namespaces would move"}, "what-if", "--without", "west")
	w.shows(1, []string{`no Cluster "nowhere"`}, "what-if", "--without", "nowhere")
	w.shows(0, []string{"3 Leases were read: 0 disagree"}, "verify")
	page := filepath.Join(w.T.TempDir(), "page.html")
	w.runs(0, []string{page, "one could act in each namespace all the time"}, "verify", "--watch=3s", "--report", page)
	if text, err := os.ReadFile(page); err != nil || contains(string(text), "Leasecast, fleet "+w.Fleet,
		"east could act") != nil {
		t.Errorf("the page: %v: %s", err, text)
	}

	t.Log("an act asks, and does nothing without a yes")
	if out, code := w.plugin("no\n", "drain", "east", "--until", "1h"); code != 1 || contains(out,
		"nothing was changed") != nil {
		t.Errorf("%d: %s", code, out)
	}
	w.runs(1, []string{"write a time within a year"}, "drain", "east", "--until", "yesterday")
	w.runs(0, []string{"east is drained until", "Drained", "0 namespaces are left to move"},
		"drain", "east", "--until", "1h", "--reason", "a new kernel", "--yes", "--wait")
	w.shows(0, []string{"a new kernel", "west"}, "history", a)
	w.shows(0, []string{"Drained", "a new kernel"}, "status")
	w.runs(0, nil, "undrain", "east", "--yes")
	w.awaitEligible("east", a)
	w.runs(0, []string{"is moved to south"}, "move", a, "south", "--yes", "--wait")
	w.Leads("south", a, soon, all...)
	w.runs(0, []string{"no failover"}, "freeze", "p", "--until", "1h", "--reason", "an incident", "--yes")
	w.shows(2, []string{"Frozen", "an incident"}, "status")
	w.runs(0, nil, "unfreeze", "p", "--yes")
	w.runs(0, nil, "rebalance", "p", "--yes")
	w.Leads("east", a, w.ordered(), all...)

	t.Log("a cluster is declared to be off by typing its name")
	if out, code := w.plugin("yes\n", "fence-cluster", "east", "--yes"); code != 1 || contains(out,
		"TWO CLUSTERS LEAD") != nil {
		t.Errorf("%d: %s", code, out)
	}

	t.Log("the hub is gone")
	w.StopHub()
	w.shows(2, []string{"the hub", "TermOver"}, "status")
	w.shows(2, []string{"its Lease has run out"}, "verify")
}
