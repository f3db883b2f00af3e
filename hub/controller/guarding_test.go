package controller

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/seal"
)

// every lists instants until an end.
func every(pause, end time.Duration) (at []time.Duration) {
	for d := time.Duration(0); d <= end; d += pause {
		at = append(at, d)
	}
	return at
}

// What stands is looked at every ten seconds, and tried every minute.
func TestHowOftenAGuardIsLookedAt(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		look, try     *metav1.Status
		lasts         time.Duration
		looked, tried []time.Duration
		found         error
	}{
		"one that stands":            {nil, nil, 125 * time.Second, every(10*time.Second, 120*time.Second), every(time.Minute, 120*time.Second), nil},
		"one that lets a write pass": {nil, letThrough, time.Second, every(300*ms, time.Second), every(300*ms, time.Second), guard.ErrNotEnforced},
		"one that is forbidden": {
			failure(http.StatusForbidden, metav1.StatusReasonForbidden), nil, 2500 * ms, every(time.Second, 2*time.Second), nil, guard.ErrForbidden,
		},
		"one that the cluster does not know": {
			failure(http.StatusNotFound, metav1.StatusReasonNotFound), nil, 2500 * ms, every(time.Second, 2*time.Second), nil, guard.ErrUnsupported,
		},
		"one of a cluster that answers nothing of use": {
			failure(http.StatusInternalServerError, metav1.StatusReasonInternalError), nil, time.Second, every(300*ms, time.Second), nil, errUnchecked,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWarden(t)
				w.look, w.try = test.look, test.try
				end := w.keeps()
				pass(test.lasts)
				looked, tried := w.since()
				if !slices.Equal(looked, test.looked) || !slices.Equal(tried, test.tried) {
					t.Errorf("looked at %v, tried at %v; want %v and %v", looked, tried, test.looked, test.tried)
				}
				if err := w.stands(); !errors.Is(err, test.found) {
					t.Errorf("found %v, want %v", err, test.found)
				}
				end()
			})
		})
	}
}

// Whether it stands again nobody knows before it was tried.
func TestAGuardIsTriedAtOnceAfterItCouldNotBeLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarden(t)
		defer w.keeps()()
		pass(5 * time.Second)
		w.will(func(w *warden) { w.look = failure(http.StatusInternalServerError, metav1.StatusReasonInternalError) })
		w.since()
		pass(5100 * time.Millisecond)
		w.will(func(w *warden) { w.look = nil })
		pass(time.Second)
		looked, tried := w.since()
		again := 10*time.Second + guardRetry
		if !slices.Equal(looked, []time.Duration{10 * time.Second, again}) || !slices.Equal(tried, []time.Duration{again}) {
			t.Errorf("looked at %v, tried at %v", looked, tried)
		}
		if err := w.stands(); err != nil {
			t.Errorf("silence took the guard away: %v", err)
		}
	})
}

// What is decided depends on whether a guard stands, and not on when it was looked at.
func TestDecisionsAreAskedForWhenAGuardBeginsOrCeasesToStand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarden(t)
		defer w.keeps()()
		expects := func(when string, want bool) {
			t.Helper()
			synctest.Wait()
			if is := slices.Contains(asked(&w.records), "fleet/shop"); is != want {
				t.Errorf("%s: asked for a decision: %v, want %v", when, is, want)
			}
		}
		expects("it stands", true)
		pass(15 * time.Second)
		expects("it stands on", false)
		w.will(func(w *warden) { w.try = letThrough })
		pass(time.Minute)
		expects("it does not stand any more", true)
		pass(time.Second)
		expects("it still does not", false)
		w.will(func(w *warden) { w.try = nil })
		pass(time.Second)
		expects("it stands again", true)
	})
}

func TestAGuardThatIsFoundMissingForTheFirstTimeIsNews(t *testing.T) {
	c, a := New(Options{}), &attachment{guard: errUnchecked}
	if !c.noteGuard(a, guard.ErrNotEnforced) {
		t.Error("that it does not stand is no news, although nothing was known")
	}
	if c.noteGuard(a, guard.ErrForbidden) {
		t.Error("another reason why it does not stand is news")
	}
}

