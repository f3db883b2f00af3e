// Package install installs the hub as its users do, on real API servers, and runs it with exactly the rights, arguments
// and environment that the installed Deployment gives it.
package install

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/e2e/process"
	hublib "github.com/leasecast/leasecast/hub"
)

const (
	hubNamespace = harness.HubNamespace
	hubName      = harness.HubName
	// toolTimeout bounds a call of a program, patience the wait for what happens by itself.
	toolTimeout = 4 * time.Minute
	patience    = time.Minute
)

// timings are patient enough for a busy machine, and let failovers be short.
var timings = harness.PolicyTimings(6*time.Second, time.Second, time.Second, 250*time.Millisecond)

// world is a management cluster without a hub, and its members.
type world struct {
	*harness.World
	t      *testing.T
	dir    string
	client *kubernetes.Clientset
	hubs   int // that were started
}

func newWorld(t *testing.T, members ...string) *world {
	w := &world{t: t, dir: t.TempDir()}
	f := fleet.NewWith(t, fleet.Options{Members: members, Uninstalled: true})
	w.World = harness.NewWorld(t, f, harness.FleetNamespace, harness.HubNamespace, timings)
	w.Must(f.WriteKubeconfigs(w.dir))
	w.client = musttest.Get(kubernetes.NewForConfig(f.Hub().AdminConfig()))(w.T)
	w.kubectl("delete", "namespace", hubNamespace) // the installation is to make it itself
	return w
}

func root(t *testing.T) string {
	return musttest.Get(filepath.Abs(filepath.Join("..", "..")))(t)
}

// run runs a program in the root of the repository, and returns what it printed.
func run(t *testing.T, env []string, stdin []byte, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), toolTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.Stdin = root(t), append(os.Environ(), env...), bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (w *world) kubectlProgram() string {
	return filepath.Join(os.Getenv(fleet.AssetsVariable), "kubectl") + " --kubeconfig=" + filepath.Join(w.dir,
		"hub.kubeconfig")
}

func (w *world) kubectl(args ...string) string {
	program := strings.Fields(w.kubectlProgram())
	return run(w.t, nil, nil, program[0], append(program[1:], args...)...)
}

// make runs a target for the management cluster.
func (w *world) make(target string) string {
	return w.makeIn(root(w.t), target)
}

// makeIn runs a target of a checkout.
func (w *world) makeIn(checkout, target string) string {
	return run(w.t, []string{"MAKEFLAGS=", "MAKELEVEL="}, nil, "make", "-C", checkout, target,
		"KUBECTL="+w.kubectlProgram())
}

// as is a configuration with a token of a service account.
func (w *world) as(namespace, account string) *rest.Config {
	return musttest.Get(w.Servers.Hub().TokenConfig(w.t.Context(), namespace, account))(w.T)
}

// hub is one replica of the installed hub.
type hub struct {
	*process.Process
	w              *world
	metrics, probe string
}

// startHub does what the kubelet does with the installed Deployment.
func (w *world) startHub() *hub {
	programs := musttest.Get(harness.Build(w.t.Context()))(w.T)
	return w.startProgram(programs.Hub)
}

func (w *world) startProgram(program string) *hub {
	deployment, err := w.client.AppsV1().Deployments(hubNamespace).Get(w.t.Context(), hubName, metav1.GetOptions{})
	w.Must(err)
	spec := deployment.Spec.Template.Spec
	w.kubectl("-n", hubNamespace, "get", "serviceaccount", spec.ServiceAccountName)
	w.hubs++
	name := fmt.Sprintf("%s-%d", hubName, w.hubs)
	kubeconfig := filepath.Join(w.dir, name+".kubeconfig")
	w.Must(fleet.WriteKubeconfig(kubeconfig, hubName, w.as(hubNamespace, spec.ServiceAccountName)))
	h := &hub{w: w, metrics: fleet.FreeAddress(w.t), probe: fleet.FreeAddress(w.t)}
	args := []string{"POD_NAMESPACE=" + hubNamespace} // fieldRef metadata.namespace
	for _, e := range spec.Containers[0].Env {
		if e.ValueFrom == nil {
			args = append(args, e.Name+"="+e.Value)
		}
	}
	args = append(append(args, program), spec.Containers[0].Args...)
	args = append(args, "--kubeconfig="+kubeconfig, "--allow-local-addresses",
		"--metrics-address="+h.metrics, "--probe-address="+h.probe)
	h.Process = musttest.Get(process.Start(name, filepath.Join(w.dir, name+".log"), "env", args...))(w.T)
	w.t.Cleanup(func() {
		_ = h.Kill() // it may have lost its rights by then, and ended for that
		if w.t.Failed() {
			w.t.Logf("the hub's last words:\n%s", h.Tail())
		}
	})
	return h
}

