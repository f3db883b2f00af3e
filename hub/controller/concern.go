package controller

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
)

// A member can show any number of namespaces and Leases, and a decision costs a call to the hub's API server. So a
// namespace that has no record, and that no policy claims, triggers no decision.

// isKnown reports whether a namespace has a record, or this tenure has state for it. It reads caches only.
func (c *Controller) isKnown(ctx context.Context, key types.NamespacedName) bool {
	c.mu.Lock()
	_, remembered := c.namespaces[key]
	c.mu.Unlock()
	return remembered || !apierrors.IsNotFound(c.client.Get(ctx, key, &v1alpha1.NamespaceLeader{}, client.UnsafeDisableDeepCopy))
}

// isClaimed reports whether a policy of the fleet matches a namespace with these labels.
func (c *Controller) isClaimed(ctx context.Context, key types.NamespacedName, labels map[string]string) bool {
	policies, err := c.policiesOf(ctx, key.Namespace)
	return err != nil || slices.ContainsFunc(policies, func(p *policy) bool { return p.matches(key.Name, labels) })
}

// isManaged reports whether a policy of the fleet manages a namespace that a member shows with these labels. It
// assumes that the namespace has no record.
func (c *Controller) isManaged(ctx context.Context, key types.NamespacedName, labels map[string]string, member fleet.Key) bool {
	policies, err := c.policiesOf(ctx, key.Namespace)
	return err != nil || slices.ContainsFunc(policies, func(p *policy) bool {
		return p.matches(key.Name, labels) && c.manages(ctx, p, key.Name, member)
	})
}

// isConcerned reports whether a change of a member's Lease in a namespace may change a decision. A Lease that the
// hub may have written does: its record may be lost.
func (c *Controller) isConcerned(ctx context.Context, key types.NamespacedName) bool {
	if c.isKnown(ctx, key) || c.isClaimed(ctx, key, nil) {
		return true
	}
	for _, p := range c.publishers(key.Namespace) {
		if p.MayHaveWrittenIn(key.Name) {
			return true
		}
	}
	return false
}

// mcNamespaces enqueues a namespace that a member shows, if it is known or managed. A policy that is created later
// enqueues its namespaces itself.
func (c *Controller) mcNamespaces(name multicluster.ClusterName, _ cluster.Cluster) handler.TypedEventHandler[*corev1.Namespace, mcreconcile.Request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, ns *corev1.Namespace) []mcreconcile.Request {
		ctx, cancel := context.WithTimeout(ctx, listTimeout)
		defer cancel()
		member, err := fleet.ParseKey(name)
		key := types.NamespacedName{Namespace: member.Fleet, Name: ns.Name}
		if err != nil || !c.isKnown(ctx, key) && !c.isManaged(ctx, key, ns.Labels, member) {
			return nil
		}
		return []mcreconcile.Request{{Request: reconcile.Request{NamespacedName: key}}}
	})
}
