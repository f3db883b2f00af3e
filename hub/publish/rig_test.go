package publish

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/seal"
)

// The syncer's tests count seconds after zero, at which the boot clock is 1000 s. The syncer is that of
// namespace ns in cluster east; D is 15 s, r 5 s. At zero, and so every 5 s from then on, a renewal is due.
var zero = (&leaseSyncer{namespace: "ns", timings: Timings{Renew: 5 * second}}).due(lease.Content{
	Term: lease.Term{RenewTime: time.Date(2026, time.January, 5, 12, 0, 0, 0, time.UTC)},
}).UTC()

const second = time.Second

var testKey = seal.Key("a key for the tests of 32 bytes.")

func wall(seconds float64) time.Time { return zero.Add(time.Duration(seconds * float64(second))) }

func at(seconds float64) lease.Reading {
	return lease.Reading{Wall: wall(seconds), Boot: 1000*second + time.Duration(seconds*float64(second))}
}

var (
	errTimeout   = errors.New("context deadline exceeded")
	leases       = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	errForbidden = apierrors.NewForbidden(leases, "leasecast", errors.New("no"))
)

// rig is a syncer and the one Lease that it is about, with an API server's compare-and-swap.
type rig struct {
	t      testing.TB
	syncer *leaseSyncer
	now    lease.Reading
	may    bool
	// noteOutcome says that the member has just answered.
	heard bool
	// blind says that the watch has not shown yet what is known by an answer.
	blind bool

	there   *coordinationv1.Lease
	version int
	uid     int
	pending step

	// For scripts: the answer to a request that is held back, and what a watch shows late.
	heldObject *coordinationv1.Lease
	heldError  error
	remembered *coordinationv1.Lease
}

func newRig(t testing.TB) *rig {
	t.Helper()
	return &rig{t: t, now: at(0), may: true, heard: true, version: 100, syncer: &leaseSyncer{
		namespace: "ns", name: "leasecast",
		self: self{cluster: "east.fleet", uid: "uid-of-east", hub: "hub", key: testKey},
	}}
}

// term is the one that a cluster leads in an epoch, since zero.
func term(cluster string, epoch int64) lease.Term {
	t := lease.Term{Epoch: epoch, AcquireTime: zero, Duration: 15 * second}
	if cluster != "" {
		t.Holder = cluster + ".fleet"
	}
	return t
}

func renewedAt(seconds float64, t lease.Term) lease.Term {
	t.RenewTime = wall(seconds)
	return t
}

// contentOf is a Lease of that term as this hub writes it into east.
func contentOf(t lease.Term, changes ...func(*lease.Content)) lease.Content {
	c := lease.Content{Term: t, Namespace: "ns", Name: "leasecast", Cluster: "east.fleet", ClusterUID: "uid-of-east",
		Hub: "hub"}
	for _, change := range changes {
		change(&c)
	}
	return c
}

// put makes a Lease stand in the member, as an object of its own.
func (r *rig) put(c lease.Content, key seal.Key, changes ...func(*coordinationv1.Lease)) {
	r.t.Helper()
	obj := &coordinationv1.Lease{}
	if err := seal.Write(key, c, obj); err != nil {
		r.t.Fatal(err)
	}
	r.uid++
	obj.UID = types.UID("object-" + strconv.Itoa(r.uid))
	r.there = obj
	r.edit(changes...)
}

// edit changes what stands in the member.
func (r *rig) edit(changes ...func(*coordinationv1.Lease)) {
	r.there = r.there.DeepCopy()
	for _, change := range changes {
		change(r.there)
	}
	r.version++
	r.there.ResourceVersion = strconv.Itoa(r.version)
}

func (r *rig) assign(role assign.Role, t lease.Term, changes ...func(*assign.Assignment)) {
	a := assign.Assignment{Role: role, Term: t}
	for _, change := range changes {
		change(&a)
	}
	r.syncer.assign(a, Timings{Renew: 5 * second, Timeout: 3 * second, Patience: 10 * second})
}

func first(a *assign.Assignment) { a.First = true }

func minRenewTime(seconds float64) func(*assign.Assignment) {
	return func(a *assign.Assignment) { a.MinRenewTime = wall(seconds) }
}

// show has a watch show the Lease in the member.
func (r *rig) show() { r.syncer.observe(r.there.DeepCopy()) }

func (r *rig) at(seconds float64) *rig {
	r.now = at(seconds)
	return r
}

// next fails the test unless the syncer's next request is this one.
func (r *rig) next(want string) *rig {
	r.t.Helper()
	r.syncer.known.watched = !r.blind
	r.pending = r.syncer.next(r.now, r.may, r.heard)
	if got := describe(r.pending); got != want {
		r.t.Fatalf("at %v the syncer wants to %s, want %s", r.now.Wall.Sub(zero), got, want)
	}
	return r
}

