// Package steady tests that the hub writes nothing but renewals: for a steady minute, and beside the real
// Cluster API manager. The hub of these tests runs under the RBAC of config/, as an installed one does.
package steady

import (
	"os"
	"testing"
	"time"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

// requestTimeout bounds a call of an API server.
const requestTimeout = 10 * time.Second

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

func newWorld(t *testing.T, members ...string) *world {
	servers := fleet.NewWith(t, fleet.Options{Members: members})
	w := &world{harness.NewWorld(t, servers, harness.FleetNamespace, harness.HubNamespace,
		// It renews as often as the fast profile, but is patient: these tests are about silence, not speed, and a busy
		// machine must not break it.
		harness.PolicyTimings(leaseDuration, renewInterval, 3*time.Second, 250*time.Millisecond))}
	w.Must(harness.Apply(t.Context(), servers.Hub(), t.TempDir(), "rbac", "fleet"))
	return w
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
