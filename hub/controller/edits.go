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

// look finds the record. It reads the record live once. After that it uses what this tenure wrote last, until a
// watch shows another client's write or a write fails. A decision on an outdated record does no harm: its write
// fails (compare-and-swap). No other tenure decides before this one has lost the right to act.
func (c *Controller) look(ctx context.Context, v *view) error {
	s := c.recall(v.key)
	if s.versions.foreign() {
		s.current = false
	}
	asked := c.Clock.Now()
	if s.current {
		v.object, v.found = s.known, &s.known.Spec // shared: must not be changed
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

// dropAbsurd treats a record as lost that no hub with a right clock can have written.
func (v *view) dropAbsurd(now time.Time) {
	switch r := v.state.Record; {
	case !lease.PlausibleEpoch(now, r.Epoch):
		v.edited, v.absurd, v.state.Record = true, true, election.Record{}
	case r.Duration > lease.MaxDuration, r.Skew > lease.MaxSkew, r.Stop > seal.MaxStop:
		v.edited, v.absurd, v.state.Record = true, true, election.Record{Epoch: r.Epoch} // the epoch must not fall
	}
}

// detectEdit compares a record that was read live with the one that this tenure knows. An edit by anyone but a hub
// has no effect: the decision uses the known record, and persist restores it. If a later tenure may have written
// the record, nothing is decided any more. A new tenure has no known record, and accepts what it finds. asked is a
// reading from before the record was read.
func (c *Controller) detectEdit(ctx context.Context, v *view, asked lease.Reading) {
	var known v1alpha1.NamespaceLeaderSpec
	last := c.recall(v.key).known
	v.moved = c.fromElsewhere(v.object)
	if v.moved {
		last = nil // the record is the other hub's, whatever this hub knew
		c.forget(v.key)
	}
	if last != nil {
		last.Spec.DeepCopyInto(&known)
		if v.found != nil {
			known.Hub = v.found.Hub // persist restores a mark that an edit removed
		}
	}
	switch changed := last != nil && !equality.Semantic.DeepEqual(v.found, &known); { // also if deleted
	case c.isOwn(v.key, v.found):
		c.cameTrue(v.key)
		c.remember(v, v.object, asked)
	case changed && !c.Elected(ctx):
		// A later tenure takes the election before it writes. Elected asks for that live, after the record was
		// read.
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

// remember stores a record that was read or written after the reading asked. It stores nothing while an earlier
// tenure may still write, because such a write would look like an edit. It also stores nothing for another hub's
// record, which the other hub may change.
func (c *Controller) remember(v *view, o *v1alpha1.NamespaceLeader, asked lease.Reading) {
	s := c.namespace(v.key)
	s.versions.note(o.ResourceVersion)
	if c.fromElsewhere(o) || c.Tenure.EarlierEndIn(asked, v.skew) > 0 {
		s.known, s.current = nil, false
		return
	}
	s.known, s.current = o.DeepCopy(), true
	s.known.ManagedFields = nil // unused here, and an update without them leaves them as they are
}

// mostPending is how many unanswered writes are remembered for one record.
const mostPending = 10

// mayComeTrue remembers a write of a record that got no answer. It may have been applied, or may be applied later.
// The next look accepts what it finds. After that, this write does not count as an edit.
func (c *Controller) mayComeTrue(key types.NamespacedName, spec *v1alpha1.NamespaceLeaderSpec) {
	c.forget(key)
	s := c.namespace(key)
	s.unanswered = append(s.unanswered, *spec)
	s.unanswered = s.unanswered[max(0, len(s.unanswered)-mostPending):]
}

// cameTrue forgets the unanswered writes, because a write of this tenure was applied. No earlier one can be applied
// any more: each names the version that it replaces.
func (c *Controller) cameTrue(key types.NamespacedName) { c.recall(key).unanswered = nil }

// isOwn reports whether a record equals an unanswered write of this tenure.
func (c *Controller) isOwn(key types.NamespacedName, found *v1alpha1.NamespaceLeaderSpec) bool {
	return slices.ContainsFunc(c.recall(key).unanswered, func(s v1alpha1.NamespaceLeaderSpec) bool {
		return equality.Semantic.DeepEqual(&s, found)
	})
}

// forget drops the known record: the next look accepts what it finds.
func (c *Controller) forget(key types.NamespacedName) {
	s := c.recall(key)
	s.known, s.current = nil, false
}

// lookAgain has the next look read the record live, and compare it with the known one.
func (c *Controller) lookAgain(key types.NamespacedName) { c.recall(key).current = false }
