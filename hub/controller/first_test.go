package controller

import (
	"context"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/ledger"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/seal"
)

// shelf is a member's API server that answers at once.
type shelf struct {
	coordinationclient.LeaseInterface
	leases  map[string]*coordinationv1.Lease // by name
	version int
}

func (s *shelf) Leases(string) coordinationclient.LeaseInterface { return s }

func (s *shelf) put(l *coordinationv1.Lease) *coordinationv1.Lease {
	s.version++
	l = l.DeepCopy()
	l.UID, l.ResourceVersion = types.UID("uid-of-"+l.Name), strconv.Itoa(s.version)
	s.leases[l.Name] = l
	return l.DeepCopy()
}

func (s *shelf) List(_ context.Context, o metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	selector, err := labels.Parse(o.LabelSelector)
	if err != nil {
		return nil, err
	}
	list := &coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
	for _, l := range s.leases {
		if selector.Matches(labels.Set(l.Labels)) {
			list.Items = append(list.Items, *l.DeepCopy())
		}
	}
	return list, nil
}

func (s *shelf) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	if l := s.leases[name]; l != nil {
		return l.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(leaseResource, name)
}

func (s *shelf) Create(
	_ context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions,
) (*coordinationv1.Lease, error) {
	if s.leases[l.Name] != nil {
		return nil, apierrors.NewAlreadyExists(leaseResource, l.Name)
	}
	return s.put(l), nil
}

func (s *shelf) Update(
	_ context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions,
) (*coordinationv1.Lease, error) {
	if old := s.leases[l.Name]; old == nil || old.ResourceVersion != l.ResourceVersion {
		return nil, apierrors.NewConflict(leaseResource, l.Name, errRefused)
	}
	return s.put(l), nil
}

func (s *shelf) Delete(_ context.Context, name string, _ metav1.DeleteOptions) error {
	delete(s.leases, name)
	return nil
}

var testKey = seal.Key("a key of thirty-two characters..")

// stage is a controller of the hub "this", and cluster east of its fleet, whose Leases of namespace shop it writes.
type stage struct {
	entry  *ledger.Entry
	t      *testing.T
	clock  *clocktest.Hand
	c      *Controller
	east   *shelf
	policy *decide.Policy
}

var shopCopy = types.NamespacedName{Namespace: "shop", Name: "leasecast"}

func newStage(t *testing.T) *stage {
	t.Helper()
	clock := clocktest.NewHand(clocktest.Start)
	return &stage{
		entry: takenOf(shop), t: t, clock: clock, c: New(Options{HubID: "this", Clock: clock}), east: &shelf{
			leases: map[string]*coordinationv1.Lease{},
		},
		policy: &decide.Policy{Names: map[string]bool{"shop": true}, Election: election.Policy{
			LeaseName: shopCopy.Name, Acknowledged: true,
			Timings: lease.Timings{
				Duration: 15 * time.Second, Renew: 5 * time.Second, Timeout: 3 * time.Second, Skew: time.Second,
			},
		}},
	}
}

// publisher is one of east that has read it.
func (s *stage) publisher() *publish.Publisher {
	s.t.Helper()
	p := publish.New(publish.Options{
		Client: s.east, Fleet: "fleet", Cluster: lease.Identity("east", "fleet"), ClusterUID: "uid", Hub: "this",
		Key:   testKey,
		Clock: s.clock, MayWrite: func(lease.Reading) bool { return true }, Promises: s.c.promises,
		Report: func(bool, lease.Reading, error) {}, Changed: func(string) {},
		Queue: workqueue.NewTypedDelayingQueue[types.NamespacedName](),
	})
	s.t.Cleanup(p.Queue.ShutDown)
	if !p.ReadAll(s.t.Context()) {
		s.t.Fatal("the Leases were not read")
	}
	s.work(p)
	return p
}

// work does all that is to be done at once.
func (s *stage) work(p *publish.Publisher) {
	for p.Queue.Len() > 0 {
		key, _ := p.Queue.Get()
		p.Work(s.t.Context(), key)
		p.Queue.Done(key)
	}
}

// decided has the Leases written as a record says.
func (s *stage) decided(p *publish.Publisher, r election.Record, grants bool) {
	v := &decide.Snapshot{Entry: s.entry, Policy: s.policy, Members: []decide.Member{{
		Member: fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: "east"}, Connected: true}, TakesPart: true, IsRead: true,
		Publisher: p, Namespace: &corev1.Namespace{},
	}}}
	v.State.Record = r
	d := election.Decision{Record: r}
	if grants && r.Reason != reason.Adopted {
		s.entry.Granted = r.Epoch
	}
	lookAtLeases(v)
	s.c.assign(v, planOf(d))
	s.work(p)
}

// leading is the record of a term of east.
func (s *stage) leading(why reason.Reason) election.Record {
	return election.Record{
		Leader: "east", Epoch: 20, State: election.Leading, Reason: why, Since: s.clock.Now().Wall,
		AcquireTime: s.clock.Now().Wall,
		Duration:    15 * time.Second, LeaseName: shopCopy.Name,
	}
}

