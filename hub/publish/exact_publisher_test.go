package publish

import (
	"context"
	"slices"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/seal"
)

// seen is a Lease in the member that a watch shows, in a version of its own.
func (w *world) seen(namespace string, key seal.Key, changes ...func(*lease.Content)) *coordinationv1.Lease {
	changes = append(changes, func(c *lease.Content) { c.Namespace = namespace })
	w.member.put(contentOf(renewedAt(0, term("west", 20)), changes...), key)
	return w.member.lease(keyOf(namespace))
}

// calls returns the namespaces that the controller was called for since the last time.
func (w *world) calls() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := w.changed
	w.changed = nil
	return changed
}

// calledFor fails the test unless the controller was called for these namespaces since the last time.
func (w *world) calledFor(want ...string) {
	w.t.Helper()
	if got := w.calls(); !slices.Equal(got, want) {
		w.t.Errorf("the controller was called for %q, want %q", got, want)
	}
}

// refuses has the member refuse these requests.
func (w *world) refuses(verbs ...string) {
	w.member.becomes(func(_ context.Context, r request) error {
		if slices.Contains(verbs, r.verb) {
			return errForbidden
		}
		return nil
	}, nil)
}

// Rule 11: a hub that its Clusters leave removes its mark from all Leases.
func TestPublisherRelinquishes(t *testing.T) {
	relinquished := func(w *world, want bool) {
		w.t.Helper()
		if got := w.Relinquish(); got != want {
			w.t.Errorf("relinquished: %v, want %v", got, want)
		}
	}
	bubble(t, map[string]func(*world){
		"a watch shows a Lease without a mark: once the member was read": func(w *world) {
			w.Observe(w.seen("a", testKey, by("")))
			relinquished(w, false)
			w.start()
			relinquished(w, true)
		},
		"no Lease: at once, and none is created later": func(w *world) {
			w.start()
			relinquished(w, true)
			w.assignLead("a", 20)
			after(0)
			if c, exists := w.member.has(keyOf("a")); exists {
				w.t.Errorf("a Lease was created: %+v", c)
			}
		},
		"one Lease of several has a mark: once it is removed": func(w *world) {
			for _, ns := range namespaces(10) {
				w.seen(ns, testKey, by(""))
			}
			w.seen("a", testKey)
			w.start()
			relinquished(w, false)
			after(0)
			relinquished(w, true)
			if c, exists := w.member.has(keyOf("a")); !exists || c.Hub != "" {
				w.t.Errorf("the Lease exists: %v, with %+v", exists, c)
			}
		},
		"a Lease has to be read again: not yet": func(w *world) {
			w.seen("a", testKey, by(""))
			w.start()
			w.member.becomes(swallow, nil)
			w.ObserveGone(keyOf("a"))
			relinquished(w, false)
		},
	})
}

func TestWhatIsFoundInTheMember(t *testing.T) {
	for name, test := range map[string]struct {
		do            func(*world)
		ours, others  bool // Remaining
		found, sealed bool // Find
		listed        bool // Leases
	}{
		"nothing":      {do: func(*world) {}},
		"not read yet": {do: func(w *world) { w.assignFollow("a") }, ours: true, listed: true},
		"the own Lease": {do: func(w *world) { w.Observe(w.seen("a", testKey)) }, ours: true, found: true, sealed: true,
			listed: true},
		"an edited Lease": {do: func(w *world) { w.Observe(w.seen("a", otherKey)) }, ours: true, found: true, listed: true},
		"another hub's": {do: func(w *world) { w.Observe(w.seen("a", otherKey, by("another"))) }, others: true, found: true,
			listed: true},
		"another client's": {do: func(w *world) {
			obj := w.seen("a", testKey)
			obj.Labels, obj.Annotations = nil, nil
			w.Observe(obj)
		}, found: true, listed: true},
		"removed": {do: func(w *world) {
			w.start()
			w.Assign(keyOf("a"), assign.Assignment{Role: assign.Absent}, testTimings)
			after(0)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				test.do(w)
				if ours, others := w.Remaining(); ours != test.ours || others != test.others {
					w.t.Errorf("remaining are ours: %v, others': %v", ours, others)
				}
				if c, sealed, ok := w.Find(keyOf("a")); ok != test.found || sealed != test.sealed || ok == (c == lease.Content{}) {
					w.t.Errorf("found %+v, sealed %v, %v", c, sealed, ok)
				}
				if got := w.Leases(); slices.Contains(got, keyOf("a")) != test.listed {
					w.t.Errorf("Leases: %v", got)
				}
			})
		})
	}
}

