package controller

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/ledger"
)

// gather collects everything that a decision rests on. Caches can only be late.
func (c *Controller) gather(ctx context.Context, key types.NamespacedName) (v *decide.Snapshot, err error) {
	e, err := c.ledger.Take(ctx, key)
	defer func() {
		if err != nil {
			c.ledger.Return(e)
		}
	}()
	if err != nil {
		return nil, err
	}
	members := c.source.Members(key.Namespace)
	policies, err := c.policies.valid(ctx, key.Namespace, members)
	if err != nil {
		return nil, fmt.Errorf("policies of %s: %w", key.Namespace, err)
	}
	bounds := decide.BoundsOf(policies)
	sealed, err := c.seals.of(ctx, key.Namespace, bounds.Skew)
	if err != nil {
		return nil, err
	}
	v = &decide.Snapshot{
		Entry: e, HubID: c.HubID, Skew: max(bounds.Skew, sealed.Largest().Skew),
		Members: make([]decide.Member, 0, len(members)),
	}
	for _, m := range members {
		is, err := c.members.lookAt(ctx, m, key.Name)
		if err != nil {
			return nil, err
		}
		v.Members = append(v.Members, is)
	}
	if !c.source.synced() {
		v.Stop = "the Clusters are not known yet"
	}
	v.Claim(c.claimable(ctx, v, policies))
	if err := c.checkMove(ctx, v); err != nil || v.Stop != "" {
		return v, err
	}
	f := decide.Fleet{Policies: policies, Seal: sealed, Bounds: bounds.Max(sealed.Largest())}
	f.Tenure.Started, f.Tenure.Inherited = c.Tenure.Started()
	c.members.observe(ctx, v, c.now())
	f.Now = c.now() // until now another hub may have written what was not seen
	v.Complete(f)
	return v, nil
}

// claimable returns the policies that may own a namespace.
func (c *Controller) claimable(ctx context.Context, v *decide.Snapshot, policies []*decide.Policy) []*decide.Policy {
	if v.Key.Name == c.OwnNamespace || v1alpha1.NeverManaged(v.Key.Name) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(policies), func(p *decide.Policy) bool { return c.lone.leavesOut(ctx, v, p) })
}

// checkMove stops a decision that a move makes meaningless, on the source or the target.
func (c *Controller) checkMove(ctx context.Context, v *decide.Snapshot) error {
	switch {
	case slices.ContainsFunc(v.Members, func(m decide.Member) bool { return m.DeleteForMove }):
		v.Stop = "the Clusters are moving to another hub"
	case v.Stop != "":
	case v.Moved && v.Policy == nil:
		v.Stop, v.Renews = "the record came from another hub, and no policy claims the namespace yet", true
	case v.Restored, v.Found == nil && decide.AllPaused(v.Members), v.Policy == nil && v.Managed():
		move, err := c.source.Move(ctx, v.Key.Namespace)
		switch {
		case err != nil:
			return err
		case move == fleet.Moving:
			v.Stop, v.Renews = "all Clusters are paused, as in a move: that a record or its policy is gone means nothing", true
		case move == fleet.MovedAway:
			v.Stop = "the Clusters have moved to another hub"
			if v.Found == nil {
				c.drop(v.Entry)
			}
		}
	}
	return nil
}

// drop forgets a namespace without a record.
func (c *Controller) drop(e *ledger.Entry) {
	c.promises.Forget(e.Key)
	c.following.forget(e.Key)
	c.moves.forget(e.Key)
	for _, p := range c.members.publishers(e.Key.Namespace) {
		p.Forget(e.Key.Name)
	}
	c.ledger.Drop(e)
}
