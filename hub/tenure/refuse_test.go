package tenure_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasecast/leasecast/hub/tenure"
)

var errUseless = errors.New("the clock is wrong: set it right")

// uselessIf has a tenure refuse for as long as the returned switch is on.
func uselessIf(t *tenure.Tenure) *atomic.Bool {
	is := &atomic.Bool{}
	t.RefuseIf(func() error {
		if is.Load() {
			return errUseless
		}
		return nil
	})
	return is
}

func TestRefuse(t *testing.T) {
	refused := func(t *testing.T, err error) {
		t.Helper()
		if !errors.Is(err, errUseless) || !strings.Contains(err.Error(), "left to another replica") {
			t.Errorf("%v", err)
		}
	}
	for name, test := range map[string]func(t *testing.T, s *store, a *replica, useless *atomic.Bool){
		"nothing is refused to a process that is of use": func(_ *testing.T, _ *store, a *replica, _ *atomic.Bool) {
			a.wins(0, 0, 0).wins(1, 1, 1)
		},
		"an election of which there is no trace is not won": func(t *testing.T, s *store, a *replica, useless *atomic.Bool) {
			useless.Store(true)
			refused(t, a.try(0, 0, 0))
			if s.record != nil || a.Holds() {
				t.Errorf("held: %t, %+v", a.Holds(), s.record)
			}
		},
		"an election that is free is not won": func(t *testing.T, s *store, a *replica, useless *atomic.Bool) {
			r := released(-10)
			s.put(&r)
			useless.Store(true)
			refused(t, a.try(0, 0, 0))
			if got := s.get(); got.HolderIdentity != "" || a.Holds() {
				t.Errorf("held: %t, by %q", a.Holds(), got.HolderIdentity)
			}
		},
		"it is won once that has passed": func(t *testing.T, _ *store, a *replica, useless *atomic.Bool) {
			useless.Store(true)
			refused(t, a.try(0, 0, 0))
			useless.Store(false)
			a.wins(1, 1, 1)
			if !a.Holds() {
				t.Error("it does not hold")
			}
		},
		"what is held is not renewed": func(t *testing.T, s *store, a *replica, useless *atomic.Bool) {
			a.wins(0, 0, 0)
			before := s.get()
			useless.Store(true)
			refused(t, a.try(1, 1, 1))
			if got := s.get(); !got.RenewTime.Equal(&before.RenewTime) {
				t.Errorf("renewed at %v", got.RenewTime)
			}
		},
		"but is released, so that another replica need not wait": func(t *testing.T, s *store, a *replica, useless *atomic.Bool) {
			a.wins(0, 0, 0)
			useless.Store(true)
			if err := a.letsGo(1); err != nil || s.get().HolderIdentity != "" {
				t.Errorf("held by %q, %v", s.get().HolderIdentity, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &store{}
			a := newReplica(t, s, "a")
			test(t, s, a, uselessIf(a.Tenure))
		})
	}
}

// client-go's elector gives up at its renew deadline, releases, and the standby takes over.
func TestAnElectorThatIsRefusedMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		a := start(t, s, "a", direct)
		useless := uselessIf(a.Tenure)
		until(t, 10*second, a.Holds, nil)
		b := start(t, s, "b", direct)
		alsoUseless := uselessIf(b.Tenure)
		<-time.After(h + second)
		useless.Store(true)
		alsoUseless.Store(true)
		<-a.ended
		for range 30 {
			<-time.After(second)
			if b.Holds() {
				t.Fatal("a candidate that is of no use has won")
			}
		}
		alsoUseless.Store(false)
		until(t, 3*second, b.Holds, nil)
	})
}
