// Package clusterctlmove shows that clusterctl moves a fleet from one management cluster to another without
// the loss of a term. Two management clusters run a hub process each, under the RBAC of config/.
// Guestbooks act all the time in three members. The clusterctl is the real one.
//
// The hubs distinguish their Leases by the mark that each hub writes on them. A hub whose Clusters go
// removes its mark from their Leases and writes there no more. The other hub takes over Leases
// without a mark, by compare-and-swap. While a mark is left, the other hub waits and reports OtherHub.
package clusterctlmove

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

const (
	// assetsVariable names the folder of clusterctl.
	assetsVariable = "CAPI_ASSETS"
	// patience bounds the wait for something that takes no time by the protocol.
	patience = time.Minute
	// toolTimeout bounds a call of clusterctl, which tries again what fails for minutes.
	toolTimeout = 2 * time.Minute
)

// timings are the default profile's with a longer D: the restore of an API server on a busy machine, where a hub
// is back after half a minute, ends no term.
var timings = lease.Timings{Duration: time.Minute, Renew: 5 * time.Second, Timeout: 3 * time.Second, Skew: time.Second}

// leaders are the namespaces and who leads them. In depot that is not the best cluster: the namespace
// came to east when west led it.
var leaders = map[string]string{"shop": "east", "bank": "west", "mail": "south", "depot": "west"}

// site is one of the two management clusters.
type site struct {
	name string
	*harness.Drill
}

// first and second are what the tests share, one after the other. The guestbooks are those of the first.
var first, second site

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, harness.Options{
		Timings:  timings,
		ActEvery: 100 * time.Millisecond,
		Members: []harness.Member{
			{Name: "east", Priority: 100, Namespaces: []string{"shop"}},
			{Name: "west", Priority: 50, Namespaces: []string{"shop", "bank", "depot"}},
			{Name: "south", Priority: 10, Namespaces: []string{"shop", "bank", "mail", "depot"}},
		},
	}, func(ctx context.Context, d *harness.Drill) error {
		other, err := d.StartBeside(ctx)
		first, second = site{"first", d}, site{"second", other}
		return err
	}))
}

func (at site) kill(t *testing.T) {
	musttest.Do(t, at.LatestHub().Kill())
}

func (at site) startHub(t *testing.T) {
	musttest.Get(at.StartHub())(t)
}

// led returns when the records at a site and the leaders' Leases say who leads, all marked by that
// site's hub, and returns the epochs.
//
// A term that a test before this one has ended is replaced by then.
func (at site) led(t *testing.T) map[string]int64 {
	return at.ledWithin(t, timings.Duration+timings.Skew+patience)
}

func (at site) ledWithin(t *testing.T, within time.Duration) map[string]int64 {
	hub := at.hubID(t)
	epochs := map[string]int64{}
	first.Eventually(t, within, "all namespaces are led by the hub at the "+at.name+" site",
		func(ctx context.Context) error {
			for namespace, leader := range leaders {
				epoch, err := at.ledBy(ctx, hub, namespace, leader)
				if err != nil {
					return fmt.Errorf("%s: %w", namespace, err)
				}
				epochs[namespace] = epoch
			}
			return nil
		})
	return epochs
}

// goesOn returns when all are led by the hub at a site, and fails the test unless the epochs are what they were.
func (at site) goesOn(t *testing.T, epochs map[string]int64) {
	t.Helper()
	for namespace, epoch := range at.ledWithin(t, patience) {
		if epoch != epochs[namespace] {
			t.Errorf("%s: epoch %d, was %d", namespace, epoch, epochs[namespace])
		}
	}
}

// ledBy returns the epoch of a namespace, if the record at a site and the leader's Lease say so, marked by
// that site's hub.
func (at site) ledBy(ctx context.Context, hub, namespace, leader string) (epoch int64, err error) {
	if epoch, err = at.Leading(ctx, leader, namespace, leader); err != nil {
		return 0, err
	}
	r, err := at.Record(ctx, namespace)
	if err != nil {
		return 0, err
	}
	c, err := copyIn(ctx, leader, namespace)
	if err != nil {
		return 0, err
	}
	if r.Spec.Hub != hub || c.Hub != hub || r.Spec.Epoch != epoch || c.Epoch != epoch || !c.Live(harness.Now().Wall) {
		return 0, fmt.Errorf("the Lease in %s is %+v, the record has epoch %d of the hub %s",
			leader, c, r.Spec.Epoch, r.Spec.Hub)
	}
	return epoch, nil
}