// get asks the hub for a URL.
func get(ctx context.Context, url, token string) (status int, body string, err error) {
	return harness.Ask(ctx, http.MethodGet, url, token, "")
}

// ready returns what /readyz says.
func (h *hub) ready(ctx context.Context) error {
	status, body, err := get(ctx, "http://"+h.probe+"/readyz", "")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%d: %s", status, body)
	}
	return err
}

// register makes Clusters of members, the first of which is the best.
func (w *world) register(members ...string) {
	for i, m := range members {
		musttest.Get(w.Servers.RegisterMember(w.t.Context(), w.Servers.Member(m), w.Fleet, fmt.Sprint(100-i)))(w.T)
	}
}

// rolled is the number of namespaces that are led during the update.
const rolled = 20

// upgradeFrom is the environment variable that names a checkout of the version to upgrade from (make upgrade). Without
// it, this version takes the place of itself.
const upgradeFrom = "UPGRADE_FROM"

// What the Deployment's strategy does: a new replica is ready before an old one must end. It finds the records,
// the seal and the guards of the old ones.
func TestARollingUpgradeEndsNoTerm(t *testing.T) {
	w := newWorld(t, "east")
	old := cmp.Or(os.Getenv(upgradeFrom), root(t))
	w.Timings = harness.PolicyTimings(15*time.Second, 5*time.Second, 3*time.Second, time.Second)
	w.makeIn(old, "deploy")
	w.makeIn(old, "build")
	program := filepath.Join(old, "bin", hubName)
	replicas := []*hub{w.startProgram(program), w.startProgram(program)}
	w.register("east")
	var names []string
	for i := range rolled {
		names = append(names, fmt.Sprintf("shop-%d", i))
		w.Namespace(names[i], "east")
	}
	w.Policy("shops", names...)
	epochs := map[string]int64{}
	for _, name := range names {
		epochs[name] = w.Leads("east", name, patience, "east")
	}
	east, err := client.NewWithWatch(w.Servers.Member("east").AdminConfig(), client.Options{Scheme: hublib.Scheme()})
	w.Must(err)
	copies := musttest.Get(harness.Observe(t.Context(), east, &coordinationv1.LeaseList{}, &coordinationv1.Lease{},
		client.HasLabels{v1alpha1.ManagedLabel}))(w.T)
	defer copies.Stop()

	w.make("deploy")
	for range 2 {
		next := w.startHub()
		musttest.Eventually(t, patience, "the new replica is ready", next.ready)
		w.Must(replicas[0].Stop())
		replicas = append(slices.Delete(replicas, 0, 1), next)
	}
	upgraded := harness.Now().Wall
	musttest.Eventually(t, patience, "a new replica has renewed everything", func(context.Context) error {
		seen := harness.LedIn(copies.Seen())
		for _, name := range names {
			if led := seen[name]; len(led) == 0 || !led[len(led)-1].RenewTime.After(upgraded) {
				return errors.New(name)
			}
		}
		return nil
	})
	seen := harness.LedIn(copies.Seen())
	for _, name := range names {
		led := seen[name]
		if len(led) == 0 || led[0].Epoch != epochs[name] {
			t.Errorf("%s: %d sightings, epoch %d before", name, len(led), epochs[name])
			continue
		}
		if left, err := harness.Unbroken(led, harness.Now().Wall); err != nil || led[len(led)-1].Epoch != epochs[name] {
			t.Errorf("%s: epoch %d, was %d; %v", name, led[len(led)-1].Epoch, epochs[name], err)
		} else if left < 5*time.Second {
			t.Errorf("%s: %v before its end the term was renewed", name, left)
		}
	}
}
