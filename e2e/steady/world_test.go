// Package steady tests that the hub writes nothing but renewals: for a steady minute, and beside the real
// Cluster API manager. The hub of these tests runs under the RBAC of config/, as an installed one does.
package steady

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

const (
	// toolTimeout bounds a call of a program, requestTimeout one of an API server.
	toolTimeout    = time.Minute
	requestTimeout = 10 * time.Second
)

// The timings of the policies here.
const (
	renewInterval    = time.Second
	unreachableAfter = 10 * time.Second
)

func TestMain(m *testing.M) {
	harness.Logs(false)
	os.Exit(m.Run())
}

// world is a fleet of its own, whose hub knows the RBAC of config/ and no Cluster yet.
type world struct{ *harness.World }

func newWorld(t *testing.T, duration time.Duration, members ...string) *world {
	servers := fleet.New(t, members...)
	w := &world{harness.NewWorld(t, servers, harness.FleetNamespace, harness.HubNamespace, v1alpha1.Timings{
		// It renews as often as the fast profile, but is patient: these tests are about silence, not speed, and a busy
		// machine must not break it.
		LeaseDurationMilliseconds:  int32(duration / time.Millisecond),
		RenewIntervalMilliseconds:  int32(renewInterval / time.Millisecond),
		RequestTimeoutMilliseconds: 3000,
		MaxClockSkewMilliseconds:   250,
	})}
	w.apply("config/rbac", "config/fleet")
	return w
}

// apply applies kustomizations of the repository to the hub, as its users do.
func (w *world) apply(folders ...string) {
	dir := w.T.TempDir()
	w.Must(w.Servers.WriteKubeconfigs(dir))
	for _, folder := range folders {
		run(w.T, filepath.Join(os.Getenv(fleet.AssetsVariable), "kubectl"), "apply",
			"--kubeconfig="+filepath.Join(dir, "hub.kubeconfig"), "--cache-dir="+filepath.Join(dir, "cache"),
			"-k", filepath.Join("..", "..", folder))
	}
}

// run runs a program and returns what it printed.
func run(t harness.TB, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), toolTimeout)
	defer cancel()
	var problems bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, problems.Bytes())
	}
	return string(bytes.TrimSpace(out))
}

// startHub runs a hub in this process until the test ends, under the service account of config/rbac.
func (w *world) startHub() {
	config := harness.Get(w.Servers.Hub().ServiceAccountConfig(w.T.Context(), w.System, harness.HubName, nil))(w.T)
	config.UserAgent = harness.HubName
	w.StartHub(config)
}

// policy creates a policy for namespaces.
func (w *world) policy(namespaces ...string) {
	p := w.NewPolicy("steady", namespaces...)
	p.Spec.Health.UnreachableAfterMilliseconds = int32(unreachableAfter / time.Millisecond)
	w.Must(w.Hub.Create(w.T.Context(), p))
}

// leads waits until the record and the Leases in these members name the leader, and every one of them may lead, and
// returns the epoch.
func (w *world) leads(leader, namespace string, within time.Duration, members ...string) (epoch int64) {
	w.Eventually(leader+" leads "+namespace, within, func() (err error) {
		for _, m := range members {
			must.Do(w.Eligible(namespace, m))
		}
		epoch, err = w.Leading(leader, namespace, members...)
		return err
	})
	return epoch
}
