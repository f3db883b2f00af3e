package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/seal"
)

// look finds the record. It reads it live once. After that the record is what this tenure wrote last, until a watch
// shows a write of somebody else or a write fails. A decision on an outdated record does no harm: its write fails
// (compare-and-swap), and no other tenure decides before this one has lost the right to act.
func (c *Controller) look(ctx context.Context, v *view) error {
	s := c.recall(v.key)
	if s.versions.foreign() {
		s.current = false
	}
	asked := c.Clock.Now()
	if s.current {
		v.object, v.found = s.known, &s.known.Spec // shared: nobody changes it
		v.state.Record = recordOf(v.found)
	} else {
		object := &v1alpha1.NamespaceLeader{}
		switch err := c.live.Get(ctx, v.key, object); {
		case err == nil:
			v.object, v.found = object, object.Spec.DeepCopy()
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("record %s: %w", v.key, err)
		}
		c.detectEdit(ctx, v, asked)
	}
	v.dropAbsurd(asked.Wall)
	return nil
}

// dropAbsurd takes a record for lost that no hub whose clock was right has written.
func (v *view) dropAbsurd(now time.Time) {
	switch r := v.state.Record; {
	case !lease.PlausibleEpoch(now, r.Epoch):
		v.edited, v.absurd, v.state.Record = true, true, election.Record{}
	case r.Duration > lease.MaxDuration, r.Skew > lease.MaxSkew, r.Stop > seal.MaxStop:
		v.edited, v.absurd, v.state.Record = true, true, election.Record{Epoch: r.Epoch} // no epoch falls
	}
}

// detectEdit compares a record that was read live with what this tenure knows of it. An edit of anybody who is no hub
// has no effect: the decision uses what is known, and persist restores it. If a later tenure may have written the
// record, nothing is decided any more. A new tenure knows nothing yet, and believes what it finds. asked is a reading
// from before the record was read.
func (c *Controller) detectEdit(ctx context.Context, v *view, asked lease.Reading) {
	var known v1alpha1.NamespaceLeaderSpec
	last := c.recall(v.key).known
	v.moved = c.fromElsewhere(v.object)
	if v.moved {
		last = nil // whatever this hub knew, what the record says is the other hub's word
		c.forget(v.key)
	}
	if last != nil {
		last.Spec.DeepCopyInto(&known)
		if v.found != nil {
			known.Hub = v.found.Hub // a mark that somebody took off is put back with the next write
		}
	}
	switch changed := last != nil && !equality.Semantic.DeepEqual(v.found, &known); { // also if there is none any more
	case c.isOwn(v.key, v.found):
		c.cameTrue(v.key)
		c.remember(v, v.object, asked)
	case changed && !c.Elected(ctx):
		// A later tenure takes the election before it writes, and this is asked for live, after the record.
		v.stop, v.renews = "the record was changed, and this replica may not be the elected one any more", true
	case changed:
		v.edited = true
		if v.vanished = v.object == nil; v.vanished {
			v.object = newRecord(v.key)
		}
		v.object.Spec = known
	case v.found != nil && !v.moved:
		c.remember(v, v.object, asked)
	}
	if v.object != nil {
		v.state.Record = recordOf(&v.object.Spec)
	}
}

// remember notes a record that was read or written after the reading. It notes nothing while an earlier tenure may
// still write, because such a write would look like an edit. Nor does it note another hub's record, which is that
// one's to change.
func (c *Controller) remember(v *view, o *v1alpha1.NamespaceLeader, asked lease.Reading) {
	s := c.namespace(v.key)
	s.versions.note(o.ResourceVersion)
	if c.fromElsewhere(o) || c.Tenure.EarlierEndIn(asked, v.skew) > 0 {
		s.known, s.current = nil, false
		return
	}
	s.known, s.current = o.DeepCopy(), true
	s.known.ManagedFields = nil // nothing here needs them, and an update without them leaves them as they are
}

// mostPending is how many writes without an answer are remembered for one record.
const mostPending = 10

// mayComeTrue notes a write of a record that got no answer. It may have been carried out, or may be yet: the next look
// takes what it finds, and what a later look finds is no edit if it is this.
func (c *Controller) mayComeTrue(key types.NamespacedName, spec *v1alpha1.NamespaceLeaderSpec) {
	c.forget(key)
	s := c.namespace(key)
	s.unanswered = append(s.unanswered, *spec)
	s.unanswered = s.unanswered[max(0, len(s.unanswered)-mostPending):]
}

// cameTrue notes that a write of this tenure was carried out. None that was sent before can be any more: each
// names the version that it replaces.
func (c *Controller) cameTrue(key types.NamespacedName) { c.recall(key).unanswered = nil }

// isOwn reports whether a record is what a write of this tenure says that got no answer.
func (c *Controller) isOwn(key types.NamespacedName, found *v1alpha1.NamespaceLeaderSpec) bool {
	return slices.ContainsFunc(c.recall(key).unanswered, func(s v1alpha1.NamespaceLeaderSpec) bool {
		return equality.Semantic.DeepEqual(&s, found)
	})
}

// forget drops what is known of a record: the next look takes what it finds.
func (c *Controller) forget(key types.NamespacedName) {
	s := c.recall(key)
	s.known, s.current = nil, false
}

// lookAgain has the next look read the record live, and compare it with what is known.
func (c *Controller) lookAgain(key types.NamespacedName) { c.recall(key).current = false }