// Where another installation serves the fleet this one writes nothing, and where nobody does it claims it first.
func TestAGuardIsKeptByTheInstallationThatServesTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarden(t)
		w.by = besideMark
		defer w.keeps()()
		pass(time.Second)
		if looked, _ := w.since(); len(looked) > 0 {
			t.Errorf("looked at %v, although another installation serves the fleet", looked)
		}
		mark := func() string {
			secret := sealOf("fleet")
			_ = w.api.Get(t.Context(), types.NamespacedName{Namespace: "fleet", Name: seal.SecretName}, secret)
			return secret.Annotations[v1alpha1.HubAnnotation]
		}
		if m := mark(); m != "" {
			t.Errorf("the seal is marked %q", m)
		}
		w.will(func(w *warden) { w.by = "" })
		pass(guardRetry)
		at := []time.Duration{4 * guardRetry}
		if looked, tried := w.since(); !slices.Equal(looked, at) || !slices.Equal(tried, at) {
			t.Errorf("looked at %v, tried at %v, want %v", looked, tried, at)
		}
		if m := mark(); m != w.HubID {
			t.Errorf("the seal is marked %q, want %q", m, w.HubID)
		}

		// It stood back in between, so that somebody else may have changed the guard.
		w.will(func(w *warden) { w.by = besideMark })
		w.wake("fleet")
		pass(time.Second)
		w.will(func(w *warden) { w.by = w.HubID })
		pass(guardRetry)
		if looked, tried := w.since(); len(looked) != 1 || len(tried) != 1 {
			t.Errorf("after it stood back it looked at %v, tried at %v", looked, tried)
		}
	})
}

func unlabelled(c *clusterv1.Cluster) { delete(c.Labels, v1alpha1.PriorityLabel) }

// A member that takes no part is let go of with its last copy, and the guard goes before that.
func TestAGuardGoesWithAMemberThatTakesNoPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWarden(t), newStage(t)
		w.a.publisher = s.publisher()
		s.decided(w.a.publisher, s.leading(reason.Elected), true)
		defer w.keeps()()
		pass(5 * time.Second)
		if len(w.east.holds(guard.Name)) != 2 {
			t.Fatalf("there is no guard: %q", w.east.holds("admission"))
		}
		w.changes("east", unlabelled)
		w.wake("fleet")
		w.since()
		pass(10 * time.Second)
		if looked, tried := w.since(); len(looked)+len(tried) > 0 {
			t.Errorf("looked at %v, tried at %v, while a copy is left", looked, tried)
		}
		if len(w.east.holds(guard.Name)) != 2 {
			t.Error("the guard went before the last copy")
		}

		w.changes("east", func(c *clusterv1.Cluster) { c.Labels = map[string]string{v1alpha1.PriorityLabel: "5"} })
		pass(guardRetry)
		if looked, tried := w.since(); len(looked) != 1 || len(tried) != 1 {
			t.Errorf("it came back: looked at %v, tried at %v; want each once", looked, tried)
		}

		w.loses("east")
		s.assigned(w.a.publisher, s.leading(reason.Elected), func(_ *view, d *election.Decision) { d.Gone = true })
		w.wake("fleet")
		pass(guardRetry)
		if left := w.east.holds("admission"); len(left) > 0 {
			t.Errorf("left are %q", left)
		}
		if _, ok := w.Fleet.Member(eastKey); ok {
			t.Error("it is still known")
		}
	})
}

// leaves has the hub let go of east once.
func (w *warden) leaves(a *attachment) {
	w.t.Helper()
	w.leave(w.t.Context(), fleet.Member{Key: eastKey}, a)
	synctest.Wait()
}

