package beside

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/hub"
)

// The timings of the policies here.
const (
	// leaseDuration is patient enough for a busy machine.
	leaseDuration    = 10 * time.Second
	renewInterval    = time.Second
	unreachableAfter = 10 * time.Second
)

// newQuietWorld is a fleet of its own, whose hub has the rights of an installed one and knows no Cluster yet.
// Its API servers' audit logs have who wrote what.
func newQuietWorld(t *testing.T, members ...string) *world {
	servers := fleet.NewWith(t, fleet.Options{Members: members, Audit: true})
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

// lease is the path of a Lease on an API server.
func lease(namespace, name string) string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases/" + name
}

// write is one that an API server was asked for.
type write struct {
	fleet.Request
	server, path string
}

func (w write) String() string { return w.server + ": " + w.Request.String() }

// written returns the writes since an instant, but those of the API servers themselves and those that store nothing.
func (w *world) written(since time.Time) (all []write) {
	for _, s := range w.Servers.Servers() {
		for _, r := range harness.Get(s.Requests())(w.T) {
			path, query, _ := strings.Cut(r.URI, "?")
			storesNothing := strings.Contains(query, "dryRun=All") || strings.HasSuffix(path, "reviews")
			if r.Writes() && r.Received.After(since) && r.User != "system:apiserver" && !storesNothing {
				all = append(all, write{r, s.Name(), path})
			}
		}
	}
	return all
}

// unexpected returns the writes since an instant other than renewals of a leader's Lease, of the hub's election, and
// the probes of the members' write path.
func (w *world) unexpected(leader, namespace string, since time.Time) (all []write) {
	known := map[string]bool{
		"hub " + lease(harness.HubNamespace, hub.ElectionName):     true,
		leader + " " + lease(namespace, v1alpha1.DefaultLeaseName): true,
	}
	probe := lease(metav1.NamespaceSystem, "leasecast-hub-probe")
	for _, is := range w.written(since) {
		if !known[is.server+" "+is.path] && is.path != probe {
			all = append(all, is)
		}
	}
	return all
}

// quiet waits until nothing unexpected has been written for a while.
func (w *world) quiet(leader, namespace string, span, within time.Duration) {
	w.T.Helper()
	since := time.Now()
	w.Eventually("quiet for "+span.String(), within, func() error {
		if all := w.unexpected(leader, namespace, since); len(all) > 0 {
			since = all[len(all)-1].Received
			must.Fail("%v", all)
		}
		return must.ErrorIf(time.Since(since) < span, "since %v", since)
	})
}
