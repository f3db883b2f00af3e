package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/skew"
)

// listTimeout bounds a list from a cache.
const listTimeout = 5 * time.Second

// warmTimeout bounds a standby's read of a seal.
const warmTimeout = 2 * time.Second

// strangersWait delays decisions that are requested only because of clusters that were never connected.
const strangersWait = time.Second

// memberChanged enqueues everything in the fleet of a member, and records its Cluster's problem as an event.
//
// Whoever may create Clusters can create hundreds that keep failing in different ways. Such a cluster cannot lead,
// so one decision a second is enough for all of them.
func (c *Controller) memberChanged(key fleet.Key) {
	wait := time.Duration(0)
	if c.isStranger(key) {
		wait = strangersWait
	}
	c.fleetChangedIn(wait, key.Fleet)
	for _, w := range c.workers(key.Fleet) {
		w.Wake()
	}
	c.recordProblem(key)
	c.warmSeal(key.Fleet)
}

// isStranger reports whether a member was never connected while this replica watched.
func (c *Controller) isStranger(key fleet.Key) bool {
	m, _ := c.Fleet.Member(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.member(key)
	s.connected = s.connected || m.Connected || s.worker != nil || s.engaged.ctx != nil
	return !s.connected
}

// warmSeal has a standby load the seal of a fleet. The standby may be elected in the middle of a move, when the
// Secret is already gone. Without the key it could not relinquish the Leases.
func (c *Controller) warmSeal(fleetName string) {
	if c.Tenure.Holds() {
		return // an elected replica loads the seal when it needs it
	}
	ctx, cancel := context.WithTimeout(context.Background(), warmTimeout)
	defer cancel()
	if _, err := c.Seals.Find(ctx, fleetName); err != nil {
		log.FromContext(ctx).V(1).Info("The seal is not known yet", "fleet", fleetName, "err", err.Error())
	}
}

// recordProblem records a Cluster's problem as an event on it, once for each reason. A replica without the right to
// write only tracks that the Cluster exists.
func (c *Controller) recordProblem(key fleet.Key) {
	m, ok := c.Fleet.Member(key)
	var is fleet.Problem
	if ok && c.Serves(key.Fleet) {
		is = problemOf(m)
	}
	c.mu.Lock()
	s := c.member(key)
	was := s.problem
	s.known, s.problem = ok, is
	c.release(key)
	c.mu.Unlock()
	if is.Reason != "" && is.Reason != was.Reason {
		c.recordOnCluster(key, nil, corev1.EventTypeWarning, string(is.Reason), "Join", is.Message)
	}
}

// recordProblems records the problems of Clusters that were found before this tenure began.
func (c *Controller) recordProblems() {
	c.mu.Lock()
	keys := slices.Collect(maps.Keys(c.members))
	c.mu.Unlock()
	for _, key := range keys {
		c.recordProblem(key)
	}
}

// problemOf returns the problem that the owner of a Cluster should know and may have to fix.
func problemOf(m fleet.Member) fleet.Problem {
	switch {
	case m.PriorityReason == reason.InvalidPriority:
		return fleet.Problem{Reason: m.PriorityReason, Message: invalidPriority(m.Labels[v1alpha1.PriorityLabel])}
	case m.Problem.Reason == reason.NeverReached, m.Problem.Reason == reason.Deleting, m.Problem.Reason == reason.Gone:
		return fleet.Problem{} // no fault
	case m.Problem.Reason == "":
		if clock, eps := m.Skewed(); clock.State == skew.Beyond {
			return fleet.Problem{Reason: reason.ClockSkewed, Message: skewed(clock, eps)}
		}
		return fleet.Problem{}
	default:
		return fleet.Problem{Reason: m.Problem.Reason, Message: advise(m.Problem.Reason, m.Problem.Message)}
	}
}

// fleetChanged enqueues everything in a fleet.
func (c *Controller) fleetChanged(fleetName string) { c.fleetChangedIn(0, fleetName) }

// fleetChangedIn is fleetChanged after a delay. A namespace that is enqueued again within the delay is decided on
// once.
func (c *Controller) fleetChangedIn(wait time.Duration, fleetName string) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	for _, key := range c.namespacesOf(ctx, fleetName) {
		c.records.addIn(wait, key)
	}
	c.policiesChangedIn(wait, fleetName)
}

// policiesChanged enqueues the policies of a fleet, so that their statuses are written.
func (c *Controller) policiesChanged(fleetName string) { c.policiesChangedIn(0, fleetName) }

func (c *Controller) policiesChangedIn(wait time.Duration, fleetName string) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	var ps v1alpha1.LeadershipPolicyList
	if err := c.client.List(ctx, &ps, client.InNamespace(fleetName)); err != nil {
		log.FromContext(ctx).Error(err, "Policies could not be listed", "fleet", fleetName)
		return
	}
	for i := range ps.Items {
		c.policies.addIn(wait, client.ObjectKeyFromObject(&ps.Items[i]))
	}
}

// leaseChanged enqueues a namespace that a publisher has reported as changed, or all if the name is empty.
func (c *Controller) leaseChanged(key fleet.Key, namespace string) {
	if namespace == "" {
		c.fleetChanged(key.Fleet)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	if name := (types.NamespacedName{Namespace: key.Fleet, Name: namespace}); c.isConcerned(ctx, name) {
		c.records.add(name)
	}
}

// namespacesOf returns all namespaces of a fleet that may need a decision. Each has a record, a policy that manages
// it, or a Lease that the hub may have written in a member.
func (c *Controller) namespacesOf(ctx context.Context, fleetName string) []types.NamespacedName {
	names := map[string]bool{}
	var records v1alpha1.NamespaceLeaderList
	if err := c.client.List(ctx, &records, client.InNamespace(fleetName)); err != nil {
		log.FromContext(ctx).Error(err, "Records could not be listed", "fleet", fleetName)
	}
	for i := range records.Items {
		names[records.Items[i].Name] = true
	}
	for _, p := range c.publishers(fleetName) {
		for _, name := range p.MayHaveWritten() {
			names[name] = true
		}
	}
	policies, err := c.policiesOf(ctx, fleetName)
	if err != nil {
		log.FromContext(ctx).Error(err, "Policies could not be listed", "fleet", fleetName)
	}
	shown := c.namespacesIn(ctx, fleetName)
	for _, p := range policies {
		for name, in := range p.places(shown) {
			if !names[name] && (in.members > 1 || p.names[name] || c.keeps(ctx, p, name, in.member)) {
				names[name] = true
			}
		}
	}
	keys := make([]types.NamespacedName, 0, len(names))
	for name := range names {
		keys = append(keys, types.NamespacedName{Namespace: fleetName, Name: name})
	}
	return keys
}