func TestWhenAGuardIsTakenOut(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*warden, *attachment)
		removed bool
		known   bool
		unsure  bool
	}{
		"nothing is left there": {func(*warden, *attachment) {}, true, false, true},
		"it cannot be taken out": {func(w *warden, _ *attachment) {
			w.look = failure(http.StatusForbidden, metav1.StatusReasonForbidden)
		}, false, true, true},
		"the member was not read yet": {func(_ *warden, a *attachment) { a.publisher = publish.New(publish.Options{}) }, false, true, false},
		"a copy of this hub is left": {func(w *warden, a *attachment) {
			a.publisher = publisherThatRead(w.t, musterStart.Wall, testKey, eastCopy(20))
		}, false, true, false},
		"a copy of another hub is": {func(w *warden, a *attachment) {
			cp := eastCopy(20)
			cp.Hub = "another"
			a.publisher = publisherThatRead(w.t, musterStart.Wall, testKey, cp)
		}, false, false, false},
		"it moved to another hub": {func(w *warden, _ *attachment) {
			w.changes("east", moves)
			w.client = bounded{w.api}
		}, false, false, false},
		"copies of this hub and of another are left": {func(w *warden, a *attachment) {
			s := newStage(w.t)
			for name, hub := range map[string]string{"leasecast": "this", "other": "another"} {
				cp, l := eastCopy(20), &coordinationv1.Lease{}
				cp.Name, cp.Hub = name, hub
				if err := wire.Write(testKey, cp, l); err != nil {
					w.t.Fatal(err)
				}
				s.east.put(l)
			}
			a.publisher = s.publisher()
		}, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWarden(t)
				if _, err := w.checkGuard(t.Context(), w.member("east"), true); err != nil {
					t.Fatal(err)
				}
				a := &attachment{publisher: newStage(t).publisher()}
				test.change(w, a)
				w.loses("east")
				w.leaves(a)
				if removed := len(w.east.holds("admission")) == 0; removed != test.removed {
					t.Errorf("the guard is gone: %v, want %v", removed, test.removed)
				}
				if _, known := w.Fleet.Member(eastKey); known != test.known {
					t.Errorf("it is known: %v, want %v", known, test.known)
				}
				if unsure := errors.Is(a.guard, errUnchecked); unsure != test.unsure {
					t.Errorf("what is known of the guard: %v", a.guard)
				}
			})
		})
	}
}

// Of a member that is not known nothing is left that could be let go of.
func TestAGuardStaysWhereTheMemberIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarden(t)
		if _, err := w.checkGuard(t.Context(), w.member("east"), true); err != nil {
			t.Fatal(err)
		}
		w.leave(t.Context(), fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: "north"}}, &attachment{publisher: newStage(t).publisher()})
		if len(w.east.holds("admission")) == 0 {
			t.Error("it was taken out")
		}
	})
}

func TestWhatACheckOfAGuardFinds(t *testing.T) {
	forbidden := failure(http.StatusForbidden, metav1.StatusReasonForbidden)
	for name, test := range map[string]struct {
		stood, due bool
		look, try  *metav1.Status
		verified   bool
		tried      bool
		found      error
	}{
		"it was made, and is tried":               {verified: true, tried: true},
		"it stood, and is due":                    {stood: true, due: true, verified: true, tried: true},
		"it stood, and is not due":                {stood: true},
		"it was made, and lets a write pass":      {try: letThrough, verified: true, tried: true, found: guard.ErrNotEnforced},
		"it cannot be looked at":                  {due: true, look: forbidden, found: guard.ErrForbidden},
		"it stood, is due, and lets a write pass": {stood: true, due: true, try: letThrough, verified: true, tried: true, found: guard.ErrNotEnforced},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWarden(t)
				if test.stood {
					if _, err := w.checkGuard(t.Context(), w.member("east"), false); err != nil {
						t.Fatal(err)
					}
					w.since()
				}
				w.look, w.try = test.look, test.try
				verified, err := w.checkGuard(t.Context(), w.member("east"), test.due)
				if verified != test.verified || !errors.Is(err, test.found) || (err != nil) != (test.found != nil) {
					t.Errorf("verified %v, %v; want %v, %v", verified, err, test.verified, test.found)
				}
				if _, tried := w.since(); (len(tried) > 0) != test.tried {
					t.Errorf("tried: %v, want %v", tried, test.tried)
				}
			})
		})
	}
}
