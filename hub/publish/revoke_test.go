package publish

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/hub/assign"
)

func revoking(t lease.Term) func(*assign.Assignment) {
	return func(a *assign.Assignment) { a.Revoked = t }
}

// The syncer of a leader in epoch 20 revokes it. The last renewTime is zero.
func TestRevokedLease(t *testing.T) {
	play(t, `
the live Lease is replaced by one without a holder, which promises nothing
	leads; at 2; assign revoke nobody 21 revokes=20; update nobody 21 renewTime 2s revokes 20; ok; wait; status InPlace
an expired Lease stays
	leads; at 15; assign revoke nobody 21 revokes=20; wait; status none
a Lease of an earlier term stays
	leads; at 2; assign revoke nobody 23 revokes=22; wait
an edited Lease that promises no more stays
	leads; at 2; edit duration=10; shown; assign revoke nobody 21 revokes=20; wait
an edited Lease that promises more is repaired first
	leads; at 2; edit duration=60; shown; assign revoke nobody 21 revokes=20; update east 20 renewTime 0s promise 17s;
	ok; update nobody 21 renewTime 2s revokes 20
a missing Lease is not created
	leads; at 2; deleted; assign revoke nobody 21 revokes=20; read; ok; wait
a Lease that was renewed in the meantime is read and revoked
	leads; at 2; touched; assign revoke nobody 21 revokes=20; update nobody 21 renewTime 2s revokes 20; ok; read; ok;
	update nobody 21 renewTime 2s revokes 20; ok
nothing is revoked without the right to write
	leads; at 2; assign revoke nobody 21 revokes=20; may not; wait 100ms
a Lease without a seal does not show that it is revoked
	leads; at 2; assign revoke nobody 21 revokes=20; lease nobody 21 at 2 unsealed; shown; read; ok; wait; status none
`)
}

var ackTimings = Timings{Renew: 5 * second, Timeout: 3 * second, Skew: second, LongestPromise: 16 * second}

// register stores a registration in the member, and has a watch show it if the publisher is to know.
func (w *world) register(name string, changes ...func(*lease.Registration)) *coordinationv1.Lease {
	changes = append([]func(*lease.Registration){func(r *lease.Registration) { r.Confirmed = time.Now() }}, changes...)
	l := registered(name, 1, changes...)
	w.member.mu.Lock()
	defer w.member.mu.Unlock()
	return w.member.store(types.NamespacedName{Namespace: "pods", Name: name}, l).DeepCopy()
}

// ledFor brings a publisher to the point where it has led a namespace for so long.
func (w *world) ledFor(d time.Duration) {
	w.start()
	t := term("east", 20)
	t.AcquireTime = w.clock.Now().Wall
	w.Assign(keyOf("a"), assign.Assignment{Role: assign.Lead, Term: t, First: true}, ackTimings)
	after(d - 5*second)
	w.confirm()
	after(5 * second)
	w.leads("a")
}

// confirm has all readers confirm their registrations.
func (w *world) confirm() {
	w.member.mu.Lock()
	defer w.member.mu.Unlock()
	for key, l := range w.member.leases {
		if key.Namespace == "pods" {
			l = l.DeepCopy()
			l.Spec.RenewTime.Time = time.Now()
			w.member.store(key, l)
		}
	}
}

func (w *world) revoke() {
	w.Assign(keyOf("a"), assign.Assignment{Role: assign.Revoke, Term: term("", 21), Revoked: term("east", 20)}, ackTimings)
	after(0)
}

// isReleased fails the test unless the status shows that epoch 20 is released, or that it is not.
func (w *world) isReleased(want bool) {
	w.t.Helper()
	if got := w.SyncStatus(keyOf("a")).Released; (got == 20) != want || got != 0 && got != 20 {
		w.t.Fatalf("released is %d, want %v", got, want)
	}
}

const settled = 20 * second // longer than what happened before the start may count

