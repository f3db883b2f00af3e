package controller

import (
	"context"
	"errors"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
)

// labelOwner is the field manager of the labels that clusterLabels keeps.
const labelOwner = client.FieldOwner("leasecast-leader-labels")

// clusterLabels keeps the labels of LeadershipPolicy.spec.publish.clusterLabels on Clusters. It reads caches alone:
// nothing is decided by these labels (fleet.Selectable).
type clusterLabels struct {
	*hub
	policies *policies
}

func (l clusterLabels) setup(mgr mcmanager.Manager) error {
	local := mgr.GetLocalManager()
	c, err := mccontroller.New("clusterlabels", mgr, controllerOptions(local, l.reconcile, 1))
	if err != nil {
		return err
	}
	return errors.Join(
		c.Watch(source.TypedKind(local.GetCache(), &clusterv1.Cluster{}, requestFor[*clusterv1.Cluster]())),
		c.Watch(source.TypedKind(local.GetCache(), &v1alpha1.NamespaceLeader{},
			handler.TypedEnqueueRequestsFromMapFunc(leaderOf))),
		c.Watch(source.TypedKind(local.GetCache(), &v1alpha1.LeadershipPolicy{},
			handler.TypedEnqueueRequestsFromMapFunc(l.clustersOf))),
	)
}

// leaderOf enqueues the Cluster that a record names, and for a change of it also the one that it named before.
func leaderOf(_ context.Context, o *v1alpha1.NamespaceLeader) []mcreconcile.Request {
	if o.Spec.Leader == "" {
		return nil
	}
	return []mcreconcile.Request{requestOf(types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.Leader})}
}

// clustersOf enqueues the Clusters in the fleet of a policy.
func (l clusterLabels) clustersOf(ctx context.Context, p *v1alpha1.LeadershipPolicy) (rs []mcreconcile.Request) {
	l.policies.changed(p.Namespace)
	var all clusterv1.ClusterList
	if err := l.Client.List(ctx, &all, client.InNamespace(p.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Clusters could not be listed", "fleet", p.Namespace)
	}
	for i := range all.Items {
		rs = append(rs, requestOf(client.ObjectKeyFromObject(&all.Items[i])))
	}
	return rs
}

// reconcile makes the labels of one Cluster what its fleet's records say. A paused Cluster keeps what it has.
func (l clusterLabels) reconcile(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	cl := &clusterv1.Cluster{}
	if err := l.Client.Get(ctx, req.NamespacedName, cl, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if fleet.IsPaused(cl) {
		return reconcile.Result{}, nil
	}
	wanted, err := l.wanted(ctx, cl)
	if err != nil {
		return reconcile.Result{}, err
	}
	labelled := cl.DeepCopy()
	maps.DeleteFunc(labelled.Labels, func(label, _ string) bool {
		return strings.HasPrefix(label, v1alpha1.LeaderLabelPrefix)
	})
	for _, label := range wanted {
		metav1.SetMetaDataLabel(&labelled.ObjectMeta, label, "true")
	}
	if maps.Equal(labelled.Labels, cl.Labels) {
		return reconcile.Result{}, nil
	}
	if !l.Serves(cl.Namespace) {
		return reconcile.Result{RequeueAfter: notYet}, nil
	}
	// A merge patch, because an apply would create a Cluster that is gone.
	err = l.Client.Patch(ctx, labelled, client.MergeFrom(cl), labelOwner)
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// wanted returns the labels that a Cluster should have.
func (l clusterLabels) wanted(ctx context.Context, cl *clusterv1.Cluster) (labels []string, err error) {
	policies, err := l.policies.asShown(ctx, cl.Namespace)
	for _, p := range policies {
		spec := p.Object.Spec
		if !ptr.Deref(spec.Publish.ClusterLabels, false) {
			continue
		}
		for _, r := range l.ledger.CachedOf(ctx, cl.Namespace, spec.Namespaces.Names) {
			if r.Spec.Policy == p.Object.Name && r.Spec.State == v1alpha1.StateLeading && r.Spec.Leader == cl.Name {
				labels = append(labels, v1alpha1.LeaderLabelPrefix+r.Name)
			}
		}
	}
	return labels, err
}
