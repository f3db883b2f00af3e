package publish

import (
	"context"
	"slices"
	"testing"

	"github.com/go-logr/logr/funcr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/seal"
)

// unstarted runs tests in bubbles of their own, of publishers that need not run.
func unstarted(t *testing.T, tests map[string]func(*world)) {
	t.Helper()
	for name, test := range tests {
		bubble(t, map[string]func(*world){name: func(w *world) {
			defer w.Queue.ShutDown()
			test(w)
		}})
	}
}

// observations is a Lease of namespace ns in the member that a watch shows, in a version of its own.
func (w *world) seen(namespace string, key seal.Key, changes ...func(*lease.Content)) *coordinationv1.Lease {
	w.member.put(contentOf(renewedAt(0, term("west", 20)), append(changes, func(c *lease.Content) { c.Namespace = namespace })...), key)
	w.member.mu.Lock()
	defer w.member.mu.Unlock()
	return w.member.leases[keyOf(namespace)].DeepCopy()
}

// reported returns what the controller was told of since it was asked last.
func (w *world) told() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := w.changed
	w.changed = nil
	return changed
}

// isTold fails the test unless the controller was told of these namespaces since it was asked last.
func (w *world) isTold(want ...string) {
	w.t.Helper()
	if got := w.told(); !slices.Equal(got, want) {
		w.t.Errorf("the controller was told of %q, want %q", got, want)
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

// Rule 11: the hub that its Clusters leave says on the Leases that it has stopped.
func TestAPublisherRelinquishes(t *testing.T) {
	departs := func(w *world, want bool) {
		w.t.Helper()
		if got := w.Relinquish(); got != want {
			w.t.Errorf("it has departed: %v, want %v", got, want)
		}
	}
	unstarted(t, map[string]func(*world){
		"not before the member was read, whatever a watch has shown": func(w *world) {
			w.Observe(w.seen("a", testKey, by("")))
			departs(w, false)
			w.start()
			departs(w, true)
			w.stop()
		},
		"at once where nothing is": func(w *world) {
			w.start()
			departs(w, true)
			w.stop()
		},
		"once every mark is off": func(w *world) {
			for _, ns := range namespaces(10) {
				w.seen(ns, testKey, by(""))
			}
			w.seen("a", testKey)
			w.start()
			departs(w, false)
			after(0)
			departs(w, true)
			if c, there := w.member.has(keyOf("a")); !there || c.Hub != "" {
				w.t.Errorf("the Lease is there: %v, and says %+v", there, c)
			}
			w.stop()
		},
		"not while a Lease is in doubt": func(w *world) {
			w.seen("a", testKey, by(""))
			w.start()
			w.member.becomes(swallow, nil)
			w.ObserveGone(keyOf("a"))
			departs(w, false)
			w.stop()
		},
		"and makes no Lease that is assigned later": func(w *world) {
			w.start()
			departs(w, true)
			w.assignLead("a", 20)
			after(0)
			if c, there := w.member.has(keyOf("a")); there {
				w.t.Errorf("a Lease was made: %+v", c)
			}
			w.stop()
		},
	})
}

func TestWhatIsFoundAndLeft(t *testing.T) {
	left := func(w *world, ours, others bool) {
		w.t.Helper()
		if o, t := w.Remaining(); o != ours || t != others {
			w.t.Errorf("left are ours: %v, others': %v; want %v, %v", o, t, ours, others)
		}
	}
	unstarted(t, map[string]func(*world){
		"nothing where there is nothing": func(w *world) {
			left(w, false, false)
			if c, sealed, ok := w.Find(keyOf("a")); ok || sealed || c != (lease.Content{}) {
				w.t.Errorf("found %+v, sealed %v, %v", c, sealed, ok)
			}
		},
		"what was never read may be ours": func(w *world) {
			w.assignFollow("a")
			left(w, true, false)
			if got := w.Leases(); !slices.Equal(got, []types.NamespacedName{keyOf("a")}) {
				w.t.Errorf("Leases: %v", got)
			}
		},
		"our Lease": func(w *world) {
			w.Observe(w.seen("a", testKey))
			left(w, true, false)
			if c, sealed, ok := w.Find(keyOf("a")); !ok || !sealed || c.Holder != "west.fleet" {
				w.t.Errorf("found %+v, sealed %v, %v", c, sealed, ok)
			}
		},
		"what says so without the seal is found without it": func(w *world) {
			w.Observe(w.seen("a", otherKey))
			if c, sealed, ok := w.Find(keyOf("a")); !ok || sealed || c.Holder != "west.fleet" {
				w.t.Errorf("found %+v, sealed %v, %v", c, sealed, ok)
			}
		},
		"another hub's Lease": func(w *world) {
			w.Observe(w.seen("a", otherKey, by("another")))
			left(w, false, true)
		},
		"not what nobody of us made": func(w *world) {
			obj := w.seen("a", testKey)
			obj.Labels, obj.Annotations = nil, nil
			w.Observe(obj)
			left(w, false, false)
		},
		"not what was removed": func(w *world) {
			w.start()
			w.Assign(keyOf("a"), assign.Assignment{Role: assign.Absent}, testTimings)
			after(0)
			left(w, false, false)
			if got := w.Leases(); len(got) > 0 {
				w.t.Errorf("Leases: %v", got)
			}
			w.stop()
		},
	})
}

func TestASyncerIsForgotten(t *testing.T) {
	other := keyOf("b")
	for name, test := range map[string]struct {
		change func(*world, *leaseSyncer)
		stays  bool
	}{
		"if it has nothing to do": {func(*world, *leaseSyncer) {}, false},
		"or holds":                {func(_ *world, l *leaseSyncer) { l.want.Role = assign.Hold }, false},
		"also while another asks whether the member's silence is over": {func(w *world, _ *leaseSyncer) { w.prober = &other }, false},
		"not while it does":                   {func(w *world, _ *leaseSyncer) { w.prober = &types.NamespacedName{Namespace: "a", Name: "leasecast"} }, true},
		"nor while it waits for that":         {func(w *world, l *leaseSyncer) { w.park(keyOf("a"), l) }, true},
		"nor while it has a Lease to write":   {func(_ *world, l *leaseSyncer) { l.want.Role = assign.Follow }, true},
		"nor before it knows what is there":   {func(_ *world, l *leaseSyncer) { l.known.read = false }, true},
		"nor while something is there":        {func(_ *world, l *leaseSyncer) { l.known.lease = &coordinationv1.Lease{} }, true},
		"nor with what is left of another ns": {func(_ *world, l *leaseSyncer) { l.namespace = "c" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			unstarted(t, map[string]func(*world){"": func(w *world) {
				l := w.syncer(keyOf("a"))
				l.want.Role, l.known.read = assign.Absent, true
				test.change(w, l)
				if l.namespace != "a" {
					w.syncers = syncers{}
					w.syncers.add(l)
				}
				w.Forget("a")
				if stays := len(w.syncers) == 1; stays != test.stays {
					w.t.Errorf("it stays: %v, want %v", stays, test.stays)
				}
			}})
		})
	}
}

// While a member is silent one syncer asks; when it has nothing to ask, one other does.
func TestWhoAsksASilentMember(t *testing.T) {
	unstarted(t, map[string]func(*world){
		"a syncer is put by once, and can be again": func(w *world) {
			l := w.syncer(keyOf("a"))
			for range 2 {
				w.park(keyOf("a"), l)
				w.park(keyOf("a"), l)
				if !l.parked || len(w.parked) != 1 {
					w.t.Errorf("%v wait, parked %v", w.parked, l.parked)
				}
				w.unpark(1)
				if l.parked || len(w.parked) != 0 {
					w.t.Errorf("%v wait, parked %v", w.parked, l.parked)
				}
			}
		},
		"one that has nothing to ask leaves it to the one that waits longest": func(w *world) {
			for _, ns := range []string{"a", "b", "c"} {
				w.park(keyOf(ns), w.syncer(keyOf(ns)))
			}
			w.chooseProber(keyOf("d"), true)
			if w.prober == nil || *w.prober != keyOf("d") || w.Queue.Len() != 0 {
				w.t.Errorf("%v asks, %d are to go on", w.prober, w.Queue.Len())
			}
			w.chooseProber(keyOf("d"), false)
			if w.prober != nil || w.Queue.Len() != 1 || !slices.Equal(w.parked, []types.NamespacedName{keyOf("b"), keyOf("c")}) {
				w.t.Errorf("%v asks, %d are to go on, %v wait", w.prober, w.Queue.Len(), w.parked)
			}
		},
		"nobody once it answers": func(w *world) {
			w.chooseProber(keyOf("a"), true)
			w.noteOutcome(false, w.clock.Now(), nil)
			if w.prober != nil {
				w.t.Errorf("%v asks", w.prober)
			}
		},
	})
}

// A promise is made without a read only where the member has just answered.
func TestWhenTheMemberHasJustAnswered(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*world)
		want   action
	}{
		"200 ms ago":           {func(w *world) { w.hasAnswered, w.lastAnswer = true, w.clock.Now().Boot-answeredWithin }, update},
		"not longer ago":       {func(w *world) { w.hasAnswered, w.lastAnswer = true, w.clock.Now().Boot-answeredWithin-1 }, read},
		"nor if it has never ": {func(*world) {}, read},
	} {
		t.Run(name, func(t *testing.T) {
			unstarted(t, map[string]func(*world){"": func(w *world) {
				now := w.clock.Now().Wall
				led := term("east", 20)
				led.AcquireTime, led.RenewTime = now.Add(-6*second), now.Add(-6*second)
				w.Observe(w.seen("a", testKey, func(c *lease.Content) { c.Term = led }))
				w.Assign(keyOf("a"), assign.Assignment{Role: assign.Lead, Term: led}, ackTimings)
				test.change(w)
				if s, _ := w.nextStep(keyOf("a")); s.action != test.want {
					w.t.Errorf("the syncer wants to %s", describe(s))
				}
				if test.want == update && w.promised("a").Skew != ackTimings.Skew {
					w.t.Errorf("promised: %+v", w.promised("a"))
				}
			}})
		})
	}
}

