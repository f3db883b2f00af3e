package controller

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/publish"
)

// awaited is a member's API server that notes for how long an answer is waited for.
type awaited struct {
	*shelf
	waits []time.Duration
}

func (a *awaited) Leases(string) coordinationclient.LeaseInterface { return a }

func (a *awaited) note(ctx context.Context) {
	at, _ := ctx.Deadline()
	a.waits = append(a.waits, time.Until(at))
}

func (a *awaited) Create(
	ctx context.Context, l *coordinationv1.Lease, o metav1.CreateOptions,
) (*coordinationv1.Lease, error) {
	a.note(ctx)
	return a.shelf.Create(ctx, l, o)
}

func (a *awaited) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	a.note(ctx)
	return a.shelf.Delete(ctx, name, o)
}

// An answer is waited for as long as the policy says, and where none says so for a second.
func TestTheAnswersOfAMemberAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the time that a request may take is that of the process
		s := newStage(t)
		east := &awaited{shelf: s.east}
		p := publish.New(publish.Options{
			Client: east, Fleet: "fleet", Cluster: eastKey.Identity(), ClusterUID: "uid", Hub: "this", Key: testKey,
			Clock: s.clock, MayWrite: func(lease.Reading) bool { return true }, Promises: s.c.promises,
			Report: func(bool, lease.Reading, error) {}, Changed: func(string) {},
			Queue: workqueue.NewTypedDelayingQueue[types.NamespacedName](),
		})
		defer p.Queue.ShutDown()
		if !p.ReadAll(t.Context()) {
			t.Fatal("the Leases were not read")
		}
		r := s.leading(reason.Elected)
		r.Leader = "west"
		if _, is := s.assigned(p, r, func(*decide.Snapshot, *election.Decision) {}); !is {
			t.Fatal("it is not written")
		}
		s.clock.Advance(time.Second)
		if _, is := s.assigned(p, r, func(v *decide.Snapshot, _ *election.Decision) {
			v.Policy, v.Members[0].TakesPart = nil, false
		}); is {
			t.Error("it is not deleted")
		}
		if want := []time.Duration{3 * time.Second, time.Second}; !slices.Equal(east.waits, want) {
			t.Errorf("answers are waited for %v, want %v", east.waits, want)
		}
	})
}

// Without a policy a Lease that stands stays as it is: it is not taken for one that cannot be renewed.
func TestALeaseThatStandsWithoutAPolicyIsNotDueAtOnce(t *testing.T) {
	s, p := leads(t)
	s.clock.Advance(time.Millisecond)
	s.assigned(p, s.leading(reason.Elected), func(v *decide.Snapshot, _ *election.Decision) { v.Policy = nil })
	if got := p.SyncStatus(shopCopy); got.Problem != "" || !got.InPlace {
		t.Errorf("%+v", got)
	}
}

// What a leader may do counts for as long as its fenced locks take to stop.
func TestTheStopTimeOfThePolicyIsPromised(t *testing.T) {
	s := newStage(t)
	s.policy.Election.StopTime = 7 * time.Second
	s.decided(s.publisher(), s.leading(reason.Elected), true)
	if got := s.c.promises.Get(shop).Stop; got != 7*time.Second {
		t.Errorf("a stop time of %v is promised, want 7 s", got)
	}
}

// Rule 3: a record that has lost its epoch is no grant, whatever was promised before.
func TestWhichEpochsHaveAFirstLease(t *testing.T) {
	for epoch, want := range map[int64]bool{0: false, 1: true} {
		s := newStage(t)
		p := s.publisher()
		s.decided(p, s.leading(reason.Elected), true)
		if _, is := s.assigned(p, s.leading(reason.Elected), func(_ *decide.Snapshot, d *election.Decision) {
			d.Gone = true
		}); is {
			t.Fatal("the Lease of the earlier term is left")
		}
		s.entry.Granted = 0
		s.clock.Advance(time.Second)
		r := s.leading(reason.Elected)
		r.Epoch = epoch
		s.decided(p, r, want)
		if written := s.east.leases[shopCopy.Name] != nil; written != want {
			t.Errorf("a first Lease of epoch %d is written: %v", epoch, written)
		}
	}
}

// Where no policy and no record names the Leases, there are none to speak of.
func TestLeasesWithoutANameAreNotWritten(t *testing.T) {
	s := newStage(t)
	p := s.publisher()
	m := measured("east", agrees)
	m.Publisher = p
	v := shopView(election.Record{}, m)
	v.Policy = nil
	s.c.assign(v, planOf(election.Decision{Record: election.Record{State: election.Vacant, Leader: "east"}}))
	if n := p.Queue.Len(); n > 0 {
		t.Errorf("%d Leases are worked on", n)
	}
}

// What has to go goes, wherever it is: a namespace that is missing in a cache may be there.
func TestALeaseGoesAlsoWhereTheNamespaceIsMissing(t *testing.T) {
	s := newStage(t)
	p := s.publisher()
	s.decided(p, s.leading(reason.Elected), true)
	r := s.leading(reason.Elected)
	r.Leader = "west"
	if _, is := s.assigned(p, r, func(v *decide.Snapshot, _ *election.Decision) {
		v.Members[0].TakesPart, v.Members[0].Namespace = false, nil
	}); is {
		t.Error("it stays")
	}
}