func TestPublisherAsksReaders(t *testing.T) {
	bubble(t, map[string]func(*world){
		"a watch shows the release": func(w *world) {
			w.register("r")
			w.ledFor(settled)
			w.revoke()
			w.isReleased(false)
			w.ObserveReader(w.register("r", released("a", 20)))
			w.isReleased(true)
		},
		"a later list shows the release": func(w *world) {
			w.register("r")
			w.ledFor(settled)
			w.revoke()
			w.register("r", released("a", 20))
			after(2 * firstListPause)
			w.isReleased(true)
		},
		"a watch shows that the registration is gone": func(w *world) {
			w.register("r")
			w.ledFor(settled)
			w.revoke()
			w.ObserveReaderGone("r")
			w.isReleased(true)
		},
		"no reader is registered: not released": func(w *world) {
			w.ledFor(settled)
			w.revoke()
			after(10 * second)
			w.isReleased(false)
		},
		"the list is sent after the revocation": func(w *world) {
			w.register("r", released("a", 20))
			w.ledFor(settled)
			began := time.Now()
			w.revoke()
			rs := w.member.since(began)
			if len(rs) < 2 || rs[len(rs)-1].verb != "list" || count(rs, "update") != 1 {
				w.t.Errorf("sent %v", rs)
			}
		},
		"the revocation is unanswered, and found to be done: not released": func(w *world) {
			w.register("r", released("a", 20))
			w.ledFor(settled)
			w.member.becomes(nil, func(_ context.Context, r request) error {
				if r.verb == "update" {
					return errors.New("connection reset")
				}
				return nil
			})
			w.revoke()
			after(5 * second)
			if c, _ := w.member.has(keyOf("a")); c.Epoch != 21 {
				w.t.Errorf("%+v", c)
			}
			w.isReleased(false)
		},
		"soon after the start, when a restore may have lost readers: not released": func(w *world) {
			w.register("r", released("a", 20))
			w.ledFor(15 * second)
			w.revoke()
			after(second)
			w.isReleased(false)
		},
		"a reader with a longer registration may have been lost: not released": func(w *world) {
			w.register("r", released("a", 20), func(r *lease.Registration) { r.Duration = 60 * second })
			w.ledFor(settled)
			w.revoke()
			after(second)
			w.isReleased(false)
		},
		"a reader registers during a list, before the revocation: asked": func(w *world) {
			w.register("r", released("a", 20))
			w.ledFor(settled)
			listed := make(chan struct{})
			w.member.becomes(nil, func(_ context.Context, r request) error {
				if r.verb != "list" {
					return nil
				}
				w.member.becomes(nil, nil)
				close(listed)
				<-time.After(second) // less than readersTimeout
				return nil
			})
			<-listed
			w.register("late")
			w.revoke()
			if c, _ := w.member.has(keyOf("a")); c.Epoch != 21 {
				w.t.Errorf("%+v", c)
			}
			after(2 * second)
			w.isReleased(false)
			w.ObserveReader(w.register("late", released("a", 20)))
			w.isReleased(true)
		},
		"the next term is assigned: the release is forgotten": func(w *world) {
			w.register("r", released("a", 20))
			w.ledFor(settled)
			w.revoke()
			w.Assign(keyOf("a"), assign.Assignment{Role: assign.Follow, Term: term("west", 22)}, ackTimings)
			w.isReleased(false)
		},
	})
}

// back has the member show the versions and the state of its etcd before so many changes.
func (w *world) back(by int, change func(map[types.NamespacedName]*coordinationv1.Lease)) {
	w.member.mu.Lock()
	defer w.member.mu.Unlock()
	w.member.version -= by
	for key, obj := range w.member.leases {
		obj = obj.DeepCopy()
		version, _ := strconv.Atoi(obj.ResourceVersion)
		obj.ResourceVersion = strconv.Itoa(min(version, w.member.version))
		w.member.leases[key] = obj
	}
	change(w.member.leases)
}

