package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
)

// recall takes what this tenure recorded last for what the record says, if somebody who
// is no hub has written or deleted it since: an edit is not heeded, and persist puts it
// right. Where it may be the word of a later tenure, nothing is decided any more. What a new
// tenure finds is heeded. asked is a reading from before the record was read.
func (c *Controller) recall(ctx context.Context, v *view, asked lease.Reading) {
	c.mu.Lock()
	known, ok := c.recorded[v.key]
	c.mu.Unlock()
	if v.found != nil {
		known.Hub = v.found.Hub // a record that is let go of, or taken over, is no edit
	}
	switch changed := ok && (v.found == nil || !equality.Semantic.DeepEqual(v.found, &known)); {
	case changed && !c.Elected(ctx):
		// A later tenure takes the election before it writes, and this is asked for live, after the record.
		v.stop, v.standing = "the record was changed, and this replica may not be the elected one any more", true
	case changed:
		v.edited = true
		if v.vanished = v.object == nil; v.vanished {
			v.object = c.newRecord(v)
		}
		known.DeepCopyInto(&v.object.Spec)
	case ok:
	case v.found != nil:
		c.remember(v.key, v.found, asked)
	}
	v.moved = c.fromElsewhere(v.object)
	if v.object != nil {
		v.state.Record = recordOf(&v.object.Spec)
	}
	// No hub whose clock was right has written such a thing: it is as good as lost.
	switch r := v.state.Record; {
	case !lease.PlausibleEpoch(asked.Wall, r.Epoch):
		v.edited, v.absurd, v.state.Record = true, true, election.Record{}
	case r.Duration > lease.MaxDuration:
		v.edited, v.absurd, v.state.Record = true, true, election.Record{Epoch: r.Epoch} // no epoch falls
	}
}

// remember notes what a record says that was read or written after the reading. What
// earlier tenures may still change is not worth noting: a change of theirs would look
// like an edit.
func (c *Controller) remember(key types.NamespacedName, s *v1alpha1.NamespaceLeaderSpec, asked lease.Reading) {
	if c.Tenure.Settles(asked) > 0 {
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