// copyIn reads a member's Lease.
func copyIn(ctx context.Context, member, namespace string) (lease.Content, error) {
	l, err := first.LeaseIn(ctx, member, namespace)
	c, _ := wire.Read(l)
	return c, err
}

// hubID is the mark of the hub at a site.
func (at site) hubID(t *testing.T) string {
	ns := &corev1.Namespace{}
	musttest.Do(t, at.Hub.Get(t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, ns))
	return string(ns.UID) + "/" + harness.HubNamespace
}

// begin waits for the leaders, who lead already but at the very first time. Then a hub waits for all terms that another
// one may have promised.
func (at site) begin(t *testing.T) map[string]int64 {
	first.Eventually(t, timings.Duration+timings.Skew+patience, "west leads depot", func(ctx context.Context) error {
		c := must.Get(copyIn(ctx, "west", "depot"))
		return must.ErrorIf(!c.LeadsHere(), "it is led by %q", c.Holder)
	})
	depot := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "depot"}}
	musttest.Do(t, client.IgnoreAlreadyExists(first.Members["east"].Create(t.Context(), depot)))
	first.Eventually(t, patience, "east follows in depot", func(ctx context.Context) error {
		_, err := copyIn(ctx, "east", "depot")
		return err
	})
	return at.led(t)
}

// provisioned says of the Clusters at a site what clusterctl demands of those that it moves, and what Cluster API
// says of them once they are.
func provisioned(t *testing.T, at site) {
	for _, c := range clusters(t, at) {
		c.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
			Type:   clusterv1.ClusterControlPlaneInitializedCondition,
			Status: metav1.ConditionTrue,
			Reason: clusterv1.ClusterControlPlaneInitializedReason,
		})
		musttest.Do(t, at.Hub.Status().Update(t.Context(), &c))
	}
}

func clusters(t *testing.T, at site) []clusterv1.Cluster {
	list := &clusterv1.ClusterList{}
	musttest.Do(t, at.Hub.List(t.Context(), list, client.InNamespace(harness.FleetNamespace)))
	return list.Items
}

// clusterctl runs the real program on the two sites.
func clusterctl(t *testing.T, from, to site) {
	t.Helper()
	assets := os.Getenv(assetsVariable)
	if assets == "" {
		t.Fatalf("%s is not set: it must name the folder of clusterctl, which `make capi` builds", assetsVariable)
	}
	dir := t.TempDir()
	musttest.Do(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte("providers: []\n"), 0o600))
	for _, s := range []site{from, to} {
		musttest.Do(t, fleet.WriteKubeconfig(filepath.Join(dir, s.name), s.name, s.Fleet.Hub().AdminConfig()))
	}
	ctx, cancel := context.WithTimeout(t.Context(), toolTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(assets, "clusterctl"), "move",
		"--namespace="+harness.FleetNamespace, "-v=1",
		"--config="+filepath.Join(dir, "config.yaml"),
		"--kubeconfig="+filepath.Join(dir, from.name),
		"--to-kubeconfig="+filepath.Join(dir, to.name))
	cmd.Env = append(os.Environ(), "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "HOME="+dir, "XDG_CONFIG_HOME="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("clusterctl: %v\n%s", err, bytes.TrimSpace(out))
	}
	t.Logf("clusterctl:\n%s", bytes.TrimSpace(out))
}

// left lists what of a fleet is left at a site.
func left(t *testing.T, at site) (names []string) {
	for _, list := range []client.ObjectList{
		&clusterv1.ClusterList{}, &v1alpha1.LeadershipPolicyList{}, &v1alpha1.NamespaceLeaderList{}, &corev1.SecretList{},
	} {
		musttest.Do(t, at.Hub.List(t.Context(), list, client.InNamespace(harness.FleetNamespace)))
		musttest.Do(t, meta.EachListItem(list, func(o runtime.Object) error {
			names = append(names, fmt.Sprintf("%T %s", o, o.(client.Object).GetName()))
			return nil
		}))
	}
	slices.Sort(names)
	return names
}