func TestMemberThatShowsAnOlderState(t *testing.T) {
	nothing := func(map[types.NamespacedName]*coordinationv1.Lease) {}
	bubble(t, map[string]func(*world){
		"a list of readers is older than the revocation": func(w *world) {
			w.register("r")
			w.ledFor(settled)
			w.revoke()
			w.back(1, nothing)
			w.register("q")
			w.back(1, nothing)
			after(2 * second)
			w.ObserveReader(w.register("r", released("a", 20)))
			w.isReleased(false)
		},
		"D + ε after it showed an older state: released": func(w *world) {
			w.register("r", released("a", 20))
			w.ledFor(settled)
			w.back(1, nothing)
			after(6 * second) // a renewal notices
			w.confirm()
			after(12 * second)
			w.confirm()
			after(5 * second)
			w.revoke()
			after(second)
			w.isReleased(true)
		},
		"a reader is missing from the list": func(w *world) {
			w.ObserveReader(w.register("lost"))
			w.register("r", released("a", 20))
			w.ledFor(settled)
			w.member.delete(types.NamespacedName{Namespace: "pods", Name: "lost"})
			w.revoke()
			after(second)
			w.isReleased(false)
		},
	})
}

func TestPublisherRemovesExpiredRegistrations(t *testing.T) {
	left := func(w *world, name string) bool {
		w.member.mu.Lock()
		defer w.member.mu.Unlock()
		_, ok := w.member.leases[types.NamespacedName{Namespace: "pods", Name: name}]
		return ok
	}
	follow := func(w *world) {
		w.start()
		w.Assign(keyOf("b"), assign.Assignment{Role: assign.Follow, Term: term("west", 20)}, ackTimings)
	}
	bubble(t, map[string]func(*world){
		"expired: removed with its finalizer": func(w *world) {
			w.register("r")
			follow(w)
			after(40 * second)
			if left(w, "r") {
				w.t.Error("a dead registration is left")
			}
		},
		"confirmed every 5 s: stays": func(w *world) {
			follow(w)
			for range 10 {
				w.register("r")
				after(5 * second)
			}
			if !left(w, "r") {
				w.t.Error("a registration that is confirmed is gone")
			}
		},
		"confirmed during the deletion: stays": func(w *world) {
			w.register("r")
			follow(w)
			w.member.becomes(func(_ context.Context, r request) error {
				if r.verb == "delete" {
					w.register("r")
				}
				return nil
			}, nil)
			after(31 * second)
			if !left(w, "r") {
				w.t.Error("a registration that was confirmed is gone")
			}
		},
		"no right to write: stays": func(w *world) {
			w.register("r")
			follow(w)
			w.mayWrite(false)
			after(60 * second)
			if !left(w, "r") {
				w.t.Error("it was removed")
			}
		},
	})
}

// A registration that is confirmed between its deletion and the removal of its finalizer keeps the finalizer.
func TestFinalizerOfAConfirmedRegistrationStays(t *testing.T) {
	inBubble(t, func(w *world) {
		w.register("r")
		w.start()
		w.Assign(keyOf("b"), assign.Assignment{Role: assign.Follow, Term: term("west", 20)}, ackTimings)
		w.member.becomes(nil, func(_ context.Context, r request) error {
			if r.verb != "delete" {
				return nil
			}
			w.member.mu.Lock()
			defer w.member.mu.Unlock()
			key := readerKey
			l := w.member.leases[key].DeepCopy()
			says, err := wire.ReadRegistration(l)
			if err != nil {
				return err
			}
			says.Confirmed = time.Now()
			if err := wire.WriteRegistration(says, l); err != nil {
				return err
			}
			w.member.store(key, l)
			return nil
		})
		after(31 * second)
		w.member.mu.Lock()
		defer w.member.mu.Unlock()
		if l := w.member.leases[readerKey]; l == nil || len(l.Finalizers) == 0 {
			w.t.Error("the finalizer of a living reader was removed")
		}
	})
}