// A syncer is forgotten once it has nothing to do.
func TestWhichSyncerIsForgotten(t *testing.T) {
	own, other := keyOf("a"), keyOf("b")
	for name, test := range map[string]struct {
		change func(*world, *leaseSyncer)
		stays  bool
	}{
		"nothing to do":              {func(*world, *leaseSyncer) {}, false},
		"holding":                    {func(_ *world, l *leaseSyncer) { l.want.Role = assign.Hold }, false},
		"another one is the prober":  {func(w *world, _ *leaseSyncer) { w.prober = &other }, false},
		"it is the prober":           {func(w *world, _ *leaseSyncer) { w.prober = &own }, true},
		"it is parked":               {func(w *world, l *leaseSyncer) { w.park(own, l) }, true},
		"it has a Lease to write":    {func(_ *world, l *leaseSyncer) { l.want.Role = assign.Follow }, true},
		"its Lease has to be read":   {func(_ *world, l *leaseSyncer) { l.known.read = false }, true},
		"its Lease exists":           {func(_ *world, l *leaseSyncer) { l.known.lease = &coordinationv1.Lease{} }, true},
		"it is of another namespace": {func(_ *world, l *leaseSyncer) { l.namespace = "c" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				l := w.syncer(own)
				l.want.Role, l.known.read = assign.Absent, true
				test.change(w, l)
				w.syncers = syncers{}
				w.syncers.add(l)
				w.Forget("a")
				if stays := len(w.syncers) == 1; stays != test.stays {
					w.t.Errorf("it stays: %v, want %v", stays, test.stays)
				}
			})
		})
	}
}

// Rule 1: a renewal without a read before it is sent only to a member that has answered within 200 ms.
func TestRenewalWithoutRead(t *testing.T) {
	for name, test := range map[string]struct {
		answered func(*world)
		want     action
	}{
		"answered 200 ms ago":  {func(w *world) { w.lastAnswer -= answeredWithin }, update},
		"answered 1 ns before": {func(w *world) { w.lastAnswer -= answeredWithin + 1 }, read},
		"never answered":       {func(w *world) { w.hasAnswered = false }, read},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				led, ago := term("east", 20), w.clock.Now().Wall.Add(-6*second)
				led.AcquireTime, led.RenewTime = ago, ago
				w.Observe(w.seen("a", testKey, func(c *lease.Content) { c.Term = led }))
				w.Assign(keyOf("a"), assign.Assignment{Role: assign.Lead, Term: led}, ackTimings)
				w.hasAnswered, w.lastAnswer = true, w.clock.Now().Boot
				test.answered(w)
				if s, _ := w.nextStep(keyOf("a")); s.action != test.want {
					w.t.Errorf("the syncer wants to %s", describe(s))
				}
				if test.want == update && w.promised("a").Skew != ackTimings.Skew {
					w.t.Errorf("promised: %+v", w.promised("a"))
				}
			})
		})
	}
}

func TestWhenTheControllerIsCalled(t *testing.T) {
	for name, release := range map[string]func(*world){
		"shown by a watch":            func(w *world) { w.ObserveReader(w.register("r", released("a", 20))) },
		"the registration is deleted": func(w *world) { w.ObserveReaderGone("r") },
		"found by the next list": func(w *world) {
			w.register("r", released("a", 20))
			after(2 * firstListPause)
		},
	} {
		t.Run("a reader's release, "+name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.register("r")
				w.ledFor(settled)
				w.revoke()
				w.calls()
				release(w)
				w.calledFor("a")
			})
		})
	}
	bubble(t, map[string]func(*world){
		"a watch shows a Lease: the first time": func(w *world) {
			obj := w.seen("a", testKey)
			w.Observe(obj)
			w.calledFor("a")
			w.Observe(obj)
			w.calledFor()
		},
		"a Lease is written: once nothing is left to do": func(w *world) {
			w.start()
			w.calls()
			w.assignFollow("a")
			after(0)
			w.calledFor("a")
		},
		"a Lease is being written: not yet": func(w *world) {
			w.assignFollow("a")
			w.syncer(keyOf("a")).status.PoisonedEpoch = 7
			s, _ := w.nextStep(keyOf("a"))
			w.calledFor()
			obj, err := w.send(w.t.Context(), keyOf("a"), s, second)
			if !w.handleAnswer(keyOf("a"), s, obj, err) {
				w.t.Error("the syncer does not go on")
			}
			w.calledFor()
		},
		"a Lease is refused: once": func(w *world) {
			w.start()
			w.calls()
			w.refuses("create")
			w.assignFollow("a")
			after(5 * second)
			w.calledFor("a")
		},
	})
}

// StopRenewing takes nothing from a follower.
func TestFollowersLeaseIsKeptAfterRenewalsStop(t *testing.T) {
	inBubble(t, func(w *world) {
		w.start()
		w.assignFollow("a")
		after(0)
		w.StopRenewing("a")
		w.member.delete(keyOf("a"))
		w.ObserveGone(keyOf("a"))
		after(0)
		if _, exists := w.member.has(keyOf("a")); !exists {
			w.t.Error("it was not created again")
		}
	})
}
