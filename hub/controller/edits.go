package controller

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
)

// detectEdit takes what this tenure recorded last for what the record says, if somebody who
// is no hub has written or deleted it since: an edit is not heeded, and persist puts it
// right. Where it may be the word of a later tenure, nothing is decided any more. What a new
// tenure finds is heeded. asked is a reading from before the record was read.
func (c *Controller) detectEdit(ctx context.Context, v *view, asked lease.Reading) {
	c.mu.Lock()
	known, ok := c.recorded[v.key]
	c.mu.Unlock()
	v.moved = c.fromElsewhere(v.object)
	if v.moved {
		ok = false // whatever this hub knew, what the record says is the other hub's word
		c.forget(v.key)
	} else if v.found != nil {
		known.Hub = v.found.Hub // a mark that somebody took off is put back with the next write
	}
	switch changed := ok && (v.found == nil || !equality.Semantic.DeepEqual(v.found, &known)); {
	case changed && c.isOwn(v.key, v.found):
		c.cameTrue(v.key)
		c.remember(v, v.found, asked)
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
	case v.found != nil && !v.moved:
		c.remember(v, v.found, asked)
	}
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
func (c *Controller) remember(v *view, s *v1alpha1.NamespaceLeaderSpec, asked lease.Reading) {
	if c.Tenure.EarlierEndIn(asked, v.skew) > 0 {
		c.forget(v.key)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recorded[v.key] = *s.DeepCopy()
}

// mostPending is how many writes without an answer are remembered for one record.
const mostPending = 10

// mayComeTrue notes a write of a record that got no answer. It may have been carried out, or may be yet: the next look
// takes what it finds, and what a later look finds is no edit if it is this.
func (c *Controller) mayComeTrue(key types.NamespacedName, spec *v1alpha1.NamespaceLeaderSpec) {
	c.forget(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending[key] = append(c.pending[key], *spec)
	c.pending[key] = c.pending[key][max(0, len(c.pending[key])-mostPending):]
}

// cameTrue notes that a write of this tenure was carried out. None that was sent before can be any more: each
// names the version that it replaces.
func (c *Controller) cameTrue(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, key)
}

// isOwn reports whether a record is what a write of this tenure says that got no answer.
func (c *Controller) isOwn(key types.NamespacedName, found *v1alpha1.NamespaceLeaderSpec) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return found != nil && slices.ContainsFunc(c.pending[key], func(s v1alpha1.NamespaceLeaderSpec) bool {
		return equality.Semantic.DeepEqual(&s, found)
	})
}

// forget drops what is known of a record: the next look takes what it finds.
func (c *Controller) forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.recorded, key)
}
