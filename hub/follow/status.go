package follow

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

const (
	// maxClusters is how many clusters a status has, and maxProblems how many problems of one.
	maxClusters, maxProblems = 32, 8
	// deletionBound is how long a set that is deleted waits for clusters that are not emptied. Then its objects stay.
	deletionBound = time.Hour
	// deletionLook is how often it looks whether that has passed.
	deletionLook = time.Minute
	// deleteForMove is on objects that clusterctl move deletes here, because they are in another management cluster now.
	deleteForMove = "clusterctl.cluster.x-k8s.io/delete-for-move"
)

// reconcileStatus shows what was reached in the clusters, and lets a set go that is deleted.
func (c *Controller) reconcileStatus(ctx context.Context, set *v1alpha1.LeaderResourceSet) (reconcile.Result, error) {
	if !set.DeletionTimestamp.IsZero() {
		return c.removeFinalizer(ctx, set)
	}
	place, err := c.where(ctx, types.NamespacedName{Namespace: set.Namespace, Name: set.Spec.Namespace})
	if err != nil {
		return reconcile.Result{}, err
	}
	c.sources.watch(set)
	if place.undecided {
		return reconcile.Result{RequeueAfter: notYet}, nil // what an earlier replica has said stands
	}
	if c.given(types.NamespacedName{Namespace: set.Namespace, Name: set.Spec.Namespace}, place, place.Leader) != nil {
		place.Leader = "" // its cluster gets the followers' form
	}
	status := statusOf(set, place, c.results(set), c.Clock.Now().Wall)
	c.mu.Lock()
	c.state(set).showOrder(&status, c.Clock.Now().Wall)
	c.mu.Unlock()
	return reconcile.Result{}, show(ctx, c.client, set, status)
}

// show writes a status, unless the set has it.
func show(
	ctx context.Context, api client.Client, set *v1alpha1.LeaderResourceSet, status v1alpha1.LeaderResourceSetStatus,
) error {
	if equality.Semantic.DeepEqual(status, set.Status) {
		return nil
	}
	to := set.DeepCopy()
	to.Status = status
	return client.IgnoreNotFound(api.Status().Patch(ctx, to, client.MergeFrom(set)))
}

// showOrder says how the last planned change went, as far as this replica knows. The caller holds the lock.
func (s *setState) showOrder(status *v1alpha1.LeaderResourceSetStatus, now time.Time) {
	if s.last == nil {
		return
	}
	is := metav1.Condition{
		Type: v1alpha1.ConditionInOrder, ObservedGeneration: status.ObservedGeneration,
		LastTransitionTime: metav1.NewTime(now), Status: metav1.ConditionTrue, Reason: string(reason.InOrder),
		Message: "the last planned change has waited until the old leader's cluster had given way",
	}
	if s.late != "" {
		is.Status, is.Reason, is.Message = metav1.ConditionFalse, string(reason.OutOfOrder), s.late
	}
	meta.SetStatusCondition(&status.Conditions, is)
}

// results returns what was reached in each cluster, those that have nothing any more left out. An earlier replica may
// have reached clusters that are gone.
func (c *Controller) results(set *v1alpha1.LeaderResourceSet) map[string]reached {
	members := c.Fleet.Members(set.Namespace)
	c.mu.Lock()
	defer c.mu.Unlock()
	all, s := map[string]reached{}, c.state(set)
	for _, m := range members {
		in := s.in[m.Name]
		if in != nil && !in.clean && (in.result.Role != "" || in.result.Objects != nil || len(in.result.Problems) > 0) {
			all[m.Name] = in.result
		}
	}
	return all
}

