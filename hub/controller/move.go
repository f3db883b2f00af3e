package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/seal"
)

// fromElsewhere reports whether the record carries another hub's mark. Then it came by a move, or is a copy, or
// this hub has relinquished it.
func (c *Controller) fromElsewhere(o *v1alpha1.NamespaceLeader) bool {
	if o == nil {
		return false
	}
	return o.Spec.Hub != "" && o.Spec.Hub != c.HubID
}

// checkMove stops a decision that a move makes meaningless, on the source or the target.
func (c *Controller) checkMove(ctx context.Context, v *view) error {
	switch {
	case slices.ContainsFunc(v.members, func(m memberView) bool { return m.DeleteForMove }):
		v.stop = "the Clusters are moving to another hub"
	case v.stop != "":
	case v.moved && v.policy == nil:
		v.stop, v.renews = "the record came from another hub, and no policy claims the namespace yet", true
	case v.vanished, v.found == nil && v.allPaused(), v.policy == nil && c.managed(v):
		move, err := c.source.move(ctx, v.key.Namespace)
		switch {
		case err != nil:
			return err
		case move == fleet.Moving:
			v.stop, v.renews = "all Clusters are paused, as in a move: that a record or its policy is gone means nothing", true
		case move == fleet.MovedAway:
			v.stop = "the Clusters have moved to another hub"
			if v.found == nil {
				c.drop(v.key)
			}
		}
	}
	return nil
}

// allPaused reports whether all Clusters of the fleet are paused, from a cache.
func (v *view) allPaused() bool {
	return len(v.members) > 0 && !slices.ContainsFunc(v.members, func(m memberView) bool { return !m.Paused })
}

// managed reports whether the namespace has a record that is not retired, or had a record until now.
func (c *Controller) managed(v *view) bool {
	return v.found == nil && c.recall(v.key).highest > 0 || v.found != nil && v.state.Record.State != "" && v.state.Record.State != election.Retired
}

// addMove adds what is known of other hubs. One is the hub that a namespace came from. Another may lead it now, by
// Leases of any name.
//
// The former may have renewed until now, unless it has relinquished the Leases, or this hub has seen all of them.
// The latter may renew as long as Leases have its mark: a watch shows renewals late. What it promised counts for D
// and ε after that.
func (c *Controller) addMove(v *view) {
	at := c.now()
	now, s := at.Wall, &v.state
	s.Moved = v.moved
	other := seal.Bounds{}
	for i := range v.members {
		m := &v.members[i]
		if m.publisher == nil {
			continue
		}
		for _, key := range m.publisher.LeasesIn(v.key.Name) {
			switch cp, sealed, ok := m.publisher.Find(key); {
			case !ok:
			case cp.Hub != "" && cp.Hub != c.HubID:
				// Two hubs whose policies name their Leases differently do not affect each other there.
				s.OtherHub = s.OtherHub || v.moved || cp.LeadsHere() && cp.Live(now.Add(-s.LargestSkew-s.LargestStop))
				other = other.Max(seal.Bounds{Duration: min(cp.Duration, lease.MaxDuration), Skew: min(cp.Skew, lease.MaxSkew)})
			case sealed && v.moved && lease.PlausibleEpoch(now, cp.Epoch):
				s.Highest = max(s.Highest, cp.Epoch)
				v.addFound(m, cp, at.Boot)
			}
		}
	}
	c.inherit(v, v.moved || s.OtherHub && (v.policy != nil || v.found != nil), now, other)
}

// inherit adds what another hub can have promised, and records it while that hub is seen. The other hub may have
// renewed until the first look that does not find it any more.
func (c *Controller) inherit(v *view, seen bool, now time.Time, bounds seal.Bounds) {
	known, s := c.recall(v.key), &v.state
	if seen || known.otherSeen {
		known = c.namespace(v.key)
		known.otherHub, known.otherSeen, known.otherBounds = now, seen, known.otherBounds.Max(bounds)
	}
	if known.otherHub.After(s.Tenure.Inherited) {
		s.Tenure.Inherited = known.otherHub
	}
	s.LargestDuration, s.LargestSkew = max(s.LargestDuration, known.otherBounds.Duration), max(s.LargestSkew, known.otherBounds.Skew)
}

// takeOver puts this hub's mark on the record once the Leases are this hub's. From then on it is a record like any
// other.
func (c *Controller) takeOver(ctx context.Context, v *view, d election.Decision) error {
	if !v.moved || v.object == nil || d.Persist || !v.leasesAreOurs() {
		return nil
	}
	from, object := v.object.Spec.Hub, v.object.DeepCopy()
	object.Spec.Hub = c.HubID
	switch err := c.client.Update(ctx, object); {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil // the other writer's event enqueues it again
	case err != nil:
		return fmt.Errorf("take over record %s: %w", v.key, err)
	}
	v.object = object
	log.FromContext(ctx).Info("A record of another hub was taken over", "namespaceLeader", klog.KRef(v.key.Namespace, v.key.Name),
		"leader", v.state.Record.Leader, "epoch", v.state.Record.Epoch, "from", from, "reason", reason.Moved)
	return nil
}

// leasesAreOurs reports whether the leader's Lease is this hub's or, where nobody leads, all Leases are.
func (v *view) leasesAreOurs() bool {
	r := v.state.Record
	switch {
	case r.State == election.Leading:
		return slices.ContainsFunc(v.members, func(m memberView) bool { return m.Name == r.Leader && m.facts.Marked && m.facts.InPlace })
	case r.State != election.Vacant || r.Reason != reason.Moved:
		return false
	}
	return !slices.ContainsFunc(v.members, func(m memberView) bool { return m.takesPart && !v.isOurs(&m) })
}

// isOurs reports whether nothing in a member is, or may be, another hub's.
func (v *view) isOurs(m *memberView) bool {
	switch {
	case !m.isRead || m.publisher == nil:
		return false
	case m.namespace == nil || m.namespace.Status.Phase == corev1.NamespaceTerminating:
		return true
	case v.state.Record.Epoch == 0:
		return len(m.publisher.LeasesIn(v.key.Name)) == 0
	}
	return m.facts.Marked && m.facts.InPlace
}
