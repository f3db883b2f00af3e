package member_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/internal/musttest"
)

// never is a StaleAfter by which no list comes in a test but those for renewals that are overdue.
const never = 10 * time.Minute

// leading returns a Member that watches all namespaces, and leads in so many.
func leading(t *testing.T, namespaces int) *testMember {
	t.Helper()
	r := startTestMember(t, member.Options{StaleAfter: never})
	r.renew(namespaces)
	synctest.Wait()
	return r
}

// renew renews the term in each of the namespaces.
func (r *testMember) renew(namespaces int) {
	for i := range namespaces {
		r.write(name(i), us, 7)
	}
}

func TestWatch_ThatEndsOrDiedSilentlyCostsNoTerm(t *testing.T) {
	musttest.Each(t, map[string]func(t *testing.T, r *testMember){
		"it died, again and again": func(t *testing.T, r *testMember) {
			for range 4 {
				r.strand()
				for range 6 {
					pass(duration / 3)
					r.renew(3)
					if err := r.Healthz(nil); err != nil {
						t.Error(err)
					}
				}
			}
		},
		"it ends with an error": func(t *testing.T, r *testMember) {
			term, _ := r.Term(name(0))
			for range 20 {
				r.fail()
				pass(duration / 3)
				r.renew(3)
				synctest.Wait()
				if got := term.Remaining(); got != duration {
					t.Fatalf("%v remain after the renewal, want %v", got, duration)
				}
			}
		},
		"it died, and the next list hangs": func(_ *testing.T, r *testMember) {
			r.strand()
			r.delay(time.Hour)
			for before := r.lists(); r.lists() == before; {
				pass(10 * time.Millisecond)
			}
			r.delay(0)
			r.renew(1)
			pass(duration / 2)
		},
	}, func(t *testing.T, happens func(t *testing.T, r *testMember)) {
		r := leading(t, 3)
		ctx, done := contextOf(t, r, name(0))
		defer done()
		happens(t, r)
		if ctx.Err() != nil {
			t.Errorf("the term ended: %v", context.Cause(ctx))
		}
	})
	musttest.Each(t, map[string]func(r *testMember){
		"lists take longer than is left": func(r *testMember) {
			r.strand()
			r.delay(4 * time.Second)
			for range 6 {
				pass(duration / 3)
				r.renew(1)
			}
		},
		"the machine sleeps past it": func(r *testMember) {
			r.strand()
			r.clock.Suspend(time.Minute)
			r.renew(1)
			pass(time.Second)
		},
	}, func(t *testing.T, happens func(r *testMember)) {
		r := leading(t, 1)
		if happens(r); !r.leads(name(0)) {
			t.Error("does not lead again")
		}
	})
}

func TestList_ComesWhenLessThanAThirdOfATermIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := leading(t, 1)
		before := r.lists()
		for _, step := range []struct {
			when   string
			passes time.Duration
			lists  int
			leads  bool
		}{
			{"a third is left", duration * 2 / 3, 0, true},
			// By so much it may wait, so that not all readers ask at once.
			{"a quarter is left", duration/12 + 2*recheck, 1, true},
			{"one renewal is overdue for long", duration/4 - 2*recheck, 1, false},
		} {
			pass(step.passes)
			if got := r.lists() - before; got != step.lists || r.leads(name(0)) != step.leads {
				t.Errorf("%s: %d lists, leads = %v; want %d, %v", step.when, got, !step.leads, step.lists, step.leads)
			}
			if r.locked(func() {
				if len(r.streams) != 1 {
					t.Errorf("%s: %d watches, want one", step.when, len(r.streams))
				}
			}); r.Healthz(nil) != nil {
				t.Errorf("%s: Healthz = %v, although the API server answers", step.when, r.Healthz(nil))
			}
		}
	})
}

func TestList_IsOneForManyTermsOfASilentHub(t *testing.T) {
	type row struct {
		apart time.Duration // from the end of one term to the end of the next
		most  int
	}
	musttest.Each(t, map[string]row{
		"all terms run out at once": {0, 1},
		"one after the other":       {duration / 3 / 500, 4},
	}, func(t *testing.T, row row) {
		r := leading(t, 0)
		for i := range 500 {
			r.write(name(i), us, 7)
			pass(row.apart)
		}
		synctest.Wait()
		before := r.lists()
		pass(duration)
		if got := r.lists() - before; got < 1 || got > row.most {
			t.Errorf("%d lists, want at least one and at most %d", got, row.most)
		}
	})
}

func TestWatch_GetsAnotherConnectionForShorterTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := leading(t, 1)
		before, connections := r.lists(), r.Connections()
		r.write(name(1), us, 7, lasting(3))
		if !r.leads(name(1)) || r.lists() != before+1 || r.Connections() == connections {
			t.Errorf("leads = %v after %d lists, on another connection = %v",
				r.leads(name(1)), r.lists()-before, r.Connections() != connections)
		}
	})
}

func TestMember_FollowsByListsWhereWatchesFail(t *testing.T) {
	type row struct {
		server behavior
		within time.Duration
	}
	musttest.Each(t, map[string]row{
		"watches are refused":  {listsOnly, 5 * time.Second},
		"watches end at once":  {hasty, 5 * time.Second},
		"watches show nothing": {deaf, staleAfter/2 + staleAfter/8},
	}, func(t *testing.T, row row) {
		r := newTestMember(t, member.Options{})
		r.become(row.server)
		r.write(ns, them, 7)
		r.start()
		pass(time.Hour) // so that retries are as slow as they get
		r.write(ns, us, 8, lasting(3600))
		pass(row.within)
		if !r.leads(ns) {
			t.Errorf("does not lead %v after it was chosen", row.within)
		}
		if asked, limit := len(r.requests("")), 2*3600; asked > limit {
			t.Errorf("%d requests in an hour, want at most %d", asked, limit)
		}
	})
}
