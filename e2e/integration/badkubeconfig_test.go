package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
)

// heldUp is less than the shortest time that the hub waits for a Cluster that does not answer, 5 s to identify it.
const heldUp = 4500 * time.Millisecond

// TestAClusterThatCannotBeReachedHoldsUpNobody measures the same fleet twice: alone, and
// beside Clusters that no hub can use.
func TestAClusterThatCannotBeReachedHoldsUpNobody(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, spoil func(w *world)) (start time.Duration) {
		w := newWorld(t, three)
		w.Timings = patient
		a, b := w.namespace("a", all...), w.namespace("b", "west", "south")
		w.Policy("p", a, b, w.Fleet+"-late")
		spoil(w)
		w.startHub()
		start = took(func() {
			w.Leads("east", a, 30*time.Second, all...)
			w.Leads("west", b, 30*time.Second, "west", "south")
		})
		ja, jb := w.keeps("east", a), w.keeps("west", b)
		late := took(func() {
			w.namespace("late", all...)
			w.Leads("east", w.Fleet+"-late", soon, all...)
		})
		within(t, "a new namespace has its leader after", late, heldUp)
		ja.grow(2) // long enough for the timeouts of bad members
		t.Logf("longest time between two renewals: %v and %v", ja.check(), jb.check())
		w.Servers.Member("south").Proxy().BlackHole() // one that was good until then
		w.awaitUnfit("south", a, reason.Unreachable)
		within(t, "the hub stops in", took(w.StopHub), atOnce)
		w.Servers.Member("south").Proxy().Heal()
		w.clear()
		return start
	}

	alone := run(t, func(*world) {})
	t.Logf("alone all lead after %v", alone)
	start := run(t, func(w *world) {
		mute, ca, certificate := muteServer(t)
		w.addCluster("none", "1", nil)
		w.addCluster("broken", "1", []byte("this is no kubeconfig: ["))
		w.addCluster("dead", "1", kubeconfigTo(t, deadAddress(t), ca))
		w.addCluster("deaf", "1", kubeconfigTo(t, deafServer(t, nil), ca))
		w.addCluster("silent", "1", kubeconfigTo(t, deafServer(t, &certificate), ca))
		w.addCluster("mute", "1", kubeconfigTo(t, mute, ca))
	})
	within(t, "beside bad Clusters all lead after", start, alone+heldUp)
}

func TestAClusterThatCannotBeUsedSaysWhyAndIsNotChosen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, three)
	a := w.namespace("a", all...)
	w.Policy("p", a)
	mute, ca, certificate := muteServer(t)
	strangers := map[string]struct {
		kubeconfig []byte
		reason     reason.Reason
		words      []string
	}{
		"none": {nil, reason.NoKubeconfig, []string{"there is no Secret none-kubeconfig"}},
		"broken": {
			kubeconfig: []byte("this is no kubeconfig: ["),
			reason:     reason.InvalidKubeconfig,
			words:      []string{"Secret broken-kubeconfig", "no v1 Config"},
		},
		"dead": {
			kubeconfig: kubeconfigTo(t, deadAddress(t), ca),
			reason:     reason.Unreachable,
			words:      []string{"does not answer", "connection refused"},
		},
		"deaf":   {kubeconfigTo(t, deafServer(t, nil), ca), reason.Unreachable, []string{"does not answer"}},
		"silent": {kubeconfigTo(t, deafServer(t, &certificate), ca), reason.Unreachable, []string{"does not answer"}},
		"mute":   {kubeconfigTo(t, mute, ca), reason.Unreachable, []string{"does not answer"}},
	}
	for name, s := range strangers {
		w.addCluster(name, "1000", s.kubeconfig)
	}
	w.startHub()
	// The first leader waits for better Clusters, for at most initialDelaySeconds. Terms of an earlier hub end after
	// a term. Both times count from the creation of the record.
	w.Leads("east", a, firstElection, all...)
	r := harness.Get(w.Record(a))(w.T)
	waited := r.Spec.AcquireTime.Sub(r.CreationTimestamp.Time)
	within(t, "better Clusters are waited for", waited, max(v1alpha1.DefaultInitialDelay, w.term())+5*time.Second)
	j := w.keeps("east", a)
	for name, s := range strangers {
		w.awaitUnfit(name, a, s.reason, s.words...)
		w.awaitEvent(name, s.reason, s.words...)
	}
	j.check()

	// A Secret that comes later is used at once.
	w.setPriority("none", "1")
	w.Must(w.Hub.Delete(t.Context(), w.cluster("south")))
	w.noLease("south", a, soon)
	w.Eventually("the member is forgotten", 30*time.Second, func() error {
		if c, err := w.Candidate(a, "south"); err == nil {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	w.Must(w.Servers.SetKubeconfig(t.Context(), w.Fleet, "none", w.kubeconfig("south")))
	w.awaitEligible("none", a)
}

func TestTwoClustersThatLeadToOneMemberAreToldApart(t *testing.T) {
	t.Parallel()
	w, a, _ := eastLeads(t, steady)
	j := w.keeps("east", a)
	// A Cluster that came later and leads to a member that has a name already.
	w.addCluster("copycat", "1000", w.kubeconfig("east"))
	w.awaitUnfit("copycat", a, reason.DuplicateCluster, "same cluster", w.Fleet+"/east")
	w.awaitEvent("copycat", reason.DuplicateCluster, w.Fleet+"/east")

	// A Cluster whose kubeconfig suddenly leads to somebody else.
	w.Must(w.Servers.SetKubeconfig(t.Context(), w.Fleet, "south", w.kubeconfig("west")))
	w.awaitUnfit("south", a, reason.WrongCluster, "pinned", w.cluster("south").Annotations[v1alpha1.ClusterUIDAnnotation])
	w.awaitEvent("south", reason.WrongCluster, "correct the kubeconfig")
	w.Leads("east", a, soon, all...)
	w.Must(w.Servers.SetKubeconfig(t.Context(), w.Fleet, "south", w.kubeconfig("south")))
	w.awaitEligible("south", a)
	j.check()
}
