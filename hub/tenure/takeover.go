package tenure

import (
	"context"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// maxClockDifference is how far the wall clocks of two replicas may be apart: the default ε of a policy.
const maxClockDifference = time.Second

// longestWait is how long before the end of another replica's tenure a contender may start to wait for it. It must
// not be shorter than the pause of client-go's elector between two reads, which is up to 2.2 retry periods.
const longestWait = 2200 * time.Millisecond

// TakeOverPromptly wraps the lock of a hub's election. So a contender takes over as soon as the tenure of a lost
// replica has certainly ended.
//
// client-go's elector counts the duration of an election from when it saw the last renewal, and reads again every 1
// to 2.2 retry periods. With a duration of 6 s and a period of 1 s, that adds up to 4.4 s in which nobody renews
// anything. That is more than 2r + τ + ε ≤ D leaves. The renewTime in the Lease shows when the tenure ends. So a
// read shortly before that end waits for it, and a read after it finds the election free.
//
// If the clocks of two replicas are too far apart, a contender would take the election from a living replica. That
// does no harm, but the other would take it back at once. So the tenure must also have gone without a renewal for
// half its duration, in this contender's own time. The lock serves one elector.
func TakeOverPromptly(inner resourcelock.Interface, c clock.WithTicker) resourcelock.Interface {
	return &prompt{Interface: inner, clock: c}
}

type prompt struct {
	resourcelock.Interface
	clock clock.WithTicker

	last  resourcelock.LeaderElectionRecord // as last read
	since time.Time                         // when this contender first read it
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

// left returns how long the tenure of the holder may still last.
func (p *prompt) left(r *resourcelock.LeaderElectionRecord) time.Duration {
	now := p.clock.Now()
	// Compare fields, because the JSON of the record has times in whole seconds.
	if r.HolderIdentity != p.last.HolderIdentity || !r.RenewTime.Equal(&p.last.RenewTime) {
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
