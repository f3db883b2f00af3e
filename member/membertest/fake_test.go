package membertest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/membertest"
)

const ns = "shop"

func TestFakeLeadsWhereTheTestSaysSo(t *testing.T) {
	const nearly = membertest.Duration - time.Second
	cases := map[string]struct {
		happens func(f *membertest.Fake)
		leads   bool
		epoch   int64
	}{
		"nowhere at first":                 {func(*membertest.Fake) {}, false, 0},
		"where it is promoted":             {func(f *membertest.Fake) { f.Promote(ns) }, true, 1},
		"nowhere else":                     {func(f *membertest.Fake) { f.Promote("other") }, false, 0},
		"in a new term when promoted anew": {func(f *membertest.Fake) { f.Promote(ns); f.Promote(ns) }, true, 2},
		"not after a demotion":             {func(f *membertest.Fake) { f.Promote(ns); f.Demote(ns) }, false, 0},
		"above the epoch of the demotion": {func(f *membertest.Fake) {
			f.Promote(ns)
			f.Demote(ns)
			f.Promote(ns)
		}, true, 3},
		"not without a Lease":     {func(f *membertest.Fake) { f.Promote(ns); f.DeleteLease(ns) }, false, 0},
		"until the term runs out": {func(f *membertest.Fake) { f.Promote(ns); f.Advance(nearly) }, true, 1},
		"and not after":           {func(f *membertest.Fake) { f.Promote(ns); f.Expire() }, false, 0},
		"for longer when it is renewed": {func(f *membertest.Fake) {
			f.Promote(ns)
			f.Advance(nearly)
			f.Renew(ns)
			f.Advance(nearly)
		}, true, 1},
		"again when it is renewed too late": {func(f *membertest.Fake) { f.Promote(ns); f.Expire(); f.Renew(ns) }, true, 1},
		"as long as nobody moves the clock": {func(f *membertest.Fake) { f.Promote(ns); <-time.After(time.Hour) }, true, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := membertest.New()
				tc.happens(f)
				if term, ok := f.Term(ns); ok != tc.leads || term.Epoch() != tc.epoch {
					t.Errorf("leads = %v in epoch %d, want %v in %d", ok, term.Epoch(), tc.leads, tc.epoch)
				}
			})
		})
	}
}

// What a test asks for has happened when the call returns.
func TestFakeEndsContextsBeforeItReturns(t *testing.T) {
	for name, end := range map[string]func(f *membertest.Fake){
		"Promote":     func(f *membertest.Fake) { f.Promote(ns) },
		"Demote":      func(f *membertest.Fake) { f.Demote(ns) },
		"DeleteLease": func(f *membertest.Fake) { f.DeleteLease(ns) },
		"Expire":      func(f *membertest.Fake) { f.Expire() },
	} {
		t.Run(name, func(t *testing.T) {
			f := membertest.New()
			f.Promote(ns)
			ctx, cancel, err := f.Context(t.Context(), ns)
			if err != nil {
				t.Fatal(err)
			}
			defer cancel()
			end(f)
			if !errors.Is(context.Cause(ctx), member.ErrLost) {
				t.Errorf("cause = %v, want ErrLost", context.Cause(ctx))
			}
		})
	}
}
