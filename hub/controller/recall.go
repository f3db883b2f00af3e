package controller

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
)

// longestDuration is the longest D that a policy may have.
const longestDuration = time.Hour

// recall takes what this tenure recorded last for what the record says, if somebody who
// is no hub has written or deleted it since: an edit is not heeded, and persist puts it
// right. What may be the word of another tenure is heeded instead, as is what a new
// tenure finds. asked is a reading from before the record was read.
func (c *Controller) recall(ctx context.Context, v *view, asked lease.Reading) {
	c.mu.Lock()
	known, ok := c.recorded[v.key]
	c.mu.Unlock()
	switch changed := ok && (v.found == nil || differs(v.found, &known)); {
	case ok && !changed:
	case changed && c.Elected(ctx): // a later tenure takes the election before it writes: asked for live, after the record
		v.edited = true
		if v.vanished = v.object == nil; v.vanished {
			v.object = c.newRecord(v)
		}
		known.DeepCopyInto(&v.object.Status)
	case v.found != nil:
		c.remember(v.key, v.found, asked)
	default:
		c.forget(v.key)
	}
	v.moved = c.fromElsewhere(v.object)
	if v.object != nil {
		v.state.Record = recordOf(&v.object.Status)
	}
	if r := v.state.Record; !lease.PlausibleEpoch(asked.Wall, r.Epoch) || r.Duration > longestDuration {
		v.edited, v.state.Record = true, election.Record{} // no hub has ever written such a thing: it is as good as lost
	}
}

// settlesIn is how long after a reading all earlier tenures will have ended: h after the start of
// this one, even if the election's Lease was lost, and not before what was inherited is
// over. It is 0 if they have. A write of theirs that arrives later has no consequences any
// more.
func (c *Controller) settlesIn(at lease.Reading) time.Duration {
	started, inherited := c.Tenure.Started()
	boot, wall := started.Boot+c.Tenure.ElectionDuration()-at.Boot, inherited.Sub(at.Wall)
	if wall >= 0 {
		wall++ // the instant itself is still theirs
	}
	return max(0, boot, wall)
}

// overlapsFor is how long after a reading an earlier tenure may still be at work, by its own right: until the
// instant up to which it can have stamped, and no longer than h after the start of this one, because it cannot have
// renewed after that. That lies ahead only where the election's Lease was lost, or says anything odd. The earlier tenure knows
// nothing of this one, so that a bound which it counts leaves out what this one stamps, and it may grant by that.
// Nothing is decided, and so nothing is stamped, before it has ended; what stands it renews itself meanwhile.
func (c *Controller) overlapsFor(at lease.Reading) time.Duration {
	started, inherited := c.Tenure.Started()
	ahead := min(inherited.Sub(started.Wall), c.Tenure.ElectionDuration())
	return max(0, started.Boot+ahead-at.Boot)
}

// remember notes what a record says that was read or written after the reading. What
// earlier tenures may still change is not worth noting: a change of theirs would look
// like an edit.
func (c *Controller) remember(key types.NamespacedName, s *v1alpha1.NamespaceLeaderStatus, asked lease.Reading) {
	if c.settlesIn(asked) > 0 {
		c.forget(key)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recorded[key] = *s.DeepCopy()
}

// forget drops what is known of a record: the next look takes what it finds.
func (c *Controller) forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.recorded, key)
}
