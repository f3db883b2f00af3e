package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/follow"
)

// followLeaders adds what keeps resource sets in place to a manager.
func (c *Controller) followLeaders(mgr mcmanager.Manager) error {
	f := follow.New(follow.Options{
		Fleet: c.Fleet, Place: c.place, Clock: c.Clock, Metadata: c.metadata, PolicyChanged: c.policies.changed,
		MayWrite: func(fleetName string) bool { return c.MayWrite(fleetName, c.Clock.Now()) },
		Queue: func(
			f reconcile.TypedFunc[mcreconcile.Request], concurrent int,
		) controller.TypedOptions[mcreconcile.Request] {
			return controllerOptions(mgr.GetLocalManager(), f, concurrent)
		},
	})
	c.sets = f
	return f.SetupWithManager(mgr)
}

// givesWay reports whether a planned change may begin: what follows the leader has been stopped in its cluster.
func (c *Controller) givesWay(v *decide.Snapshot) bool {
	r := v.State.Record
	return c.sets == nil || c.sets.GiveWay(v.Key, r.Leader, r.Epoch)
}

// leadsOn ends that, if it was so: no planned change goes on.
func (c *Controller) leadsOn(namespace types.NamespacedName) {
	if c.sets != nil {
		c.sets.Stay(namespace)
	}
}

// decided shows sets whether this hub has decided on a namespace.
func (c *Controller) decided(namespace types.NamespacedName, is bool) {
	if c.sets != nil {
		c.sets.Decided(namespace, is)
	}
}

// memberChanged passes on that a member has changed.
func (c *Controller) memberChanged(key fleet.Key) {
	c.sources.memberChanged(key)
	if c.sets != nil {
		c.sets.MemberChanged(key)
	}
}

// place returns who leads a namespace, and which clusters its policy covers, from caches.
func (c *Controller) place(ctx context.Context, namespace types.NamespacedName) (p follow.Place, err error) {
	records := c.ledger.CachedOf(ctx, namespace.Namespace, []string{namespace.Name})
	if len(records) == 0 || records[0].Spec.State == v1alpha1.StateRetired {
		return p, nil
	}
	record := records[0].Spec
	policies, err := c.policies.asShown(ctx, namespace.Namespace)
	for _, policy := range policies {
		if policy.Object.Name != record.Policy || policy.Unknown { // whom it selects is not known
			continue
		}
		p.Managed, p.Clusters = true, map[string]bool{}
		for _, m := range c.source.members(namespace.Namespace) {
			if policy.Includes(&decide.Member{Member: m}) {
				p.Clusters[m.Name] = true
			}
		}
	}
	if record.State == v1alpha1.StateLeading {
		p.Leader, p.Epoch = record.Leader, record.Epoch
	}
	return p, err
}
