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

// The syncer of a leader in epoch 20 is to revoke it. Its last renewTime is of zero.
func TestASyncerRevokes(t *testing.T) {
	revoke := func(r *rig) { r.assign(assign.Revoke, term("", 21), revoking(term("east", 20))) }
	for name, test := range map[string]func(*rig){
		"the live Lease gives way to nobody's": func(r *rig) {
			r.leads().at(2)
			revoke(r)
			r.next("update nobody 21 renewTime 2s for 15s").answered()
			r.next("wait").facts(SyncStatus{InPlace: true})
		},
		"it promises nothing": func(r *rig) {
			r.leads().at(2)
			revoke(r)
			r.next("update nobody 21 renewTime 2s for 15s")
			if r.pending.promised != 0 || r.pending.revokes != 20 {
				r.t.Errorf("%+v", r.pending)
			}
		},
		"an expired Lease stays as it is": func(r *rig) {
			r.leads().at(15)
			revoke(r)
			r.next("wait").facts(SyncStatus{})
		},
		"so does one of an earlier term": func(r *rig) {
			r.leads().at(2)
			r.assign(assign.Revoke, term("", 23), revoking(term("east", 22)))
			r.next("wait")
		},
		"so does an edited one that promises nothing more": func(r *rig) {
			r.leads().at(2)
			r.edit(func(l *coordinationv1.Lease) { *l.Spec.LeaseDurationSeconds = 10 })
			r.show()
			revoke(r)
			r.next("wait")
		},
		"one that was edited to promise more is put right first": func(r *rig) {
			r.leads().at(2)
			r.edit(func(l *coordinationv1.Lease) { *l.Spec.LeaseDurationSeconds = 60 })
			r.show()
			revoke(r)
			r.next("update east 20 renewTime 0s for 15s promise 17s").answered()
			r.next("update nobody 21 renewTime 2s for 15s")
		},
		"a missing one is not made": func(r *rig) {
			r.leads().at(2)
			r.there = nil
			r.syncer.observeGone()
			revoke(r)
			r.next("read").answered()
			r.next("wait")
		},
		"one that was renewed meanwhile is read, and revoked": func(r *rig) {
			r.leads().at(2)
			r.edit()
			revoke(r)
			r.next("update nobody 21 renewTime 2s for 15s")
			_, err := r.carry()
			if pause := r.syncer.handleAnswer(r.pending, nil, err); pause != 0 {
				r.t.Errorf("pauses for %v", pause)
			}
			r.next("read").answered()
			r.next("update nobody 21 renewTime 2s for 15s").answered()
		},
		"nothing is revoked without the right to write": func(r *rig) {
			r.leads().at(2)
			revoke(r)
			r.may = false
			r.next("wait " + pauseSilent.String())
		},
	} {
		t.Run(name, func(t *testing.T) { test(newRig(t)) })
	}
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

// isReleased fails the test unless the facts say so, or say that it is not.
func (w *world) isReleased(want bool) {
	w.t.Helper()
	if got := w.SyncStatus(keyOf("a")).Released; (got == 20) != want || got != 0 && got != 20 {
		w.t.Fatalf("released is %d, want %v", got, want)
	}
}

const settled = 20 * second // longer than what happened before the start may count

func TestPublisherAsksReaders(t *testing.T) {
	bubble(t, map[string]func(*world){
		"who have released it already": func(w *world) {
			w.register("r", released("a", 20))
			w.ledFor(settled)
			w.revoke()
			w.isReleased(true)
			w.stop()
		},
		"and hears of a release by a watch": func(w *world) {
			w.register("r")
			w.ledFor(settled)
			w.revoke()
			w.isReleased(false)
			w.ObserveReader(w.register("r", released("a", 20)))
			w.isReleased(true)
			w.stop()
		},
		"or by asking again": func(w *world) {
			w.register("r")
			w.ledFor(settled)
			w.revoke()
			w.register("r", released("a", 20))
			after(2 * firstListPause)
			w.isReleased(true)
			w.stop()
		},
		"or of the end of a registration": func(w *world) {
			w.register("r")
			w.ledFor(settled)
			w.revoke()
			w.ObserveReaderGone("r")
			w.isReleased(true)
			w.stop()
		},
		"in vain where nobody is registered": func(w *world) {
			w.ledFor(settled)
			w.revoke()
			after(10 * second)
			w.isReleased(false)
			w.stop()
		},
		"after the revocation": func(w *world) {
			w.register("r", released("a", 20))
			w.ledFor(settled)
			began := time.Now()
			w.revoke()
			rs := w.member.since(began)
			if len(rs) < 2 || rs[len(rs)-1].verb != "list" || count(rs, "update") != 1 {
				w.t.Errorf("sent %v", rs)
			}
			w.stop()
		},
		"not after a revocation without an answer, even if it is found to be done": func(w *world) {
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
			w.stop()
		},
		"not soon after the start: readers may have been lost by a restore before": func(w *world) {
			w.register("r", released("a", 20))
			w.ledFor(15 * second)
			w.revoke()
			after(second)
			w.isReleased(false)
			w.stop()
		},
		"not while one who registered for longer may have been lost": func(w *world) {
			w.register("r", released("a", 20), func(r *lease.Registration) { r.Duration = 60 * second })
			w.ledFor(settled)
			w.revoke()
			after(second)
			w.isReleased(false)
			w.stop()
		},
		"not while a request without an answer may still make a leader's Lease": func(w *world) {
			w.register("r", released("a", 20))
			w.ledFor(settled)
			w.member.becomes(nil, func(_ context.Context, r request) error {
				if r.verb == "create" {
					return errors.New("connection reset")
				}
				return nil
			})
			w.member.mu.Lock()
			delete(w.member.leases, keyOf("a"))
			w.member.mu.Unlock()
			w.ObserveGone(keyOf("a"))
			after(second)
			w.leads("a")
			w.member.becomes(nil, nil)
			w.revoke()
			after(second)
			w.isReleased(false)
			w.stop()
		},
		"not where readers may believe an edit with a higher epoch": func(w *world) {
			w.register("r", released("a", 20))
			w.ledFor(settled)
			w.member.mu.Lock()
			obj := w.member.leases[keyOf("a")].DeepCopy()
			*obj.Spec.LeaseTransitions = 22
			obj = w.member.store(keyOf("a"), obj).DeepCopy()
			w.member.mu.Unlock()
			w.Observe(obj)
			after(second)
			w.leads("a")
			w.revoke()
			after(second)
			w.isReleased(false)
			w.stop()
		},
		"a reader that registers during a list, before the revocation, is asked": func(w *world) {
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
			w.stop()
		},
		"and forgets the answer with the question": func(w *world) {
			w.register("r", released("a", 20))
			w.ledFor(settled)
			w.revoke()
			w.Assign(keyOf("a"), assign.Assignment{Role: assign.Follow, Term: term("west", 22)}, ackTimings)
			w.isReleased(false)
			w.stop()
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

func TestAMemberThatShowsAnOlderStateIsDistrusted(t *testing.T) {
	nothing := func(map[types.NamespacedName]*coordinationv1.Lease) {}
	bubble(t, map[string]func(*world){
		"a write that gets an older version than was known": func(w *world) {
			w.register("r", released("a", 20))
			w.ledFor(settled)
			for range 20 {
				w.ObserveReader(w.register("other", released("a", 20)))
			}
			w.back(10, nothing)
			w.revoke()
			after(second)
			w.isReleased(false)
			w.stop()
		},
		"a Lease of an older version": func(w *world) {
			w.register("r", released("a", 20))
			w.ledFor(settled)
			w.back(1, nothing)
			w.revoke()
			after(second)
			if c, _ := w.member.has(keyOf("a")); c.Epoch != 21 {
				w.t.Errorf("%+v", c)
			}
			w.isReleased(false)
			w.stop()
		},
		"a list of readers that is older than the revocation": func(w *world) {
			w.register("r")
			w.ledFor(settled)
			w.revoke()
			w.back(1, nothing)
			w.register("q")
			w.back(1, nothing)
			after(2 * second)
			w.ObserveReader(w.register("r", released("a", 20)))
			w.isReleased(false)
			w.stop()
		},
		"a registration that says something else in the version that is known": func(w *world) {
			w.register("r", released("a", 20))
			w.ledFor(settled)
			w.ObserveReader(w.register("other", released("a", 20)))
			w.back(0, func(leases map[types.NamespacedName]*coordinationv1.Lease) {
				for key, obj := range leases {
					if key.Name == "other" {
						obj.Spec.RenewTime.Time = obj.Spec.RenewTime.Add(second)
						leases[key] = obj
					}
				}
			})
			w.revoke()
			after(second)
			w.isReleased(false)
			w.stop()
		},
		"for D + ε": func(w *world) {
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
			w.stop()
		},
		"in which a reader is not found that was there": func(w *world) {
			w.ObserveReader(w.register("lost"))
			w.register("r", released("a", 20))
			w.ledFor(settled)
			w.member.mu.Lock()
			delete(w.member.leases, types.NamespacedName{Namespace: "pods", Name: "lost"})
			w.member.mu.Unlock()
			w.revoke()
			after(second)
			w.isReleased(false)
			w.stop()
		},
	})
}

func TestPublisherRemovesDeadReaders(t *testing.T) {
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
		"whose time is over, with the finalizer that keeps them": func(w *world) {
			w.register("r")
			follow(w)
			after(40 * second)
			if left(w, "r") {
				w.t.Error("a dead registration is left")
			}
			w.stop()
		},
		"and nobody else": func(w *world) {
			follow(w)
			for range 10 {
				w.register("r")
				after(5 * second)
			}
			if !left(w, "r") {
				w.t.Error("a registration that is confirmed is gone")
			}
			w.stop()
		},
		"one that is confirmed at the last moment stays": func(w *world) {
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
			w.stop()
		},
		"not without the right to write": func(w *world) {
			w.register("r")
			follow(w)
			w.mu.Lock()
			w.mayNot = true
			w.mu.Unlock()
			after(60 * second)
			if !left(w, "r") {
				w.t.Error("it was removed")
			}
			w.stop()
		},
	})
}

// A registration that was confirmed between its deletion and the removal of its finalizer keeps that.
func TestPublisherKeepsTheFinalizerOfTheLiving(t *testing.T) {
	bubble(t, map[string]func(*world){"": func(w *world) {
		w.register("r")
		w.start()
		w.Assign(keyOf("b"), assign.Assignment{Role: assign.Follow, Term: term("west", 20)}, ackTimings)
		w.member.becomes(nil, func(_ context.Context, r request) error {
			if r.verb != "delete" {
				return nil
			}
			w.member.mu.Lock()
			defer w.member.mu.Unlock()
			key := types.NamespacedName{Namespace: "pods", Name: "r"}
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
		if l := w.member.leases[types.NamespacedName{Namespace: "pods", Name: "r"}]; l == nil || len(l.Finalizers) == 0 {
			w.t.Error("the finalizer of a living reader was removed")
		}
		w.cancel()
	}})
}
