package member_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/member"
)

// never is a StaleAfter by which no list comes in a test but those for news that are missing.
const never = 10 * time.Minute

// leading returns a reader that watches all namespaces, and leads in so many.
func leading(t *testing.T, namespaces int, staleAfter time.Duration) *reader {
	t.Helper()
	r := newReaderWith(t, member.Options{StaleAfter: staleAfter})
	r.renew(namespaces)
	t.Cleanup(r.start(t))
	if err := r.WaitForSync(within(t)); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return r
}

// renew renews the term in each of the namespaces.
func (r *reader) renew(namespaces int) {
	for i := range namespaces {
		r.put(r.cluster.leaseOf(name(i), us, 7))
	}
}

func name(i int) string { return fmt.Sprintf("team-%d", i) }

// healthy tells what Healthz says.
func (r *reader) healthy(t *testing.T, want bool, when string) {
	t.Helper()
	if err := r.Healthz(nil); (err == nil) != want {
		t.Errorf("%s: Healthz = %v, want healthy: %v", when, err, want)
	}
}

func TestASilentlyDeadWatchCostsNoTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := leading(t, 3, never)
		ctx, cancel, err := r.Context(t.Context(), name(0))
		if err != nil {
			t.Fatal(err)
		}
		defer cancel()
		for range 4 {
			r.strand()
			for range 6 {
				pass(duration / 3)
				r.renew(3)
				r.healthy(t, true, "the term goes on")
			}
		}
		if ctx.Err() != nil {
			t.Errorf("the term ended: %v", context.Cause(ctx))
		}
	})
}

func TestAFreshListComesOnlyWhenLessThanAThirdOfATermIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := leading(t, 1, never)
		before := r.asks()
		pass(duration * 2 / 3)
		if got := r.asks(); got != before {
			t.Errorf("%d lists with a third left, want none", got-before)
		}
		pass(duration/12 + 2*recheck) // by so much it may wait, so that not all readers ask at once
		if got := r.asks(); got != before+1 {
			t.Errorf("%d lists with a quarter left, want 1", got-before)
		}
		if got := r.watching(); got != 1 {
			t.Errorf("%d watches, want one", got)
		}
		pass(duration/4 - 2*recheck)
		if got := r.asks(); got != before+1 {
			t.Errorf("%d lists for one renewal that is missing, want 1", got-before)
		}
		if r.leads(name(0)) {
			t.Error("leads past the deadline")
		}
		r.healthy(t, true, "the hub is silent, and the API server says so")
	})
}

func TestALeaseWithoutADurationHoldsNothingUp(t *testing.T) {
	for name, tc := range map[string]func(t *testing.T, r *reader, l *coordinationv1.Lease) (stop func()){
		"listed": func(t *testing.T, r *reader, l *coordinationv1.Lease) func() { r.put(l); return r.start(t) },
		"watched": func(t *testing.T, r *reader, l *coordinationv1.Lease) func() {
			stop := r.start(t)
			synctest.Wait()
			r.put(l)
			return stop
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReader(t)
				l := r.cluster.leaseOf("other", us, 7)
				l.Spec.LeaseDurationSeconds = nil
				defer tc(t, r, l)()
				synctest.Wait()
				r.put(r.cluster.leaseOf(ns, us, 7))
				if !r.leads(ns) || r.leads("other") {
					t.Errorf("leads = %v, and by a Lease without a duration = %v", r.leads(ns), r.leads("other"))
				}
			})
		})
	}
}

func TestASilentHubIsNoStormOfLists(t *testing.T) {
	for name, tc := range map[string]struct {
		apart time.Duration // from the end of one term to the end of the next
		most  int
	}{
		"all terms run out at once": {0, 1},
		"one after the other":       {duration / 3 / 500, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := leading(t, 0, never)
				for i := range 500 {
					r.put(r.cluster.leaseOf(fmt.Sprint("team-", i), us, 7))
					pass(tc.apart)
				}
				synctest.Wait()
				before := r.asks()
				pass(duration)
				if got := r.asks() - before; got < 1 || got > tc.most {
					t.Errorf("%d lists, want at least one and at most %d", got, tc.most)
				}
			})
		})
	}
}

func TestAFreshListThatHangsLeavesTimeForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := leading(t, 1, never)
		ctx, cancel, err := r.Context(t.Context(), name(0))
		if err != nil {
			t.Fatal(err)
		}
		defer cancel()
		r.strand()
		r.delay(time.Hour)
		for before := r.asks(); r.asks() == before; {
			pass(10 * time.Millisecond)
		}
		r.delay(0)
		r.renew(1)
		pass(duration / 2)
		if ctx.Err() != nil {
			t.Errorf("the term ended: %v", context.Cause(ctx))
		}
	})
}

func TestAListThatTakesLongerThanIsLeftIsWaitedForInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := leading(t, 1, never)
		r.strand()
		r.delay(4 * time.Second) // at least so much longer than its time in a hurry
		for range 6 {
			pass(duration / 3)
			r.renew(1)
		}
		if !r.leads(name(0)) {
			t.Error("gives every list up before it is answered")
		}
	})
}

func TestAReaderThatWakesPastItsTermAsksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := leading(t, 1, never)
		r.strand()
		r.cluster.clock.Suspend(time.Minute)
		r.renew(1)
		pass(time.Second)
		if !r.leads(name(0)) {
			t.Error("does not lead a second after it woke")
		}
	})
}

func TestATermShorterThanAnyBeforeHasAnotherConnectionMadeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := leading(t, 1, never)
		before, line := r.asks(), r.Connections()
		l := r.cluster.leaseOf(name(1), us, 7)
		*l.Spec.LeaseDurationSeconds = 3
		r.put(l)
		synctest.Wait()
		if r.asks() != before+1 || r.Connections() == line || !r.leads(name(1)) {
			t.Errorf("%d lists, on another connection = %v, leads = %v",
				r.asks()-before, r.Connections() != line, r.leads(name(1)))
		}
	})
}

func TestAServerThatWasRestoredIsBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := leading(t, 2, never)
		past := r.snapshot()
		r.put(r.cluster.leaseOf(name(1), them, 8))
		r.put(r.cluster.leaseOf(name(2), us, 7))
		synctest.Wait()
		r.restore(past)
		r.fail()
		pass(time.Second)
		if r.leads(name(2)) {
			t.Error("leads by a Lease that does not exist any more")
		}
		r.put(r.cluster.leaseOf(name(3), us, 7))
		synctest.Wait()
		if !r.leads(name(3)) {
			t.Error("what happens after the restore is taken for old")
		}
	})
}