// describe puts a request into words: what it writes, with what renewTime, and what it promises.
func describe(s step) string {
	switch s.action {
	case idle:
		if s.after > 0 {
			return "wait " + s.after.String()
		}
		return "wait"
	case read:
		return "read"
	case remove:
		return "remove"
	}
	c, _ := wire.Read(s.lease)
	holder := strings.TrimSuffix(c.Holder, ".fleet")
	if holder == "" {
		holder = "nobody"
	}
	words := []string{map[action]string{create: "create", update: "update"}[s.action], holder, fmt.Sprint(c.Epoch)}
	words = append(words, "renewTime", c.RenewTime.Sub(zero).String())
	if c.Duration != 15*second {
		words = append(words, "for", c.Duration.String())
	}
	if s.promised > 0 {
		words = append(words, "promise", s.reading.Wall.Add(s.promised).Sub(zero).String())
	}
	if s.revokes != 0 {
		words = append(words, "revokes", fmt.Sprint(s.revokes))
	}
	return strings.Join(words, " ")
}

// carry does in the member what the pending request asks, as an API server would.
func (r *rig) carry() (*coordinationv1.Lease, error) {
	obj := r.pending.lease
	switch r.pending.action {
	case read:
		if r.there == nil {
			return nil, apierrors.NewNotFound(leases, "leasecast")
		}
		return r.there.DeepCopy(), nil
	case create:
		if r.there != nil {
			return nil, apierrors.NewAlreadyExists(leases, "leasecast")
		}
		r.there = obj.DeepCopy()
		r.uid++
		r.there.UID = types.UID("object-" + strconv.Itoa(r.uid))
		r.edit()
		return r.there.DeepCopy(), nil
	case update, remove:
		if r.there == nil {
			return nil, apierrors.NewNotFound(leases, "leasecast")
		}
		if r.there.UID != obj.UID || r.there.ResourceVersion != obj.ResourceVersion {
			return nil, apierrors.NewConflict(leases, "leasecast", errors.New("out of date"))
		}
		if r.pending.action == remove {
			r.there = nil
			return nil, nil
		}
		r.there = obj.DeepCopy()
		r.edit()
		return r.there.DeepCopy(), nil
	}
	r.t.Fatal("the syncer asks for nothing")
	return nil, nil
}

// answered carries the pending request out and hands its answer over.
func (r *rig) answered() *rig {
	r.t.Helper()
	return r.handed(r.carry())
}

// handed hands an answer over.
func (r *rig) handed(obj *coordinationv1.Lease, err error) *rig {
	r.t.Helper()
	if pause := r.syncer.handleAnswer(r.pending, obj, err); pause != 0 {
		r.t.Fatalf("after %s the syncer pauses for %v", describe(r.pending), pause)
	}
	return r
}

// failed hands an error over, after which the syncer must pause.
func (r *rig) failed(err error, pause time.Duration) *rig {
	r.t.Helper()
	if got := r.syncer.handleAnswer(r.pending, nil, err); got != pause {
		r.t.Fatalf("after %v the syncer pauses for %v, want %v", err, got, pause)
	}
	return r
}

// unanswered says that the pending request got no answer; done, that it was carried out.
func (r *rig) unanswered(done bool) *rig {
	r.t.Helper()
	if done {
		if _, err := r.carry(); err != nil {
			r.t.Fatal(err)
		}
	}
	return r.failed(errTimeout, pauseSilent)
}

// facts fails the test unless the status, without messages and marks, is this one.
func (r *rig) facts(want SyncStatus) *rig {
	r.t.Helper()
	got := r.syncer.status.withoutMessages()
	got.Marked, got.Unmarked = false, false
	if got != want {
		r.t.Fatalf("the status is %+v, want %+v", got, want)
	}
	return r
}

// leads brings the syncer of a leader to the point where its Lease was renewed at zero, in epoch 20.
func (r *rig) leads() *rig {
	r.t.Helper()
	r.assign(assign.Lead, term("east", 20), first)
	r.next("read").answered()
	r.next("create east 20 renewTime 0s promise 15s").answered()
	return r
}

// follows brings the syncer of a follower to the point where its Lease is in place.
func (r *rig) follows() *rig {
	r.t.Helper()
	r.assign(assign.Follow, term("west", 20))
	r.next("read").answered()
	r.next("create west 20 renewTime 0s").answered()
	return r.next("wait").facts(SyncStatus{InPlace: true})
}

func namespaces(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("team-%d", i)
	}
	return names
}
