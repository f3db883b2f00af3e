package member_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/internal/musttest"
)

func TestContext_EndsWithItsWorkAndItsParent(t *testing.T) {
	errStop := errors.New("stop")
	type row struct {
		end  func(done context.CancelFunc, stop context.CancelCauseFunc)
		want error
	}
	musttest.Each(t, map[string]row{
		"its work has finished": {func(done context.CancelFunc, _ context.CancelCauseFunc) { done() }, context.Canceled},
		"its parent has ended":  {func(_ context.CancelFunc, stop context.CancelCauseFunc) { stop(errStop) }, errStop},
	}, func(t *testing.T, row row) {
		c := newTestTerms(t)
		c.write(ns, us, 7)
		parent, stop := context.WithCancelCause(context.Background())
		ctx, done, err := c.Context(parent, ns)
		musttest.Do(t, err)
		row.end(done, stop)
		if cause := context.Cause(ctx); !errors.Is(cause, row.want) || errors.Is(cause, member.ErrLost) {
			t.Errorf("cause = %v, want %v", cause, row.want)
		}
		if err := member.Check(ctx); !errors.Is(err, member.ErrNotBegun) || errors.Is(err, member.ErrLost) {
			t.Errorf("Check = %v, want ErrNotBegun without ErrLost", err)
		}
		done() // again does no harm, nor does it after the term
		c.write(ns, them, 8)
		done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	if err := member.Check(ctx); err != nil {
		t.Errorf("Check = %v of a live context without a term", err)
	}
	cancel()
	if err := member.Check(ctx); !errors.Is(err, member.ErrNotBegun) || !errors.Is(err, context.Canceled) {
		t.Errorf("Check = %v of a cancelled context, want ErrNotBegun with context.Canceled", err)
	}
}

// A context that showed the deadline of its term would keep WithTimeout from setting one, and renewals would then move
// it away.
func TestContext_DoesNotHideATimeoutBelowIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestTerms(t)
		c.write(ns, us, 7)
		ctx, done := contextOf(t, c, ns)
		defer done()
		short, cancel := context.WithTimeout(ctx, 2*duration)
		defer cancel()
		for range 6 {
			pass(duration / 3)
			c.write(ns, us, 7)
		}
		synctest.Wait()
		if short.Err() == nil || ctx.Err() != nil {
			t.Errorf("after its timeout: %v; the term: %v; want it ended and the term not", short.Err(), ctx.Err())
		}
	})
}

func TestState_AndContextNameTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestTerms(t)
		expect := func(want member.State) {
			t.Helper()
			want.Namespace, want.Cluster, want.Duration = ns, us, duration
			if got := c.State(ns); got != want {
				t.Errorf("State = %+v, want %+v", got, want)
			}
			_, done, err := c.Context(t.Context(), ns)
			var no *member.NotLeaderError
			switch {
			case err == nil:
				done()
			case !errors.As(err, &no) || !errors.Is(err, member.ErrNotLeader) ||
				errors.Is(err, member.ErrStopped) || no.State != want:
				t.Errorf("Context: err = %v, want %+v", err, want)
			}
		}
		c.write(ns, them, 7)
		expect(member.State{Leader: them, Epoch: 7, Why: "west.fleet leads in epoch 7"})
		c.write(ns, us, 8)
		expect(member.State{Leads: true, Leader: us, Epoch: 8, Terms: 1})
		ctx, done := contextOf(t, c, ns)
		defer done()
		term, _ := c.Term(ns)
		for of, want := range map[context.Context]member.Term{ctx: term, t.Context(): {}} {
			got, ok := member.TermFrom(of)
			epoch, hasEpoch := member.EpochFrom(of)
			cluster, hasCluster := member.ClusterFrom(of)
			if in := of == ctx; got != want || epoch != want.Epoch() || cluster != want.Cluster() ||
				ok != in || hasEpoch != in || hasCluster != in {
				t.Errorf("in a term = %v: the context has epoch %d (%v) of %s (%v), and a term = %v",
					in, epoch, hasEpoch, cluster, hasCluster, ok)
			}
		}
		c.Delete(ns, leaseName)
		expect(member.State{Epoch: 8, Terms: 1, Why: gone})
	})
	synctest.Test(t, func(t *testing.T) { // by the clocks, before a timer runs
		c := newTestTerms(t)
		c.write(ns, us, 7)
		c.clock.Suspend(duration)
		if s := c.State(ns); s.Leads || s.Why != ranOut {
			t.Errorf("State = %+v", s)
		}
	})
}
