package controller

import (
	"context"
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
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
// nothing is decided by these labels.
type clusterLabels struct{ *hub }

func (l clusterLabels) setup(mgr mcmanager.Manager) error {
	local := mgr.GetLocalManager()
	c, err := mccontroller.New("clusterlabels", mgr, controllerOptions(local, l.reconcile, 1))
	if err != nil {
		return err
	}
	for _, err := range []error{
		c.Watch(l.labelQueue.source()),
		c.Watch(source.TypedKind(local.GetCache(), &v1alpha1.NamespaceLeader{}, leaders())),
		c.Watch(source.TypedKind(local.GetCache(), &v1alpha1.LeadershipPolicy{},
			handler.TypedEnqueueRequestsFromMapFunc(l.clustersOf))),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// leaders enqueues the Clusters that lead and that led, where a record has changed its leader, state or policy.
func leaders() handler.TypedEventHandler[*v1alpha1.NamespaceLeader, mcreconcile.Request] {
	type queue = workqueue.TypedRateLimitingInterface[mcreconcile.Request]
	add := func(q queue, o *v1alpha1.NamespaceLeader) {
		if o.Spec.Leader != "" {
			q.Add(requestOf(types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.Leader}))
		}
	}
	return handler.TypedFuncs[*v1alpha1.NamespaceLeader, mcreconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*v1alpha1.NamespaceLeader], q queue) {
			add(q, e.Object)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*v1alpha1.NamespaceLeader], q queue) {
			was, is := e.ObjectOld.Spec, e.ObjectNew.Spec
			if was.Leader != is.Leader || was.State != is.State || was.Policy != is.Policy {
				add(q, e.ObjectOld)
				add(q, e.ObjectNew)
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*v1alpha1.NamespaceLeader], q queue) {
			add(q, e.Object)
		},
	}
}

// clustersOf enqueues the Clusters in the fleet of a policy.
func (l clusterLabels) clustersOf(ctx context.Context, p *v1alpha1.LeadershipPolicy) (rs []mcreconcile.Request) {
	for _, m := range l.source.members(p.Namespace) {
		rs = append(rs, requestOf(types.NamespacedName{Namespace: m.Fleet, Name: m.Name}))
	}
	return rs
}

// reconcile makes the labels of one Cluster what its fleet's records say. A paused Cluster keeps what it has.
func (l clusterLabels) reconcile(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	m, ok := l.Fleet.Member(fleet.Key{Fleet: req.Namespace, Name: req.Name})
	if !ok || m.Deleting || m.Gone || m.Paused {
		return reconcile.Result{}, nil
	}
	wanted, err := l.wanted(ctx, m)
	if err != nil {
		return reconcile.Result{}, err
	}
	edits := map[string]any{}
	for label := range wanted {
		if m.Labels[label] != "true" {
			edits[label] = "true"
		}
	}
	for label := range m.Labels {
		if strings.HasPrefix(label, v1alpha1.LeaderLabelPrefix) && !wanted[label] {
			edits[label] = nil
		}
	}
	if len(edits) == 0 {
		return reconcile.Result{}, nil
	}
	if !l.Serves(m.Fleet) {
		return reconcile.Result{RequeueAfter: notYet}, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": edits}})
	if err != nil {
		return reconcile.Result{}, err
	}
	// A merge patch, because an apply would create a Cluster that is gone.
	cl := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: m.Fleet, Name: m.Name}}
	err = l.Client.Patch(ctx, cl, client.RawPatch(types.MergePatchType, patch), labelOwner)
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// wanted returns the labels that the Cluster of a member should have.
func (l clusterLabels) wanted(ctx context.Context, m fleet.Member) (map[string]bool, error) {
	wanted := map[string]bool{}
	stored, err := listPolicies(ctx, l.Client, m.Fleet)
	for _, p := range stored {
		if p.Spec.Publish == nil || !ptr.Deref(p.Spec.Publish.ClusterLabels, false) {
			continue
		}
		for _, r := range l.ledger.CachedOf(ctx, m.Fleet, p.Spec.Namespaces.Names) {
			if r.Spec.Policy == p.Name && r.Spec.State == v1alpha1.StateLeading && r.Spec.Leader == m.Name {
				wanted[v1alpha1.LeaderLabelPrefix+r.Name] = true
			}
		}
	}
	return wanted, err
}