// view is what a test saw, from its beginning on.
type view struct {
	*harness.View
	t *testing.T
}

func look(t *testing.T) *view {
	return &view{View: first.LookFor(t), t: t}
}

// unbroken fails the test unless one term of each namespace went on all the time, in the epoch that it had before. It
// returns the least that was left of a term when its renewal could be seen.
func (v *view) unbroken(epochs map[string]int64) (closest time.Duration) {
	v.t.Helper()
	closest = time.Hour
	terms := v.Terms()
	now := harness.Now().Wall
	for namespace, leader := range leaders {
		place := harness.Place{Namespace: namespace, Cluster: lease.Identity(leader, harness.FleetNamespace)}
		for other := range terms {
			if other.Namespace == namespace && other != place {
				v.t.Errorf("%s leads; %s led in epoch %d", other, leader, epochs[namespace])
			}
		}
		seen := terms[place]
		if len(seen) == 0 {
			v.t.Errorf("%s: %s was not seen to lead", namespace, leader)
			continue
		}
		if seen[0].Epoch != epochs[namespace] {
			v.t.Errorf("%s: epoch %d, was %d", place, seen[0].Epoch, epochs[namespace])
		}
		left, err := harness.Unbroken(seen, now)
		if err != nil {
			v.t.Errorf("%s: %v", place, err)
		}
		closest = min(closest, left)
	}
	return closest
}

// undisturbed fails the test if the acts of two clusters meet, if their epochs fall, or if another
// cluster acts than the one that did before. It returns the longest pause between two acts in one namespace.
func (v *view) undisturbed() (longest time.Duration) {
	v.t.Helper()
	for _, verdict := range v.harmless() {
		if len(verdict.Changes) > 0 {
			v.t.Errorf("%s: the acting cluster changed: %v", verdict.Namespace, verdict.Changes)
		}
	}
	acts := musttest.Get(first.Acts())(v.t)
	last := map[string]time.Duration{}
	for _, a := range acts {
		if before, ok := last[a.Namespace]; ok {
			longest = max(longest, a.Begin-before)
		}
		last[a.Namespace] = max(last[a.Namespace], a.Begin)
	}
	return longest
}

// harmless fails the test if the acts of two clusters meet, or if their epochs fall.
func (v *view) harmless() []harness.Verdict {
	v.t.Helper()
	verdicts, err := v.Judge()
	if err != nil {
		v.t.Error(err)
	}
	return verdicts
}

// marks returns, of all Leases that exist, how many carry which mark.
func (v *view) marks() map[string]int {
	type place struct{ cluster, namespace, name string }
	last := map[place]string{}
	for _, w := range v.Leases {
		for _, s := range w.Seen() {
			c, _ := wire.Read(s.Object)
			p := place{c.Cluster, c.Namespace, c.Name}
			if last[p] = c.Hub; s.Gone {
				delete(last, p)
			}
		}
	}
	n := map[string]int{}
	for _, hub := range last {
		n[hub]++
	}
	return n
}

// markedBy returns when all Leases carry one mark.
func (v *view) markedBy(hub string) {
	first.Eventually(v.t, patience, "all Leases are marked by one hub", func(context.Context) error {
		n := v.marks()
		return must.ErrorIf(len(n) != 1 || n[hub] == 0, "Leases by mark: %v, want all of %s", n, hub)
	})
}

// settled returns when all leaders' Leases were renewed once more than when it was called.
func (v *view) settled() {
	now := harness.Now().Wall
	first.Eventually(v.t, patience, "everybody is renewed", func(context.Context) error {
		renewed := map[string]bool{}
		for place, seen := range v.Terms() {
			renewed[place.Namespace] = renewed[place.Namespace] || seen[len(seen)-1].RenewTime.After(now)
		}
		for namespace := range leaders {
			if !renewed[namespace] {
				return fmt.Errorf("%s: not renewed since", namespace)
			}
		}
		return nil
	})
}