// Rule 3: the first Lease of a term is written by the tenure that persisted its grant, once. Whatever else does not
// find a Lease that stands needs a new term: the one that is missing may be what was to end this one.
func TestWhoWritesTheFirstLeaseOfATerm(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(*stage)
		written bool
	}{
		"the tenure that has granted it": {func(s *stage) {
			s.decided(s.publisher(), s.leading(reason.Elected), true)
		}, true},
		"not one that found it in the record": {func(s *stage) {
			s.decided(s.publisher(), s.leading(reason.Elected), false)
		}, false},
		"nor one that found it in a Lease": {func(s *stage) {
			s.decided(s.publisher(), s.leading(reason.Adopted), true)
		}, false},
		"nor the tenure that has stamped it already, over whatever connection": {func(s *stage) {
			s.decided(s.publisher(), s.leading(reason.Elected), true)
			if len(s.east.leases) != 1 {
				s.t.Fatal("it was not written at all")
			}
			s.clock.Advance(time.Second)
			clear(s.east.leases)
			s.decided(s.publisher(), s.leading(reason.Elected), false)
		}, false},
		"but the next one, which it has granted as well": {func(s *stage) {
			s.decided(s.publisher(), s.leading(reason.Elected), true)
			s.clock.Advance(time.Second)
			clear(s.east.leases)
			next := s.leading(reason.NewTerm)
			next.Epoch++
			s.decided(s.publisher(), next, true)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			test.happens(s)
			if written := s.east.leases[shopCopy.Name] != nil; written != test.written {
				t.Errorf("a first Lease was written: %v, want %v", written, test.written)
			}
		})
	}
}

// What a member's readers say does not count for D + ε after it was first read: before that, its etcd may have been
// restored, and a reader of the state that was lost may act until then. It acts by the longest D that was ever sent in
// the term, not by the one that the policy has by now.
func TestReadersAreBelievedOnceTheLongestDOfTheTermHasPassed(t *testing.T) {
	const second = time.Second
	for name, test := range map[string]struct {
		present, recorded time.Duration
		registered        time.Duration // for how long a reader may act after it has confirmed its registration
		after             time.Duration // since the member was read
		believed          bool
	}{
		"D has not changed, before D + ε":             {15 * second, 15 * second, 3 * second, 16*second - 1, false},
		"D has not changed, after it":                 {15 * second, 15 * second, 3 * second, 16 * second, true},
		"D was lowered, after the present D + ε":      {3 * second, 15 * second, 3 * second, 5 * second, false},
		"D was lowered, before the longest + ε":       {3 * second, 15 * second, 3 * second, 16*second - 1, false},
		"D was lowered, after it":                     {3 * second, 15 * second, 3 * second, 16 * second, true},
		"D was raised, before the present D + ε":      {30 * second, 15 * second, 3 * second, 31*second - 1, false},
		"D was raised, after it":                      {30 * second, 15 * second, 3 * second, 31 * second, true},
		"a reader is registered for longer, before ε": {15 * second, 15 * second, 30 * second, 31*second - 1, false},
		"a reader is registered for longer, after it": {15 * second, 15 * second, 30 * second, 31 * second, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.policy.Election.Timings.Duration = test.present
			began := s.clock.Now().Wall
			copied := &coordinationv1.Lease{}
			if err := seal.Write(testKey, lease.Content{
				Namespace: shopCopy.Namespace, Name: shopCopy.Name, Cluster: lease.Identity("east", "fleet"), ClusterUID: "uid",
				Hub: "this",
				Term: lease.Term{
					Holder: lease.Identity("east", "fleet"), Epoch: 20, AcquireTime: began, RenewTime: began, Duration: time.Minute,
				},
			}, copied); err != nil {
				t.Fatal(err)
			}
			s.east.put(copied)
			confirm := func() {
				reader := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "pods", Name: "reader"}}
				if err := wire.WriteRegistration(lease.Registration{
					Identity: "reader", Account: "reader", Confirmed: s.clock.Now().Wall, Duration: test.registered,
					Released: map[string]int64{
						"shop": 20,
					},
				}, reader); err != nil {
					t.Fatal(err)
				}
				s.east.put(reader)
			}
			confirm()
			p := s.publisher()
			s.clock.Advance(test.after)
			confirm()
			r := s.leading(reason.PriorityChanged)
			r.State, r.Epoch, r.Revoked, r.Duration, r.AcquireTime = election.Draining, 21, 20, test.recorded, began
			s.decided(p, r, false)
			if c, _ := wire.Read(s.east.leases[shopCopy.Name]); c.Epoch != 21 {
				t.Fatalf("the term was not revoked: %+v", c)
			}
			if believed := p.SyncStatus(shopCopy).Released == 20; believed != test.believed {
				t.Errorf("what readers say is believed: %v, want %v", believed, test.believed)
			}
		})
	}
}
