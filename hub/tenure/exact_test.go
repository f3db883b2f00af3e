package tenure_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"

	"github.com/leasecast/leasecast/hub/tenure"
)

// A candidate waits for the end of another's tenure from 2.2 s before it on. Nobody waits for the end of
// one's own, or takes it for free: client-go's elector has to find itself there to renew it.
func TestWhoseEndIsWaitedFor(t *testing.T) {
	const nearEnd = 2200 * time.Millisecond
	for name, test := range map[string]struct {
		holder string
		left   time.Duration
		shown  string
		waits  time.Duration
	}{
		"another's, when it is near":             {"a", nearEnd, "", nearEnd},
		"not before":                             {"a", nearEnd + 1, "a", 0},
		"another's that is over is free":         {"a", 0, "", 0},
		"one's own is not waited for":            {"b", nearEnd, "b", 0},
		"nor free when it is over, or long over": {"b", -time.Minute, "b", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &store{}
				r := claim(test.holder, 0)
				r.RenewTime.Time = time.Now()
				s.put(&r)
				p := tenure.TakeOverPromptly(s.lock("b"), clock.RealClock{})
				if _, _, err := p.Get(t.Context()); err != nil {
					t.Fatal(err)
				}
				<-time.After(h + second - test.left) // the clocks may be a second apart
				began := time.Now()
				got, _, err := p.Get(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if waited := time.Since(began); got.HolderIdentity != test.shown || waited != test.waits {
					t.Errorf("held by %q after %v, want %q after %v", got.HolderIdentity, waited, test.shown, test.waits)
				}
			})
		})
	}
}

// Whatever the election's Lease says: who has wanted to give up renewTimes no more, and never renews.
func TestAReleaseThatFailsIsOneAllTheSame(t *testing.T) {
	r := newReplica(t, &store{}, "a").wins(0, 0, 0)
	if _, _, err := r.lock.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	arrives := r.inner.arrive
	r.inner.arrive = func(context.Context) error { return errAmbiguous }
	if r.lock.Update(t.Context(), release(1)) == nil {
		t.Fatal("the release did not fail")
	}
	r.inner.arrive = arrives
	if err := r.try(2, 2, 2); err == nil {
		t.Error("it is renewed after it was released")
	}
	if r.MayWrite(at(2)) {
		t.Error("it may renewTime")
	}
}

func TestAnElectionThatCannotBeMadeIsNotWon(t *testing.T) {
	r := newReplica(t, &store{}, "a")
	r.inner.arrive = func(context.Context) error { return errAmbiguous }
	if err := r.try(0, 0, 0); err == nil {
		t.Error("the elector is told that it has won")
	}
}

// Rule 1: a tenure goes on only as the very one that was won: by what the elector sends, and by what it read last.
func TestWhatBreaksATenure(t *testing.T) {
	change := func(r resourcelock.LeaderElectionRecord, change func(*resourcelock.LeaderElectionRecord)) resourcelock.LeaderElectionRecord {
		change(&r)
		return r
	}
	more := func(r *resourcelock.LeaderElectionRecord) { r.LeaderTransitions++ }
	for name, test := range map[string]struct {
		read, sent resourcelock.LeaderElectionRecord
		goesOn     bool
	}{
		"nothing":                        {claim("a", 0), claim("a", 2), true},
		"another holder":                 {claim("b", 0), claim("a", 2), false},
		"another term of the same":       {change(claim("a", 0), more), claim("a", 2), false},
		"a term that is not sent":        {claim("a", 0), change(claim("a", 2), more), false},
		"a renewTime after the deadline": {claim("a", 0), claim("a", 6), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &store{}
			r := newReplica(t, s, "a").wins(0, 0, 0)
			s.put(&test.read)
			if _, _, err := r.lock.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.clock.Set(at(2)) // the wall clock may have been stepped since the renewTime
			if err := r.lock.Update(t.Context(), test.sent); (err == nil) != test.goesOn {
				t.Errorf("got %v", err)
			}
		})
	}
}

// What a tenure inherited has nanoseconds, a renewal has none: one of the instant of the start is no older.
func TestARenewalOfTheInstantOfTheStartGoesOn(t *testing.T) {
	r := newReplica(t, &store{}, "a").wins(0, 0, 0.0000019)
	if err := r.try(0.0000019, 0.1, 0.1); err != nil {
		t.Error(err)
	}
}

func TestWhatIsReleased(t *testing.T) {
	t.Run("an election that was just won, without a look", func(t *testing.T) {
		r := newReplica(t, &store{}, "a").wins(0, 0, 0)
		if err := r.lock.Update(t.Context(), release(1)); err != nil {
			t.Error(err)
		}
	})
	t.Run("none that an old request of its own has made, while another replica may go on without its Lease", func(t *testing.T) {
		for name, late := range map[string]func(*resourcelock.LeaderElectionRecord){
			"an earlier term":    func(r *resourcelock.LeaderElectionRecord) { r.AcquireTime = metav1.NewTime(wall(-200)) },
			"an older renewTime": func(r *resourcelock.LeaderElectionRecord) { r.RenewTime = metav1.NewTime(wall(-0.001)) },
			"another count":      func(r *resourcelock.LeaderElectionRecord) { r.LeaderTransitions++ },
		} {
			s := &store{}
			r := newReplica(t, s, "a").wins(0, 0, 0)
			lease := s.get()
			late(&lease)
			s.put(&lease)
			if err := r.letsGo(9); err == nil || s.get() != lease {
				t.Errorf("%s: released: %v, %+v", name, err, s.get())
			}
		}
	})
	t.Run("none that could not be looked at", func(t *testing.T) {
		r := newReplica(t, &store{}, "a").wins(0, 0, 0)
		arrives := r.inner.arrive
		r.inner.arrive = func(context.Context) error { return errAmbiguous }
		if _, _, err := r.lock.Get(t.Context()); err == nil {
			t.Fatal("the look did not fail")
		}
		r.inner.arrive = arrives
		if err := r.lock.Update(t.Context(), release(1)); err == nil {
			t.Error("it was released")
		}
	})
}
