package publish

import (
	"context"
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/seal"
)

// rewrite stores the Lease of namespace a anew, changed and under a later version, without a word of a watch. The
// syncer reads it.
func (w *world) rewrite(key seal.Key, change func(*lease.Content)) {
	w.t.Helper()
	w.member.mu.Lock()
	obj := w.member.leases[keyOf("a")].DeepCopy()
	c, _ := wire.Read(obj)
	change(&c)
	if err := seal.Write(key, c, obj); err != nil {
		w.t.Fatal(err)
	}
	w.member.store(keyOf("a"), obj)
	w.member.mu.Unlock()
	w.ObserveGone(keyOf("a"))
	after(0)
}

// removed has somebody delete the Lease of namespace a, which the publisher then makes again, and returns what there
// was.
func (w *world) removed() *coordinationv1.Lease {
	w.t.Helper()
	w.member.mu.Lock()
	old := w.member.leases[keyOf("a")]
	delete(w.member.leases, keyOf("a"))
	w.member.mu.Unlock()
	w.ObserveGone(keyOf("a"))
	after(0)
	w.leads("a")
	return old
}

// registers has so many changes of registrations stored, all of which have released what is asked for, and returns the
// last.
func (w *world) registers(n int) (last *coordinationv1.Lease) {
	for range n {
		last = w.register("other", released("a", 20))
	}
	return last
}

// catchUp has the member give as many versions as it had before, right after the next update was carried out: nothing
// that is asked later shows that it went back.
func (w *world) catchUp(n int) {
	w.member.becomes(nil, func(_ context.Context, r request) error {
		if r.verb == "update" {
			w.registers(n)
		}
		return nil
	})
}

// Releases count only if all who act are known to be registered. After a restore of the member's etcd they may not be.
// Each sign of a restore suffices.
func TestReleasesCount(t *testing.T) {
	keep := func(map[types.NamespacedName]*coordinationv1.Lease) {}
	for name, test := range map[string]struct {
		happens  func(*world)
		released bool
	}{
		"released before the revocation": {func(*world) {}, true},
		"an unanswered request may still create a leader's Lease": {func(w *world) {
			w.member.becomes(nil, func(_ context.Context, r request) error {
				if r.verb == "create" {
					return errors.New("connection reset")
				}
				return nil
			})
			w.member.delete(keyOf("a"))
			w.ObserveGone(keyOf("a"))
			after(second)
			w.leads("a")
			w.member.becomes(nil, nil)
		}, false},
		"readers may have accepted an edit with a higher epoch": {func(w *world) {
			w.rewrite(otherKey, func(c *lease.Content) { c.Epoch = 22 })
			after(second)
			w.leads("a")
		}, false},
		"a write is answered by an older version than is known": {func(w *world) {
			for range 20 {
				w.ObserveReader(w.register("other", released("a", 20)))
			}
			w.back(10, keep)
		}, false},
		"a Lease has an older version": {func(w *world) { w.back(1, keep) }, false},
		"a registration differs in the version that is known": {func(w *world) {
			w.ObserveReader(w.register("other", released("a", 20)))
			w.back(0, func(leases map[types.NamespacedName]*coordinationv1.Lease) {
				other := types.NamespacedName{Namespace: "pods", Name: "other"}
				leases[other].Spec.RenewTime.Time = leases[other].Spec.RenewTime.Add(second)
			})
		}, false},
		"readers registered": {func(w *world) { w.ObserveReader(w.registers(20)) }, true},
		"the revocation is answered by an older version than a watch of readers showed": {func(w *world) {
			w.ObserveReader(w.registers(20))
			w.back(10, keep)
			w.catchUp(20)
		}, false},
		"the revocation is answered by an older version than a watch of Leases showed": {func(w *world) {
			w.registers(20)
			w.member.put(contentOf(renewedAt(0, term("west", 7)), func(c *lease.Content) { c.Namespace = "b" }), testKey)
			w.Observe(w.member.lease(keyOf("b")))
			w.back(10, func(leases map[types.NamespacedName]*coordinationv1.Lease) { delete(leases, keyOf("b")) })
			w.catchUp(20)
		}, false},
		"a sealed Lease has an earlier renewTime, in whatever version": {func(w *world) {
			w.rewrite(testKey, func(c *lease.Content) { c.RenewTime = c.RenewTime.Add(-5 * second) })
		}, false},
		"an object is back that was deleted": {func(w *world) {
			old := w.removed()
			w.member.mu.Lock()
			w.member.leases[keyOf("a")] = old
			w.member.mu.Unlock()
			w.ObserveGone(keyOf("a"))
			after(0)
		}, false},
		"the Lease was deleted, and created again": {func(w *world) { w.removed() }, true},
		"a Lease without a seal has an earlier renewTime: an edit": {func(w *world) {
			w.rewrite(seal.Key("another key for tests of 32 byte"),
				func(c *lease.Content) { c.RenewTime = c.RenewTime.Add(-5 * second) })
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.register("r", released("a", 20))
				w.ledFor(settled)
				test.happens(w)
				w.revoke()
				after(second)
				w.isReleased(test.released)
			})
		})
	}
}

// What readers have said before a restore may be older than what they do.
func TestRestoreRevertsReleases(t *testing.T) {
	inBubble(t, func(w *world) {
		w.register("r", released("a", 20))
		w.ledFor(settled)
		w.revoke()
		w.isReleased(true)
		w.ObserveReader(w.registers(20))
		w.back(10, func(map[types.NamespacedName]*coordinationv1.Lease) {})
		w.assignFollow("b") // another Lease's answer shows it
		after(0)
		w.isReleased(false)
	})
}

// A registration goes ε after its end, by the largest ε of any Lease: its process may live by as wrong a clock.
func TestExpiredRegistrationStaysForTheLargestSkew(t *testing.T) {
	const round = listReadersEvery / second // readers are listed at the multiples of it
	assign := func(w *world, namespace string, skew time.Duration) {
		w.Assign(keyOf(namespace), assign.Assignment{Role: assign.Follow, Term: term("west", 20)},
			Timings{Renew: 5 * second, Timeout: 3 * second, Skew: skew})
	}
	for name, test := range map[string]struct {
		assigned func(*world)
		goes     time.Duration // in which round; it ends 27 s after the start
	}{
		"that is small":                       {func(w *world) { assign(w, "b", second) }, 2},
		"that is large":                       {func(w *world) { assign(w, "b", 5*second) }, 3},
		"though the last Lease has a smaller": {func(w *world) { assign(w, "b", 5*second); assign(w, "c", second) }, 3},
		"though that Lease has a smaller now": {func(w *world) { assign(w, "b", 5*second); assign(w, "b", second) }, 3},
		"or for the largest that is probable": {func(*world) {}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.start()
				test.assigned(w)
				after(12 * second)
				w.ObserveReader(w.register("r"))
				after(3*second + time.Millisecond)
				for n := time.Duration(1); ; n++ {
					w.member.mu.Lock()
					left := w.member.leases[readerKey] != nil
					w.member.mu.Unlock()
					if left != (n < test.goes) {
						w.t.Fatalf("%d s after the start it is left: %v, want it to go after %d s", n*round, left, test.goes*round)
					}
					if !left {
						break
					}
					after(listReadersEvery)
				}
			})
		})
	}
}