func TestWhatTheControllerIsCalledFor(t *testing.T) {
	unstarted(t, map[string]func(*world){
		"a Lease that a watch shows first, and no more of it": func(w *world) {
			obj := w.seen("a", testKey)
			w.Observe(obj)
			w.isTold("a")
			w.Observe(obj)
			w.isTold()
		},
		"what was done, as soon as nothing is to be done": func(w *world) {
			w.start()
			w.told()
			w.assignFollow("a")
			after(0)
			w.isTold("a")
			w.stop()
		},
		"nothing before that": func(w *world) {
			w.assignFollow("a")
			w.syncer(keyOf("a")).status.PoisonedEpoch = 7
			s, _ := w.nextStep(keyOf("a"))
			w.isTold()
			obj, err := w.send(w.t.Context(), keyOf("a"), s, second)
			if !w.handleAnswer(keyOf("a"), s, obj, err) {
				w.t.Error("the syncer does not go on")
			}
			w.isTold()
		},
		"a refusal, once": func(w *world) {
			w.start()
			w.told()
			w.refuses("create")
			w.assignFollow("a")
			after(5 * second)
			w.isTold("a")
			w.stop()
		},
		"a release that a watch shows": func(w *world) {
			w.register("r")
			w.ledFor(settled)
			w.revoke()
			w.told()
			w.ObserveReader(w.register("r", released("a", 20)))
			w.isTold("a")
			w.stop()
		},
		"or the end of a registration": func(w *world) {
			w.register("r")
			w.ledFor(settled)
			w.revoke()
			w.told()
			w.ObserveReaderGone("r")
			w.isTold("a")
			w.stop()
		},
		"or that was found by asking": func(w *world) {
			w.register("r")
			w.ledFor(settled)
			w.revoke()
			w.register("r", released("a", 20))
			w.told()
			after(2 * firstListPause)
			w.isTold("a")
			w.stop()
		},
	})
}

