package tenure_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/leasecast/leasecast/hub/tenure"
)

// Between the last renewal of a Lease, which is up to r old when a hub is lost, and its deadline, the successor must be
// elected and renew it: r + h + τ + ε ≤ D.
func TestLostHubIsFollowedWithinItsElectionAndASecond(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			s := &store{}
			a := start(t, s, "a", direct)
			until(t, 10*second, a.Holds, nil)
			b := start(t, s, "b", direct)
			<-time.After(10*second + time.Duration(rand.Int64N(int64(second))))
			a.cutOff()
			lost := s.get().RenewTime.Time
			until(t, 30*second, b.Holds, nil)
			if took := time.Since(lost); took > h+second+50*time.Millisecond {
				t.Errorf("b was elected %v after the last renewal of a", took)
			}
		})
	}
}

// A candidate waits for the end of another replica's tenure from 2.2 s before it on. Clocks may be 1 s apart.
func TestTakeOverPromptly(t *testing.T) {
	const nearEnd = 2200 * time.Millisecond
	for name, test := range map[string]struct {
		holder string
		age    time.Duration // of the renewal, when it is read first
		after  time.Duration // it is read again
		renews time.Duration // the holder renews so long after that
		limit  time.Duration // of the second read
		shown  string
		waits  time.Duration
	}{
		"2.2 s before its end":        {holder: "a", after: h + second - nearEnd, waits: nearEnd},
		"1 ns before that":            {holder: "a", after: h + second - nearEnd - 1, shown: "a"},
		"at its end":                  {holder: "a", after: h + second},
		"the own, long after its end": {holder: "b", age: time.Hour, after: h + time.Minute, shown: "b"},
		"renewed while it waits":      {holder: "a", after: h, renews: second / 2, shown: "a", waits: second},
		"the caller gives up":         {holder: "a", after: h, limit: second / 2, shown: "a", waits: second / 2},
		"by a clock that is an hour late, renewed within half of h": {holder: "a", age: time.Hour, after: h/2 - second/10,
			renews: -1, shown: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r := &store{}, claim(test.holder, 0)
				r.RenewTime.Time = time.Now().Add(-test.age)
				s.put(&r)
				p := tenure.TakeOverPromptly(s.lock("b"), clock.RealClock{})
				if _, _, err := p.Get(t.Context()); err != nil {
					t.Fatal(err)
				}
				<-time.After(test.after)
				began, ctx := time.Now(), t.Context()
				again := r
				again.RenewTime.Time = r.RenewTime.Add(second / 2) // within the same second, as JSON has it
				switch {
				case test.renews > 0:
					time.AfterFunc(test.renews, func() {
						again.RenewTime.Time = time.Now()
						s.put(&again)
					})
				case test.renews < 0:
					s.put(&again)
				}
				if test.limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.limit)
					defer cancel()
				}
				got, _, err := p.Get(ctx)
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
