package hubfailover

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/proxy"
)

// moved are the namespaces that a handover between east and west moves. The tests wait for the first one.
var moved = []string{"shop", "stock", "post"}

// handover is one between east and west, in the middle of which the hub dies.
type handover struct {
	*view
	from, to string
	priority int // of west, which causes it
	epochs   map[string]int64
}

// begin edits the label.
func (o *handover) begin() {
	harness.Must(o.t, o.p.d.SetPriority(o.t.Context(), "west", o.priority))
}

// record returns what the watch last showed of the first record.
func (o *handover) record() (v1alpha1.NamespaceLeaderSpec, error) {
	seen := o.Records.Seen()
	for i := len(seen) - 1; i >= 0; i-- {
		if seen[i].Object.Name == moved[0] {
			return seen[i].Object.Spec, nil
		}
	}
	return v1alpha1.NamespaceLeaderSpec{}, errors.New("no record yet")
}

// awaitRecord returns when the first record is as it should be.
func (o *handover) awaitRecord(what string, as func(v1alpha1.NamespaceLeaderSpec) bool) v1alpha1.NamespaceLeaderSpec {
	var s v1alpha1.NamespaceLeaderSpec
	harness.Eventually(o.t, patience, what, func(context.Context) (err error) {
		if s, err = o.record(); err == nil && !as(s) {
			err = fmt.Errorf("leader %q, epoch %d, state %s, reason %s", s.Leader, s.Epoch, s.State, s.Reason)
		}
		return err
	})
	return s
}

func draining(s v1alpha1.NamespaceLeaderSpec) bool { return s.State == v1alpha1.StateDraining }

func (o *handover) granted(s v1alpha1.NamespaceLeaderSpec) bool {
	return s.State == v1alpha1.StateLeading && s.Leader == o.to
}

// awaitBound returns shortly before the first record's bound passes.
func (o *handover) awaitBound(before time.Duration) {
	o.t.Helper()
	s := o.awaitRecord("the draining is recorded", draining)
	harness.After(o.t, harness.BootOf(s.NotBefore.Time, harness.Now())-before)
	if s, err := o.record(); err != nil || !draining(s) {
		o.t.Fatalf("the bound has not passed, and yet: state %s, leader %s, %v", s.State, s.Leader, err)
	}
}

const (
	// early is how long before the bound a step begins. It is longer than a pause of the machine.
	early = 2500 * time.Millisecond
	// apart is how long before the bound the successor falls silent. A request may take twice that, and until then the
	// successor is eligible. So the step may begin late by apart, and so may the grant.
	apart = 1500 * time.Millisecond
)

// firstLease reports whether the successor's guestbook can have seen that it leads.
func (o *handover) firstLease() bool {
	for _, s := range o.Terms()[harness.Place{Namespace: moved[0], Cluster: o.to + "." + harness.FleetNamespace}] {
		if s.Epoch > o.epochs[moved[0]] {
			return true
		}
	}
	return false
}

// step is a moment of a handover.
type step struct {
	name string
	// reach begins the handover and returns when it is at the step.
	reach func(*handover)
	// reached says whether, once the replica is dead, it was at the step and not beyond it.
	reached func(*handover, v1alpha1.NamespaceLeaderSpec) bool
	// mend ends the faults that were needed, when the replica is dead.
	mend func(*handover)
}

// toSuccessor is the network between the hub and the successor.
func (o *handover) toSuccessor() *proxy.Proxy { return o.p.d.Fleet.Member(o.to).Proxy() }

// steps are all the moments between two writes of a handover, of the record or of a Lease. Every run plays the first
// ones.
var steps = []step{
	{
		name: "after the grant was persisted and before the first Lease was sent",
		reach: func(o *handover) {
			o.begin()
			o.awaitBound(apart)
			o.toSuccessor().HoldToMember()
			o.awaitRecord("the grant is recorded", o.granted)
		},
		reached: func(o *handover, s v1alpha1.NamespaceLeaderSpec) bool { return o.granted(s) && !o.firstLease() },
		mend:    func(o *handover) { o.toSuccessor().Heal() },
	},
	{
		name:    "after the draining was persisted",
		reach:   func(o *handover) { o.begin(); o.awaitRecord("the draining is recorded", draining) },
		reached: func(_ *handover, s v1alpha1.NamespaceLeaderSpec) bool { return draining(s) },
	},
	{
		name: "before the draining is persisted",
		reach: func(o *handover) {
			hub := o.p.d.Fleet.Hub().Proxy()
			hub.HoldToMember() // what the hub sees, it sees; what it says is not heard
			o.begin()
			harness.Eventually(o.t, patience, "the hub has said something", func(context.Context) error {
				return must.ErrorIf(hub.Stats().KeptToMember == 0, "nothing is kept")
			})
		},
		reached: func(o *handover, s v1alpha1.NamespaceLeaderSpec) bool {
			return s.State == v1alpha1.StateLeading && s.Leader == o.from
		},
		mend: func(o *handover) { o.p.d.Fleet.Hub().Proxy().Heal() },
	},
	{
		name:    "before the grant",
		reach:   func(o *handover) { o.begin(); o.awaitBound(early) },
		reached: func(_ *handover, s v1alpha1.NamespaceLeaderSpec) bool { return draining(s) },
	},
	{
		name: "after the grant was persisted, and what was sent arrives late",
		reach: func(o *handover) {
			o.begin()
			// a Lease is sent at once where something was answered just now, else a read goes first
			o.awaitBound(100 * time.Millisecond)
			o.toSuccessor().HoldToMember()
			o.awaitRecord("the grant is recorded", o.granted)
		},
		reached: func(o *handover, s v1alpha1.NamespaceLeaderSpec) bool { return o.granted(s) && !o.firstLease() },
		mend: func(o *handover) {
			harness.After(o.t, harness.Now().Boot+2*time.Second)
			o.toSuccessor().Release()
		},
	},
	{
		name: "after the first Lease was written",
		reach: func(o *handover) {
			o.begin()
			harness.Eventually(o.t, patience, "the first Lease is there", func(context.Context) error {
				return must.ErrorIf(!o.firstLease(), "it is not")
			})
		},
		reached: func(o *handover, s v1alpha1.NamespaceLeaderSpec) bool { return o.granted(s) && o.firstLease() },
	},
}