// The right to renewTime is taken away from who leads, and nothing from others.
func TestAFollowersLeaseIsKeptAfterRenewalsStop(t *testing.T) {
	unstarted(t, map[string]func(*world){"": func(w *world) {
		w.start()
		w.assignFollow("a")
		after(0)
		w.StopRenewing("a")
		w.member.mu.Lock()
		delete(w.member.leases, keyOf("a"))
		w.member.mu.Unlock()
		w.ObserveGone(keyOf("a"))
		after(0)
		if _, there := w.member.has(keyOf("a")); !there {
			w.t.Error("it was not made again")
		}
		w.stop()
	}})
}

// What only people read: that a cluster was restored, and who let a revoked term run out.
func TestWhatIsLogged(t *testing.T) {
	logged := func(w *world) func() int {
		var lines []string
		w.Log = funcr.New(func(_, line string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			lines = append(lines, line)
		}, funcr.Options{})
		return func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(lines)
		}
	}
	keep := func(map[types.NamespacedName]*coordinationv1.Lease) {}
	unstarted(t, map[string]func(*world){
		"nothing while all is well, and when the member is silent": func(w *world) {
			lines := logged(w)
			w.ledFor(settled)
			w.assignFollow("b")
			after(0)
			w.member.becomes(reset, nil)
			after(second)
			if n := lines(); n != 0 {
				w.t.Errorf("%d lines", n)
			}
			w.stop()
		},
		"a restore that a Lease's answer shows, once": func(w *world) {
			lines := logged(w)
			w.register("r")
			w.ledFor(settled)
			w.ObserveReader(w.registers(20))
			w.back(10, keep)
			w.assignFollow("b")
			after(0)
			if n := lines(); n != 1 {
				w.t.Errorf("%d lines", n)
			}
			w.stop()
		},
		"one that a list of readers shows": func(w *world) {
			lines := logged(w)
			w.ObserveReader(w.registers(20))
			w.listReaders(w.t.Context())
			if n := lines(); n != 0 {
				w.t.Errorf("%d lines before", n)
			}
			w.back(10, keep)
			w.listReaders(w.t.Context())
			if n := lines(); n != 1 {
				w.t.Errorf("%d lines", n)
			}
		},
		"who was silent, when nobody waits any more": func(w *world) {
			lines := logged(w)
			w.register("r")
			w.ledFor(settled)
			w.revoke()
			w.assignFollow("b")
			w.revoke()
			if n := lines(); n != 0 || len(w.acks.questions) != 1 {
				w.t.Errorf("%d lines, %d questions", n, len(w.acks.questions))
			}
			w.Assign(keyOf("a"), assign.Assignment{Role: assign.Follow, Term: term("west", 22)}, ackTimings)
			if n := lines(); n != 1 || len(w.acks.questions) != 0 {
				w.t.Errorf("%d lines, %d questions", n, len(w.acks.questions))
			}
			w.stop()
		},
	})
}
