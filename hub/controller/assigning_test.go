package controller

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/publish"
)

// awaited is a member's API server that answers nobody who does not wait.
type awaited struct{ *shelf }

func (a awaited) Leases(string) coordinationclient.LeaseInterface { return a }

func (a awaited) Create(ctx context.Context, l *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return a.shelf.Create(ctx, l, o)
}

func (a awaited) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return a.shelf.Delete(ctx, name, o)
}

// An answer is waited for as long as the policy says, and where none says so for a second.
func TestTheAnswersOfAMemberAreWaitedFor(t *testing.T) {
	s := newStage(t)
	p := publish.New(publish.Options{
		Client: awaited{s.east}, Fleet: "fleet", Cluster: eastKey.Identity(), ClusterUID: "uid", Hub: "this", Key: testKey,
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
	if _, is := s.assigned(p, r, func(*view, *election.Decision) {}); !is {
		t.Fatal("it is not written")
	}
	s.clock.Advance(time.Second)
	if _, is := s.assigned(p, r, func(v *view, _ *election.Decision) {
		v.policy, v.members[0].takesPart = nil, false
	}); is {
		t.Error("it is not deleted")
	}
}

// Where no policy and no record names the Leases, there are none to speak of.
func TestLeasesWithoutANameAreNotWritten(t *testing.T) {
	s := newStage(t)
	p := s.publisher()
	m := measured("east", agrees)
	m.publisher = p
	v := shopView(election.Record{}, m)
	v.policy = nil
	s.c.assign(v, election.Decision{Record: election.Record{State: election.Vacant, Leader: "east"}})
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
	if _, is := s.assigned(p, r, func(v *view, _ *election.Decision) {
		v.members[0].takesPart, v.members[0].namespace = false, nil
	}); is {
		t.Error("it stays")
	}
}
