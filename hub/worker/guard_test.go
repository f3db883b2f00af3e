package worker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/publish"
)

// A guard that is in force is looked at every ten seconds, and tried every minute.
func TestHowOftenAGuardIsLookedAt(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		look, try     *metav1.Status
		lasts         time.Duration
		looked, tried []time.Duration
		found         error
	}{
		"one that is in force":       {nil, nil, 125 * time.Second, every(10*time.Second, 120*time.Second), every(time.Minute, 120*time.Second), nil},
		"one that lets a write pass": {nil, letThrough, time.Second, every(300*ms, time.Second), every(300*ms, time.Second), guard.ErrNotEnforced},
		"one that is forbidden": {
			failure(http.StatusForbidden, metav1.StatusReasonForbidden), nil, 2500 * ms, every(time.Second, 2*time.Second), nil, guard.ErrForbidden,
		},
		"one that the cluster does not know": {
			failure(http.StatusNotFound, metav1.StatusReasonNotFound), nil, 2500 * ms, every(time.Second, 2*time.Second), nil, guard.ErrUnsupported,
		},
		"one of a cluster that answers nothing of use": {
			failure(http.StatusInternalServerError, metav1.StatusReasonInternalError), nil, time.Second, every(300*ms, time.Second), nil, ErrUnchecked,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.look, r.try = test.look, test.try
				end := r.runs(r.keepGuard)
				pass(test.lasts)
				looked, tried := r.since()
				if !slices.Equal(looked, test.looked) || !slices.Equal(tried, test.tried) {
					t.Errorf("looked at %v, tried at %v; want %v and %v", looked, tried, test.looked, test.tried)
				}
				if err := r.Unguarded(); !errors.Is(err, test.found) {
					t.Errorf("found %v, want %v", err, test.found)
				}
				end()
			})
		})
	}
}

// Whether it is in force again nobody knows before it was tried.
func TestAGuardIsTriedAtOnceAfterItCouldNotBeLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.runs(r.keepGuard)()
		pass(5 * time.Second)
		r.will(func(r *rig) { r.look = failure(http.StatusInternalServerError, metav1.StatusReasonInternalError) })
		r.since()
		pass(5100 * time.Millisecond)
		r.will(func(r *rig) { r.look = nil })
		pass(time.Second)
		looked, tried := r.since()
		again := 10*time.Second + guardRetry
		if !slices.Equal(looked, []time.Duration{10 * time.Second, again}) || !slices.Equal(tried, []time.Duration{again}) {
			t.Errorf("looked at %v, tried at %v", looked, tried)
		}
		if err := r.Unguarded(); err != nil {
			t.Errorf("silence took the guard away: %v", err)
		}
	})
}

// What is decided depends on whether a guard is in force, and not on when it was looked at.
func TestDecisionsAreAskedForWhenAGuardBeginsOrCeasesToBeInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.runs(r.keepGuard)()
		expects := func(when string, want bool) {
			t.Helper()
			if is := slices.Equal(r.news(), []string{""}); is != want {
				t.Errorf("%s: asked for decisions: %v, want %v", when, is, want)
			}
		}
		expects("it is in force", true)
		pass(15 * time.Second)
		expects("it still is", false)
		r.will(func(r *rig) { r.try = letThrough })
		pass(time.Minute)
		expects("it is not in force any more", true)
		pass(time.Second)
		expects("it still is not", false)
		r.will(func(r *rig) { r.try = nil })
		pass(time.Second)
		expects("it is in force again", true)
	})
}

func TestAGuardThatIsFoundMissingForTheFirstTimeIsNews(t *testing.T) {
	w := New(Options{})
	if !w.noteGuard(guard.ErrNotEnforced) {
		t.Error("that it is not in force is no news, although nothing was known")
	}
	if w.noteGuard(guard.ErrForbidden) {
		t.Error("another reason why it is not in force is news")
	}
}

// A cluster that does not answer has not lost its guard, and a leader there is not to be replaced for it.
func TestSilenceSaysNothingOfAGuard(t *testing.T) {
	silence := errors.New("context deadline exceeded")
	for name, test := range map[string]struct {
		before, found error
		inForce, news bool
	}{
		"one in force, and found so":                      {nil, nil, true, false},
		"one in force, and nobody answers":                {nil, silence, true, false},
		"one in force, and this hub may not write":        {nil, ErrUnchecked, true, false},
		"one in force, and now forbidden":                 {nil, fmt.Errorf("install: %w", guard.ErrForbidden), false, true},
		"one in force, in a cluster that knows none now":  {nil, fmt.Errorf("install: %w", guard.ErrUnsupported), false, true},
		"one that was in force, and lets a write through": {nil, fmt.Errorf("verify: %w", guard.ErrNotEnforced), false, true},
		"one that is not known, and nobody answers":       {ErrUnchecked, silence, false, false},
		"one that is not known, and found in force":       {ErrUnchecked, nil, true, true},
		"one that is not in force, and nobody answers":    {guard.ErrNotEnforced, silence, false, false},
		"one that is not in force, and is found to be":    {guard.ErrNotEnforced, nil, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := New(Options{})
			w.unguarded = test.before
			news := w.noteCheck(test.found)
			if err := w.Unguarded(); (err == nil) != test.inForce || news != test.news {
				t.Errorf("it is in force: %v (%v), news: %v; want %v, %v", err == nil, err, news, test.inForce, test.news)
			}
		})
	}
}

