package integration

import (
	"fmt"
	"testing"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

var three = map[string]string{"east": "100", "west": "50", "south": "10"}

func TestEveryNamespaceHasTheBestClusterAsItsLeader(t *testing.T) {
	t.Parallel()
	w := newWorld(t, three)
	a := w.namespace("a", all...)
	b := w.namespace("b", "west", "south")
	w.Policy("p", a, b)
	w.startHub()
	w.Leads("east", a, firstElection, all...)
	w.Leads("west", b, firstElection, "west", "south")
	if _, err := w.LeaseIn("east", b); err == nil {
		t.Error("there is a Lease in a member without the namespace")
	}
}

// Namespaces are seen one after the other, although they are created at the same moment.
func TestNewNamespacesGetTheBestClusterWhereverTheyAreSeenFirst(t *testing.T) {
	t.Parallel()
	w, _, _ := eastLeads(t, steady)
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprintf("%s-new-%d", w.Fleet, i))
	}
	w.Policy("new", names...)
	for _, m := range []string{"south", "west", "east"} { // the worst first
		for _, name := range names {
			w.Namespace(name, m)
		}
	}
	for _, name := range names {
		w.Leads("east", name, firstElection, all...)
		r := harness.Get(w.Record(name))(w.T)
		for _, change := range r.Status.History {
			if change.Leader != "" && change.Leader != "east" {
				t.Errorf("%s was led by %s first", name, change.Leader)
			}
		}
	}
}

func TestTheLossOfALeaderIsSurvivedAndItsReturnChangesNothing(t *testing.T) {
	t.Parallel()
	w, a, before := eastLeads(t, brief)

	w.Servers.Member("east").Proxy().BlackHole()
	after := w.Leads("west", a, w.lost(), "west", "south")
	if after <= before {
		t.Errorf("epoch %d after %d", after, before)
	}
	w.Servers.Member("east").Proxy().Heal()
	w.Eventually("the Lease in east names west", w.silent(), func() error {
		if l := must.Get(w.LeaseIn("east", a)); *l.Spec.HolderIdentity != "west."+w.Fleet {
			return fmt.Errorf("holder %s", *l.Spec.HolderIdentity)
		}
		return nil
	})
	w.Eventually("east is eligible again", w.silent(), func() error {
		r := must.Get(w.Record(a))
		for _, c := range r.Status.Candidates {
			if c.Name == "east" && c.Eligible {
				return nil
			}
		}
		return fmt.Errorf("%+v", r.Status.Candidates)
	})
	if r, _ := w.Record(a); r.Spec.Leader != "west" || r.Spec.Epoch != after {
		t.Errorf("recovery moved the leader: %+v", r.Spec)
	}
}

func TestAnEditOfAPriorityMovesTheLeader(t *testing.T) {
	t.Parallel()
	w, a, _ := eastLeads(t, brief)
	w.setPriority("south", "200")
	w.Leads("south", a, w.ordered(), all...)
	r := harness.Get(w.Record(a))(w.T)
	if got := r.Spec.Reason; got != "HandedOver" {
		t.Errorf("reason %s", got)
	}
	w.Eventually("the history tells why", soon, func() error { // the status follows the record
		r, err := w.Record(a)
		h := r.Status.History
		if err == nil && (len(h) < 3 || h[1].State != v1alpha1.StateDraining || h[1].Reason != "PriorityChanged") {
			err = fmt.Errorf("it says %+v", h)
		}
		return err
	})
}

func TestARestartOfTheHubChangesNoLeader(t *testing.T) {
	w, a, epoch := eastLeads(t, steady)
	w.StopHub()
	w.startHub()
	before := harness.Get(w.LeaseIn("east", a))(w.T)
	w.Eventually("the new hub renews", w.duration(), func() error {
		if now := must.Get(w.LeaseIn("east", a)); !now.Spec.RenewTime.After(before.Spec.RenewTime.Time) {
			return fmt.Errorf("renewed at %v", now.Spec.RenewTime)
		}
		return nil
	})
	if got := w.Leads("east", a, soon, all...); got != epoch {
		t.Errorf("epoch %d, was %d", got, epoch)
	}
}