// statusOf returns the status of a set.
func statusOf(
	set *v1alpha1.LeaderResourceSet, place Place, results map[string]reached, now time.Time,
) v1alpha1.LeaderResourceSetStatus {
	status := v1alpha1.LeaderResourceSetStatus{
		ObservedGeneration: set.Generation, Conditions: slices.Clone(set.Status.Conditions),
	}
	for _, is := range results {
		status.Clusters = append(status.Clusters, is.ClusterResources)
	}
	slices.SortFunc(status.Clusters, func(a, b v1alpha1.ClusterResources) int {
		return cmp.Or(-cmp.Compare(len(a.Problems), len(b.Problems)), strings.Compare(a.Name, b.Name))
	})
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: string(reason.InPlace),
		Message:            fmt.Sprintf("%d clusters have what the set keeps there", len(results)),
		ObservedGeneration: set.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	not := func(status metav1.ConditionStatus, why reason.Reason, message string) {
		ready.Status, ready.Reason, ready.Message = status, string(why), message
	}
	waiting := slices.DeleteFunc(slices.Sorted(maps.Keys(place.Clusters)), func(name string) bool {
		is := results[name]
		return is.Role == place.role(name) && is.Objects != nil && is.Generation == set.Generation
	})
	switch {
	case !place.Managed:
		not(metav1.ConditionFalse, reason.NotManaged, "no policy of this hub manages namespace "+set.Spec.Namespace+
			": what is there stays as it is; see kubectl get nsleader")
	case len(status.Clusters) > 0 && len(status.Clusters[0].Problems) > 0:
		first := status.Clusters[0]
		not(metav1.ConditionFalse, first.Problems[0].Reason, "cluster "+first.Name+": "+text(first.Problems[0]))
	case len(waiting) > 0:
		not(metav1.ConditionUnknown, reason.Applying, "cluster "+waiting[0]+": the hub has not applied it yet")
	}
	status.Clusters = status.Clusters[:min(len(status.Clusters), maxClusters)]
	meta.SetStatusCondition(&status.Conditions, ready)
	return status
}

func text(p v1alpha1.ResourceProblem) string {
	return strings.TrimPrefix(p.Object+": "+p.Message, ": ")
}

// removeFinalizer removes the finalizer from a set that is deleted, once its objects are.
func (c *Controller) removeFinalizer(ctx context.Context, set *v1alpha1.LeaderResourceSet) (reconcile.Result, error) {
	if !slices.Contains(set.Finalizers, v1alpha1.SetFinalizer) {
		return reconcile.Result{}, nil
	}
	if prunes := ptr.Deref(set.Spec.Prune, true); prunes && !moves(set) {
		left, now := c.left(set), c.Clock.Now().Wall
		if len(left) > 0 && now.Sub(set.DeletionTimestamp.Time) < deletionBound {
			status := statusOf(set, Place{}, c.results(set), now)
			meta.SetStatusCondition(&status.Conditions, metav1.Condition{
				Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: string(reason.Deleting),
				Message: "not all of its objects are deleted in " + strings.Join(left[:min(len(left), maxClusters)], ", ") +
					": see the problems of these clusters, and the finalizers of the objects",
				ObservedGeneration: set.Generation,
			})
			if err := show(ctx, c.client, set, status); err != nil {
				return reconcile.Result{}, err
			}
			return reconcile.Result{RequeueAfter: deletionLook}, nil
		}
		if len(left) > 0 {
			log.FromContext(ctx).Info("Objects of a deleted set are left in clusters that were not emptied",
				"set", klog.KObj(set), "clusters", left)
		}
	}
	to := set.DeepCopy()
	to.Finalizers = slices.DeleteFunc(to.Finalizers, func(f string) bool { return f == v1alpha1.SetFinalizer })
	return reconcile.Result{}, client.IgnoreNotFound(
		c.client.Patch(ctx, to, client.MergeFromWithOptions(set, client.MergeFromWithOptimisticLock{})))
}

// left returns the clusters that may have objects of a set.
func (c *Controller) left(set *v1alpha1.LeaderResourceSet) (names []string) {
	members := c.Fleet.Members(set.Namespace)
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state(set)
	for _, m := range members {
		in := s.in[m.Name]
		mayHave := in != nil && !in.clean || in == nil && (isShown(set, m.Name) || c.members[m.Key] != nil)
		if mayHave && !m.Gone && !m.Deleting {
			names = append(names, m.Name)
		}
	}
	return names
}