// Where another installation serves the fleet this one writes nothing, and where nobody does it claims it first.
func TestAGuardIsKeptByTheInstallationThatServesTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.by = them
		defer r.runs(r.keepGuard)()
		pass(time.Second)
		if looked, _ := r.since(); len(looked) > 0 {
			t.Errorf("looked at %v, although another installation serves the fleet", looked)
		}
		r.will(func(r *rig) { r.by = "" })
		pass(guardRetry)
		at := []time.Duration{4 * guardRetry}
		if looked, tried := r.since(); !slices.Equal(looked, at) || !slices.Equal(tried, at) {
			t.Errorf("looked at %v, tried at %v, want %v", looked, tried, at)
		}
		if !r.Served("fleet") {
			t.Error("the fleet was not claimed")
		}

		// It stood back in between, so that somebody else may have changed the guard.
		r.will(func(r *rig) { r.by = them })
		r.Wake()
		pass(time.Second)
		r.will(func(r *rig) { r.by = us })
		pass(guardRetry)
		if looked, tried := r.since(); len(looked) != 1 || len(tried) != 1 {
			t.Errorf("after it stood back it looked at %v, tried at %v", looked, tried)
		}
	})
}

// A member that takes no part is let go of with its last Lease, and the guard goes before that.
func TestAGuardGoesWithAMemberThatTakesNoPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.has(eastLease(20))
		p := r.reads()
		defer r.runs(r.keepGuard)()
		pass(5 * time.Second)
		if len(r.east.holds(guard.Name)) != 2 {
			t.Fatalf("there is no guard: %q", r.east.holds("admission"))
		}
		r.is("east", func(m *fleet.Member) { m.PriorityReason = reason.NoPriority })
		r.Wake()
		r.since()
		pass(10 * time.Second)
		if looked, tried := r.since(); len(looked)+len(tried) > 0 {
			t.Errorf("looked at %v, tried at %v, while a Lease is left", looked, tried)
		}
		if len(r.east.holds(guard.Name)) != 2 {
			t.Error("the guard went before the last Lease")
		}

		r.is("east", func(m *fleet.Member) { m.PriorityReason = "" })
		pass(guardRetry)
		if looked, tried := r.since(); len(looked) != 1 || len(tried) != 1 {
			t.Errorf("it came back: looked at %v, tried at %v; want each once", looked, tried)
		}

		r.is("east", func(m *fleet.Member) { m.Gone = true })
		p.Assign(shopLease, assign.Assignment{Role: assign.Absent}, publish.Timings{Timeout: time.Second})
		r.writes()
		r.Wake()
		pass(guardRetry)
		if r.installed() {
			t.Errorf("left are %q", r.east.holds("admission"))
		}
		if r.knows("east") {
			t.Error("it is still known")
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
		"it was made, and is tried":                   {verified: true, tried: true},
		"it was there, and is due":                    {stood: true, due: true, verified: true, tried: true},
		"it was there, and is not due":                {stood: true},
		"it was made, and lets a write pass":          {try: letThrough, verified: true, tried: true, found: guard.ErrNotEnforced},
		"it cannot be looked at":                      {due: true, look: forbidden, found: guard.ErrForbidden},
		"it was there, is due, and lets a write pass": {stood: true, due: true, try: letThrough, verified: true, tried: true, found: guard.ErrNotEnforced},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				if test.stood {
					r.guarded()
				}
				r.look, r.try = test.look, test.try
				verified, err := r.checkGuard(t.Context(), test.due)
				if verified != test.verified || !errors.Is(err, test.found) || (err != nil) != (test.found != nil) {
					t.Errorf("verified %v, %v; want %v, %v", verified, err, test.verified, test.found)
				}
				if _, tried := r.since(); (len(tried) > 0) != test.tried {
					t.Errorf("tried: %v, want %v", tried, test.tried)
				}
			})
		})
	}
}

// The guard is looked at after a pause, and earlier when the member leaves or nobody serves its fleet.
func TestWhenTheGuardIsDue(t *testing.T) {
	for name, test := range map[string]struct {
		served, leaves, woken bool
		at                    time.Duration
	}{
		"after a pause":                   {true, false, false, time.Minute},
		"not because something changed":   {true, false, true, time.Minute},
		"because the member leaves":       {true, true, true, 0},
		"because nobody serves the fleet": {false, false, true, 0},
		"a member that leaves, not woken": {true, true, false, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				if !test.served {
					r.by = ""
				}
				if test.leaves {
					r.is("east", func(m *fleet.Member) { m.Gone = true })
				}
				if test.woken {
					r.Wake()
					r.Wake() // which does not wait for the first to be heard
				}
				ctx, cancel := context.WithCancel(t.Context())
				returned := make(chan bool, 1)
				go func() { returned <- r.guardDue(ctx, time.Minute) }()
				synctest.Wait()
				if early := len(returned) > 0; early != (test.at == 0) {
					t.Errorf("at once: %v", early)
				}
				if !<-returned {
					t.Error("it ended")
				}
				cancel()
				if r.guardDue(ctx, time.Minute) {
					t.Error("due after the end")
				}
			})
		})
	}
}

// Nothing is written into a member without the right to.
func TestAStandbyChecksNoGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.standby = true
		if verified, err := r.checkGuard(t.Context(), true); verified || !errors.Is(err, ErrUnchecked) {
			t.Errorf("%v, %v", verified, err)
		}
	})
}

// Whoever serves a fleet has its seal. Before that nothing is written into a member.
func TestAGuardWaitsForTheSealOfTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.by, r.unsealed = "", true
		defer r.runs(r.keepGuard)()
		pass(time.Second)
		if looked, tried := r.since(); len(looked)+len(tried) > 0 || r.installed() {
			t.Errorf("looked at %v, tried at %v; there are %q", looked, tried, r.east.holds("admission"))
		}
		r.will(func(r *rig) { r.unsealed = false })
		pass(guardRetry)
		if !r.installed() {
			t.Error("it does not come with the seal")
		}
	})
}
