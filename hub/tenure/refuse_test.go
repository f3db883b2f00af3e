package tenure_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/leasecast/leasecast/hub/tenure"
)

var errInvalid = errors.New("the clock is wrong: set it right")

// refusing has a tenure refuse for as long as the returned switch is on.
func refusing(t *tenure.Tenure) *atomic.Bool {
	on := &atomic.Bool{}
	t.RefuseIf(func() error {
		if on.Load() {
			return errInvalid
		}
		return nil
	})
	return on
}

// A process whose Leases would be useless neither wins nor renews the election, but releases it.
func TestRefuseIf(t *testing.T) {
	refused := func(t *testing.T, err error) {
		t.Helper()
		if !errors.Is(err, errInvalid) || !strings.Contains(err.Error(), "left to another replica") {
			t.Errorf("%v", err)
		}
	}
	for name, before := range map[string]*electionRecord{"no Lease": nil, "a released Lease": stored(released(-10))} {
		t.Run("not won while it refuses: "+name, func(t *testing.T) {
			s := &store{record: before}
			r := newReplica(t, s, "a")
			on := refusing(r.Tenure)
			on.Store(true)
			refused(t, r.try(0, 0, 0))
			if s.record != before || r.Holds() {
				t.Errorf("held: %t, %+v", r.Holds(), s.record)
			}
			on.Store(false)
			if r.wins(1, 1, 1); !r.Holds() {
				t.Error("it does not hold after it has refused")
			}
		})
	}
	t.Run("held: not renewed, but released", func(t *testing.T) {
		s := &store{}
		r := newReplica(t, s, "a").wins(0, 0, 0)
		on := refusing(r.Tenure)
		r.wins(1, 1, 1)
		on.Store(true)
		refused(t, r.try(2, 2, 2))
		if got := s.get(); !got.RenewTime.Time.Equal(wall(1)) {
			t.Errorf("renewed at %v", got.RenewTime)
		}
		if r.play("read; release 2"); s.get().HolderIdentity != "" {
			t.Errorf("held by %q", s.get().HolderIdentity)
		}
	})
}
