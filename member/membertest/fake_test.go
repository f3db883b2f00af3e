package membertest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/internal/musttest"
	"github.com/leasecast/leasecast/member/membertest"
)

const ns = "shop"

// What a test asks for has happened when the call returns. It was promoted in epoch 1 before.
func TestFakeLeadsWhereTheTestSaysSo(t *testing.T) {
	const nearly = membertest.Duration - time.Second
	for name, row := range map[string]struct {
		happens func(f *membertest.Fake)
		epoch   int64 // 0: it does not lead
		ends    bool  // the first term
	}{
		"another namespace":      {func(f *membertest.Fake) { f.Demote("other") }, 1, false},
		"promoted again":         {func(f *membertest.Fake) { f.Promote(ns) }, 2, true},
		"demoted":                {func(f *membertest.Fake) { f.Demote(ns) }, 0, true},
		"demoted and promoted":   {func(f *membertest.Fake) { f.Demote(ns); f.Promote(ns) }, 3, true},
		"its Lease is deleted":   {func(f *membertest.Fake) { f.DeleteLease(ns) }, 0, true},
		"nearly run out":         {func(f *membertest.Fake) { f.Advance(nearly) }, 1, false},
		"run out":                {func(f *membertest.Fake) { f.Expire() }, 0, true},
		"renewed":                {func(f *membertest.Fake) { f.Advance(nearly); f.Renew(ns); f.Advance(nearly) }, 1, false},
		"renewed too late":       {func(f *membertest.Fake) { f.Expire(); f.Renew(ns) }, 1, true},
		"nobody moves the clock": {func(*membertest.Fake) { <-time.After(time.Hour) }, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := membertest.New()
				if _, leads := f.Term(ns); leads {
					t.Error("leads at first")
				}
				f.Promote(ns)
				ctx, done, err := f.Context(t.Context(), ns)
				musttest.Do(t, err)
				defer done()
				row.happens(f)
				cause := context.Cause(ctx)
				if term, ok := f.Term(ns); ok != (row.epoch > 0) || term.Epoch() != row.epoch ||
					errors.Is(cause, member.ErrLost) != row.ends {
					t.Errorf("leads = %v in epoch %d, and the first term ended because of %v", ok, term.Epoch(), cause)
				}
			})
		})
	}
}
