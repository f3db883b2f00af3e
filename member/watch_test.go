package member_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
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

func TestALeaseThatIsSeenTwiceIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := leading(t, 1, never)
		l := r.cluster.leaseOf(name(0), us, 7)
		for range 2 {
			r.put(l)
			synctest.Wait()
		}
		before := r.asks()
		pass(duration*2/3 + duration/12 + 2*recheck)
		if got := r.asks(); got != before+1 {
			t.Errorf("%d lists with a quarter left, want 1", got-before)
		}
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

func TestAFreshListTakesAnotherConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := leading(t, 1, never)
		before := r.Line()
		r.strand()
		pass(duration * 2 / 3)
		r.renew(1)
		pass(duration * 2 / 3)
		if r.Line() == before {
			t.Error("it takes the connection that may be dead")
		}
	})
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

// A clock that runs late, or a hub that does, must not have every renewal asked for.
func TestRenewalsThatAreAlwaysLateAreAskedForEverLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := leading(t, 1, never)
		lists := func(renewals int) int {
			before := r.asks()
			for range renewals {
				pass(3 * time.Second) // and less than a third has been left for a moment
				l := r.cluster.leaseOf(name(0), us, 7)
				*l.Spec.LeaseDurationSeconds = 4
				r.put(l)
			}
			return r.asks() - before
		}
		lists(10)
		const renewals = 100
		if got := lists(renewals); got > renewals/10 {
			t.Errorf("%d lists while %d renewals were late, want ever fewer", got, renewals)
		}
	})
}

func TestAListThatHangsIsGivenUpWhenNewsAreMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := leading(t, 1, never)
		r.delay(time.Hour)
		for before := r.asks(); r.asks() == before; {
			r.renew(1)
			pass(10 * time.Millisecond)
		}
		r.strand() // right after the list was asked for, which may take as long as never/4
		r.delay(0)
		pass(duration / 3)
		r.renew(1)
		pass(duration * 2 / 3)
		if !r.leads(name(0)) {
			t.Error("waits for an answer that never comes")
		}
	})
}

// What is lost between two watches is lost until the next renewal: nothing may be.
func TestNothingIsMissedBetweenTwoWatches(t *testing.T) {
	const lag = 3 * time.Second
	turn := func(t *testing.T, r *reader) { // is under way when it returns
		t.Helper()
		r.delay(lag)
		for before := r.asks(); r.asks() == before; {
			r.renew(2)
			pass(10 * time.Millisecond)
		}
	}
	leads := func(t *testing.T, r *reader, i int, want bool, when string) {
		t.Helper()
		synctest.Wait()
		if r.leads(name(i)) != want {
			t.Errorf("%s: leads in %s = %v, want %v", when, name(i), !want, want)
		}
	}
	cases := map[string]struct {
		happens func(r *reader)
		leads   []bool
	}{
		"a Lease is deleted":             {func(r *reader) { r.remove(name(0), v1alpha1.DefaultLeaseName) }, []bool{false, true, false}},
		"one is made":                    {func(r *reader) { r.put(r.cluster.leaseOf(name(2), us, 7)) }, []bool{true, true, true}},
		"another cluster is chosen":      {func(r *reader) { r.put(r.cluster.leaseOf(name(0), them, 8)) }, []bool{false, true, false}},
		"one is deleted and comes again": {func(r *reader) { r.remove(name(0), v1alpha1.DefaultLeaseName); r.renew(1) }, []bool{true, true, false}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := leading(t, 2, staleAfter)
				turn(t, r)
				pass(lag / 2)
				tc.happens(r)
				for i, want := range tc.leads {
					leads(t, r, i, want, "while a list is under way")
				}
				pass(lag)
				for i, want := range tc.leads {
					leads(t, r, i, want, "when it has arrived, which is older")
				}
				if got := r.watching(); got != 1 {
					t.Errorf("%d watches, want one", got)
				}
			})
		})
	}
}

func TestATermShorterThanAnyBeforeHasAnotherConnectionMadeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := leading(t, 1, never)
		before, line := r.asks(), r.Line()
		l := r.cluster.leaseOf(name(1), us, 7)
		*l.Spec.LeaseDurationSeconds = 3
		r.put(l)
		synctest.Wait()
		if r.asks() != before+1 || r.Line() == line || !r.leads(name(1)) {
			t.Errorf("%d lists, on another connection = %v, leads = %v", r.asks()-before, r.Line() != line, r.leads(name(1)))
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

func TestHealthzSaysWhenATermRanOutBecauseNothingWasHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := leading(t, 1, never)
		r.strand()
		r.become(hangs)
		pass(duration - time.Second)
		r.healthy(t, true, "the term goes on")
		pass(time.Second + recheck)
		const want = "member: the watch of leases in all namespaces is silent: a term ran out"
		if err := r.Healthz(nil); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Healthz = %v, want %s …", err, want)
		}
		r.become(answers)
		pass(10 * time.Second)
		r.healthy(t, true, "the API server is heard again")
		pass(24 * time.Hour)
		r.healthy(t, true, "a follower of a quiet cluster")
	})
}

func TestAnotherTermThatIsHeardOfKeepsHealthzContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := leading(t, 2, never)
		r.become(hangs) // for lists; the watch goes on
		for range 8 {
			pass(duration / 3)
			r.renew(1)
		}
		r.healthy(t, true, "one of two terms ran out, and the watch says so")
	})
}
