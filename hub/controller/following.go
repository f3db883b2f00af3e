package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/follow"
)

// following shows package follow who leads where, and asks it before a planned change.
type following struct {
	*hub
	policies *policies
	metadata metadata.Interface
	sets     *follow.Controller // nil before it is set up, and in the simulation
}

// setup adds what keeps resource sets in place to a manager.
func (f *following) setup(mgr mcmanager.Manager) error {
	f.sets = follow.New(follow.Options{
		Fleet: f.Fleet, Place: f.place, Clock: f.Clock, Metadata: f.metadata, PolicyChanged: f.policies.changed,
		MayWrite: func(fleetName string) bool { return f.MayWrite(fleetName, f.Clock.Now()) },
		Queue: func(
			reconcile reconcile.TypedFunc[mcreconcile.Request], concurrent int,
		) controller.TypedOptions[mcreconcile.Request] {
			return controllerOptions(mgr.GetLocalManager(), reconcile, concurrent)
		},
	})
	return f.sets.SetupWithManager(mgr)
}

// givesWay reports whether a planned change may begin: what follows the leader has been stopped in its cluster.
func (f *following) givesWay(v *decide.Snapshot) bool {
	r := v.State.Record
	return f.sets == nil || f.sets.GiveWay(v.Key, r.Leader, r.Epoch)
}

// leadsOn ends a planned change that may have begun: the leader leads on.
func (f *following) leadsOn(namespace types.NamespacedName) {
	if f.sets != nil {
		f.sets.Stay(namespace)
	}
}

// decided shows sets whether this hub has decided on a namespace.
func (f *following) decided(namespace types.NamespacedName, is bool) {
	if f.sets != nil {
		f.sets.Decided(namespace, is)
	}
}

// forget drops what sets know of a namespace without a record.
func (f *following) forget(namespace types.NamespacedName) {
	if f.sets != nil {
		f.sets.Forget(namespace)
	}
}

// place returns who leads a namespace, and which clusters its policy covers, from caches.
func (f *following) place(ctx context.Context, namespace types.NamespacedName) (p follow.Place, err error) {
	records := f.ledger.CachedOf(ctx, namespace.Namespace, []string{namespace.Name})
	if len(records) == 0 || records[0].Spec.State == v1alpha1.StateRetired {
		return p, nil
	}
	record := records[0].Spec
	policies, err := f.policies.asShown(ctx, namespace.Namespace)
	for _, policy := range policies {
		if policy.Object.Name != record.Policy || policy.Unknown { // whom it selects is not known
			continue
		}
		p.Managed, p.Clusters = true, map[string]bool{}
		for _, m := range f.source.Members(namespace.Namespace) {
			if policy.Includes(&decide.Member{Member: m}) {
				p.Clusters[m.Name] = true
			}
		}
	}
	leadsOn := record.State == v1alpha1.StateEnding && record.Next == record.Leader // in a new term
	if record.State == v1alpha1.StateLeading || leadsOn {
		p.Leader, p.Epoch = record.Leader, record.Epoch
	}
	return p, err
}