// TestAHandoverOutlivesTheHub: the replica that writes dies at a step of a handover, and the other one finishes it. The
// planned cluster, and nobody else, leads within the floor plus the duration of the hub's election plus a slack. The
// other namespaces notice nothing.
func TestAHandoverOutlivesTheHub(t *testing.T) {
	run := steps[:2]
	if *every {
		run = steps
	}
	for i, s := range run {
		from, to, priority := "east", "west", 200
		if i%2 == 1 {
			from, to, priority = "west", "east", 50
		}
		for _, namespace := range moved {
			leaders[namespace] = from
		}
		t.Run(s.name, func(t *testing.T) { interrupt(t, s, from, to, priority) })
		if t.Failed() {
			break
		}
		for _, namespace := range moved {
			leaders[namespace] = to
		}
	}
}

func interrupt(t *testing.T, s step, from, to string, priority int) {
	writer := shared.settled(t)
	o := &handover{view: look(t, shared), from: from, to: to, priority: priority, epochs: map[string]int64{}}
	t.Cleanup(func() {
		o.toSuccessor().Heal()
		shared.d.Fleet.Hub().Proxy().Heal()
	})
	for _, namespace := range moved {
		r := harness.Get(shared.d.Record(t.Context(), namespace))(t)
		o.epochs[namespace] = r.Spec.Epoch
	}
	s.reach(o)
	harness.Must(t, writer.Kill())
	killed := harness.Now().Boot
	shared.drop(writer)
	if r := harness.Get(shared.d.Record(t.Context(), moved[0]))(t); !s.reached(o, r.Spec) {
		t.Fatalf("the replica died at another step: leader %s, state %s, a first Lease: %t", r.Spec.Leader, r.Spec.State,
			o.firstLease())
	}
	if s.mend != nil {
		s.mend(o)
	}
	o.completed(killed)
}

// completed returns when the planned cluster acts everywhere, and judges.
func (o *handover) completed(killed time.Duration) {
	o.t.Helper()
	limit := harness.Default.Duration + harness.Default.Skew + h + slack
	var slowest time.Duration
	for _, namespace := range moved {
		var first harness.Act
		harness.Eventually(o.t, limit+killed-harness.Now().Boot, o.to+" acts in "+namespace, func(context.Context) error {
			acts := must.Get(o.p.d.Acts())
			for _, a := range acts {
				if a.Namespace == namespace && a.Cluster == o.to && a.Epoch > o.epochs[namespace] {
					first = a
					return nil
				}
			}
			r, err := o.p.d.Record(o.t.Context(), namespace)
			if err == nil {
				err = fmt.Errorf("record: leader %s, epoch %d, state %s, %s", r.Spec.Leader, r.Spec.Epoch, r.Spec.State,
					r.Status.Message)
			}
			return err
		})
		slowest = max(slowest, first.Begin-killed)
	}
	o.t.Logf("the last namespace is led by %s %.1f s after the kill; the protocol allows %.1f s", o.to, slowest.Seconds(),
		(limit - slack).Seconds())
	lost := demotions(o.t, o.p)
	for _, namespace := range moved {
		if lost[namespace] == o.demoted[namespace] {
			o.t.Errorf("no guestbook lost its term in %s, but %s has taken over: demotions are not seen", namespace, o.to)
		}
	}
	for _, s := range o.Records.Seen() {
		if l := s.Object.Spec.Leader; l != o.from && l != o.to && l != leaders[s.Object.Name] {
			o.t.Errorf("record %s names %q: only %s or %s was to lead", s.Object.Name, l, o.from, o.to)
		}
	}
	o.unbroken(moved...)
	o.undecided(moved...)
}
