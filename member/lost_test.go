package member_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// lose has the registration run out, and stay so.
func (r *reader) lose() {
	r.meet(dropped)
	pass(lasts + confirm)
}

func TestARegistrationThatCannotBeLookedAtStaysTheOnlyOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistered(t)
		r.say(ns, us, 7)
		r.meet(unanswered)
		defer r.start(t)()
		synctest.Wait()
		first := r.registration(t).Identity
		r.meet(unseen)
		pass(2 * lasts)
		if r.leads(ns) {
			t.Error("leads without knowing that it is registered")
		}
		r.meet(stored)
		pass(5 * time.Second)
		if got := r.registration(t).Identity; got != first || !r.leads(ns) {
			t.Errorf("leads = %v, registered as %s, want the first one: %s", r.leads(ns), got, first)
		}
	})
}

func TestAnUpdateThatComesInAfterAllIsNoEditOfSomebodyElse(t *testing.T) {
	registered(t, func(t *testing.T, r *reader) {
		first := r.registration(t)
		r.meet(overtaken)
		pass(confirm + time.Millisecond)
		r.meet(stored)
		pass(confirm)
		if now := r.registration(t); now.Identity != first.Identity || !now.Confirmed.After(first.Confirmed) || !r.leads(ns) {
			t.Errorf("leads = %v, registered %+v, want %s", r.leads(ns), now, first.Identity)
		}
	})
}

func TestAFailureToLookAtARegistrationIsNoLoss(t *testing.T) {
	registered(t, func(t *testing.T, r *reader) {
		first := r.registration(t).Identity
		r.meet(dropped)
		pass(confirm + time.Millisecond)
		r.meet(unseen)
		pass(confirm)
		r.meet(stored)
		pass(confirm / 2)
		if now := r.registration(t).Identity; now != first || !r.leads(ns) {
			t.Errorf("leads = %v, registered as %s, want %s", r.leads(ns), now, first)
		}
	})
}

func TestNothingIsRegisteredThatDoesNotSayWhoseItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistered(t)
		r.meet(unnamed)
		defer r.start(t)()
		pass(lasts)
		if wrote := r.written(); wrote > 0 {
			t.Errorf("%d writes", wrote)
		}
	})
}

// The hub may have taken its reader for stopped.
func TestARegistrationThatRanOutIsNotConfirmedAnyMore(t *testing.T) {
	registered(t, func(t *testing.T, r *reader) {
		old := r.registered()[0].Name
		r.lose()
		before := r.written()
		r.meet(stored)
		pass(5 * time.Second)
		for _, w := range r.wrote(before) {
			if w.name == old {
				t.Errorf("%s of the registration that ran out", w.method)
			}
		}
		if !r.leads(ns) {
			t.Error("did not register anew")
		}
	})
}

// An edit that would not have ended the term must not begin one when the Lease that did is no longer there.
func TestALeaseThatIsNotBelievedBringsNoTermBack(t *testing.T) {
	registered(t, func(t *testing.T, r *reader) {
		namespaces := []string{ns, "ledger", "mail"}
		for _, name := range namespaces {
			r.say(name, us, 7)
			synctest.Wait()
			r.say(name, none, 6)
			if !r.leads(name) {
				t.Fatal("an edit of no weight has ended the term")
			}
		}
		old := r.registered()[0].Name
		r.remove(home, old)
		pass(confirm + time.Second)
		for _, name := range namespaces {
			if r.leads(name) || r.registered()[0].Name == old {
				t.Error("leads by a Lease that was there before its registration, and is gone")
			}
		}
	})
}

func TestWhatALostRegistrationHasSeenTheNextOneDoesNotRelease(t *testing.T) {
	registered(t, func(t *testing.T, r *reader) {
		r.say(ns, none, 8)
		if !r.released(t) {
			t.Fatal("not released")
		}
		r.delay(time.Hour) // of the list that has to come first
		r.remove(home, r.registered()[0].Name)
		pass(2 * confirm)
		if r.released(t) {
			t.Error("released before the Leases were seen anew")
		}
	})
}

func TestAMemberWithoutARegistrationHasNoneToTakeBack(t *testing.T) {
	for name, tc := range map[string]struct {
		begins fate
		loses  bool
		left   int
	}{
		"it never had one": {begins: forbidden},
		"it has lost it":   {loses: true, left: 1}, // to the hub
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistered(t)
				r.meet(tc.begins)
				stop := r.start(t)
				synctest.Wait()
				if tc.loses {
					r.lose()
				}
				before := r.written()
				r.meet(stored)
				stop()
				if wrote, left := r.wrote(before), len(r.registered()); len(wrote) > 0 || left != tc.left {
					t.Errorf("%d writes at the end, %d registrations left, want %d", len(wrote), left, tc.left)
				}
			})
		})
	}
}
