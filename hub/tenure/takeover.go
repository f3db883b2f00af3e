package tenure

import (
	"context"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// maxClockDifference is how far the wall clocks of two replicas may be apart: the largest ε that a
// policy has by default.
const maxClockDifference = time.Second

// longestWait is how long before the end of another replica's tenure a candidate begins to
// wait for it: no shorter than client-go's elector waits between two looks, which is up
// to 2.2 retry periods.
const longestWait = 2200 * time.Millisecond

// TakeOverPromptly wraps the lock of a hub's election so that a candidate takes over as soon as the
// tenure of a replica that was lost has certainly ended.
//
// client-go's elector counts the duration of an election from when it happened to see
// the last renewal, and looks again every 1 to 2.2 retry periods. With a duration of 6 s
// and a period of 1 s that adds up to 4.4 s in which nobody renews anything, more than
// 2r + τ + ε ≤ D leaves. The stamp in the Lease says when the tenure ends: so
// a look shortly before that end waits for it, and one after it finds the election free.
//
// A tenure that a candidate takes from a living replica because their clocks are too far
// apart would do no harm, but be taken back at once. So it must also have gone without a
// renewal for half its duration, in this candidate's own time. The lock of Prompt
// serves one elector.
func TakeOverPromptly(inner resourcelock.Interface, c clock.WithTicker) resourcelock.Interface {
	return &prompt{Interface: inner, clock: c}
}

type prompt struct {
	resourcelock.Interface
	clock clock.WithTicker

	last  resourcelock.LeaderElectionRecord // what the Lease said
	since time.Time                         // when it was first seen to say so
}

// Get shows an election without a holder once the holder's tenure is over.
func (p *prompt) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	for {
		r, raw, err := p.Interface.Get(ctx)
		if err != nil || r.HolderIdentity == "" || r.HolderIdentity == p.Identity() {
			return r, raw, err
		}
		left := p.left(r)
		if left <= 0 {
			free := *r
			free.HolderIdentity = ""
			return &free, raw, nil
		}
		if left > longestWait || !p.wait(ctx, left) {
			return r, raw, nil
		}
	}
}

// left is how long the tenure of the holder may still last.
func (p *prompt) left(r *resourcelock.LeaderElectionRecord) time.Duration {
	now := p.clock.Now()
	// Not by the JSON of the record, in which times are whole seconds.
	if r.HolderIdentity != p.last.HolderIdentity || r.LeaderTransitions != p.last.LeaderTransitions || !r.RenewTime.Equal(&p.last.RenewTime) {
		p.last, p.since = *r, now
	}
	duration := time.Duration(r.LeaseDurationSeconds) * time.Second
	return max(r.RenewTime.Add(duration+maxClockDifference).Sub(now), p.since.Add(duration/2).Sub(now))
}

// wait returns true when d has passed, false when ctx ended before that.
func (p *prompt) wait(ctx context.Context, d time.Duration) bool {
	timer := p.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}
