package member_test

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/member"
)

// lose has the registration run out, and stay so.
func (r *reader) lose() {
	r.meet(dropped)
	pass(lasts + confirm)
}

// Somebody may touch a registration while its reader does not know what of its own is stored there.
func TestWhatIsStoredInsteadOfALostAnswerIsNotTakenForIt(t *testing.T) {
	edited := func(edit func(l *coordinationv1.Lease)) func(r *reader, l *coordinationv1.Lease) {
		return func(r *reader, l *coordinationv1.Lease) {
			edit(l)
			r.do(&write{method: http.MethodPut, namespace: home, name: l.Name, sent: l})
		}
	}
	for name, happens := range map[string]func(r *reader, l *coordinationv1.Lease){
		"labels":      edited(func(l *coordinationv1.Lease) { l.Labels["somebody"] = "else" }),
		"annotations": edited(func(l *coordinationv1.Lease) { l.Annotations["somebody"] = "else" }),
		"finalizers":  edited(func(l *coordinationv1.Lease) { l.Finalizers = nil }),
		"owners":      edited(func(l *coordinationv1.Lease) { l.OwnerReferences = []metav1.OwnerReference{{Name: "somebody"}} }),
		"spec":        edited(func(l *coordinationv1.Lease) { l.Spec.AcquireTime = l.Spec.RenewTime }),
		"nothing":     func(r *reader, l *coordinationv1.Lease) { r.remove(home, l.Name) },
		"another object of the same content": func(r *reader, l *coordinationv1.Lease) {
			r.remove(home, l.Name)
			l.ResourceVersion = ""
			r.do(&write{method: http.MethodPost, namespace: home, name: l.Name, sent: l})
		},
	} {
		t.Run(name, func(t *testing.T) {
			registered(t, func(t *testing.T, r *reader) {
				r.meet(unanswered)
				before := r.written()
				pass(confirm + time.Millisecond)
				if got := len(r.wrote(before)); got != 1 {
					t.Fatalf("%d confirmations, want 1", got)
				}
				l := r.registered()[0].DeepCopy()
				happens(r, l)
				r.meet(stored)
				pass(time.Second)
				if !slices.ContainsFunc(r.registered(), func(o *coordinationv1.Lease) bool { return o.Name != l.Name }) {
					t.Error("takes what somebody else has stored for its own")
				}
			})
		})
	}
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

func TestARegistrationThatIsThereAlreadyIsTakenUpInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistered(t)
		r.say(ns, us, 7)
		r.meet(unanswered)
		defer r.start(t)()
		synctest.Wait()
		first := r.registration(t).Identity
		r.watchOver(func(w write) {
			if w.method == http.MethodGet {
				r.meet(dropped) // the update that follows
			}
		})
		r.meet(stored)
		pass(lasts)
		if r.leads(ns) {
			t.Fatal("leads without an answer")
		}
		r.watchOver(nil)
		r.meet(stored)
		pass(5 * time.Second)
		if now := r.registration(t).Identity; now != first || !r.leads(ns) {
			t.Errorf("leads = %v, registered as %s, want %s", r.leads(ns), now, first)
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

// Everything ends with the last confirmation, so the next try must not be far.
func TestAConfirmationThatFailedIsTriedAgainSoon(t *testing.T) {
	registered(t, func(t *testing.T, r *reader) {
		const atMost = 1500 * time.Millisecond
		var looked []time.Time // which it does before each further try
		r.watchOver(func(w write) {
			if w.method == http.MethodGet {
				looked = append(looked, time.Now())
			}
		})
		r.meet(dropped)
		pass(lasts - time.Millisecond)
		synctest.Wait()
		if len(looked) < 6 {
			t.Errorf("%d further tries until the registration ran out, want more", len(looked))
		}
		for i := range looked[1:] {
			if apart := looked[i+1].Sub(looked[i]); apart > atMost || apart < 100*time.Millisecond {
				t.Errorf("%v between two tries, want at most %v, and no storm", apart, atMost)
			}
		}
	})
}

func TestAConfirmationThatFailsAfterOthersIsTriedAgainAsSoonAsTheFirst(t *testing.T) {
	registered(t, func(t *testing.T, r *reader) {
		for range 3 {
			r.meet(dropped)
			var looked time.Time // which it does before a further try
			r.watchOver(func(w write) {
				if w.method == http.MethodGet && looked.IsZero() {
					looked = r.cluster.clock.Now().Wall
				}
			})
			tried := r.registration(t).Confirmed.Add(confirm)
			pass(tried.Sub(r.cluster.clock.Now().Wall) + 4*time.Second)
			r.meet(stored)
			if waited := looked.Sub(tried); waited < 200*time.Millisecond || waited > 300*time.Millisecond {
				t.Errorf("tried again after %v", waited)
			}
			pass(2 * time.Second)
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

// Who registers anew lists anew, and has all the time for that.
func TestANewRegistrationIsInNoHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slowly = never/4 - time.Second // a list may take a quarter
		r := newReaderWith(t, member.Options{StaleAfter: never, Registration: registration(t)})
		r.put(r.cluster.leaseOf(ns, us, 7))
		defer r.start(t)()
		if !r.leads(ns) {
			t.Fatal("does not lead")
		}
		r.become(hangs)
		pass(duration + confirm) // there was a hurry before the end of the term
		r.become(answers)
		r.delay(slowly)
		before := r.listed()
		pass(10 * time.Second) // by then it has registered
		r.say(ns, us, 8)
		pass(slowly)
		synctest.Wait()
		if got := r.listed() - before; got != 2 || !r.leads(ns) {
			t.Errorf("%d lists and watches, leads = %v; want one list that is waited for, and a watch", got, r.leads(ns))
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

// A deleted registration stays while it has its finalizer. Two Members in one process have one each.
func TestNothingIsLeftOfRegistrationsThatSomebodyDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRegistered(t)
		b := &reader{server: a.server, cluster: a.cluster}
		m, err := member.New(a.config(), member.Options{Clock: a.cluster.clock, Registration: registration(t)})
		if err != nil {
			t.Fatal(err)
		}
		b.Member = m
		a.say(ns, us, 7)
		stopA, stopB := a.start(t), b.start(t)
		for range 3 {
			pass(2 * confirm)
			for _, l := range a.registered() {
				a.do(&write{method: http.MethodDelete, namespace: home, name: l.Name})
			}
		}
		pass(2 * confirm)
		if !a.leads(ns) || !b.leads(ns) || len(a.registered()) != 2*4 {
			t.Errorf("leads: %v and %v, with %d registrations, want 2 that stand and 6 that are deleted", a.leads(ns), b.leads(ns), len(a.registered()))
		}
		stopA()
		stopB()
		if left := a.registered(); len(left) > 0 {
			t.Errorf("%d registrations are left, of %d deleted", len(left), 6)
		}
	})
}

// What goes on in a term of a registration that is gone may still act.
func TestADeletedRegistrationStaysWhileItsWorkGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logged{}
		r := newReaderWith(t, member.Options{Registration: registration(t), Logger: l.logger()})
		r.say(ns, us, 7)
		stop := r.start(t)
		synctest.Wait()
		_, done, err := r.Context(t.Context(), ns)
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		r.do(&write{method: http.MethodDelete, namespace: home, name: r.registered()[0].Name})
		pass(2 * confirm)
		stop()
		if left := len(r.registered()); left != 2 {
			t.Errorf("%d registrations are left, want the deleted one and the one after it", left)
		}
		l.expect(t, "at the end", 1, leavesDeleted, `"error"="work goes on after its term"`)
	})
}

func TestNothingIsLeftOfARequestThatWasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistered(t)
		ended := func(when string) {
			t.Helper()
			synctest.Wait()
			r.mu.Lock()
			begun := slices.Clone(r.begun)
			r.mu.Unlock()
			for i, ctx := range begun {
				if ctx.Err() == nil {
					t.Errorf("%s: request %d goes on", when, i)
				}
			}
		}
		stop := r.start(t)
		ended("registered")
		pass(confirm)
		ended("confirmed")
		stop()
		ended("taken back")
	})
}

func TestARegistrationThatCannotBeLookedAtIsLeftToTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, all := told(leavesIt)
		r := newReaderWith(t, member.Options{Registration: registration(t), Logger: log})
		stop := r.start(t)
		synctest.Wait()
		r.meet(dropped)
		pass(confirm + time.Millisecond)
		r.meet(unseen)
		before := r.written()
		stop()
		if wrote, left := r.wrote(before), len(r.registered()); len(wrote) > 0 || left != 1 {
			t.Errorf("%d writes at the end, %d registrations left, want none and 1", len(wrote), left)
		}
		if got := all(); len(got) != 1 {
			t.Errorf("it says %q", got)
		}
	})
}
