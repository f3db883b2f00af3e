package member_test

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func TestNothingIsRegisteredThatDoesNotSayAll(t *testing.T) {
	for name, tc := range map[string]struct {
		namespaces []string
		f          fate
	}{
		"whose it is":             {f: unnamed},
		"what its reader follows": {namespaces: []string{"one,another"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistered(t, tc.namespaces...)
				r.meet(tc.f)
				defer r.start(t)()
				pass(lasts)
				if wrote := r.written(); wrote > 0 {
					t.Errorf("%d writes", wrote)
				}
			})
		})
	}
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

// An edit that would not have ended the term must not begin one when the copy that did is no longer there.
func TestACopyThatIsNotBelievedBringsNoTermBack(t *testing.T) {
	registered(t, func(t *testing.T, r *reader) {
		r.say(ns, none, 6)
		if !r.leads(ns) {
			t.Fatal("an edit of no weight has ended the term")
		}
		old := r.registered()[0].Name
		r.remove(home, old)
		pass(confirm + time.Second)
		if r.leads(ns) || r.registered()[0].Name == old {
			t.Error("leads by a copy that was there before its registration, and is gone")
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
			t.Error("released before the copies were seen anew")
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

func TestARegistrationThatCannotBeLookedAtIsLeftToTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistered(t)
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
	})
}
