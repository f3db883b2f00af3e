package controller

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/explain"
	"github.com/leasecast/leasecast/hub/fleet"
)

// warmTimeout bounds a standby's read of a seal.
const warmTimeout = 2 * time.Second

// strangersWait delays decisions that are requested only because of clusters that were never connected.
const strangersWait = time.Second

// sources enqueue what may need a decision.
type sources struct {
	*hub
	members  *members
	policies *policies
	lone     *loneNamespaces
	moves    *moves
}

// memberChanged enqueues everything in the fleet of a member, and records its Cluster's problem as an event.
//
// Whoever may create Clusters can create hundreds that keep failing in different ways. Such a cluster cannot lead,
// so one decision a second is enough for all of them.
func (s *sources) memberChanged(key fleet.Key) {
	wait := strangersWait
	if s.members.noteChange(key) {
		wait = 0
	}
	s.fleetChangedIn(wait, key.Fleet)
	for _, w := range s.members.workers(key.Fleet) {
		w.Wake()
	}
	s.recordProblem(key)
	s.warmSeal(key.Fleet)
}

// warmSeal has a standby load the seal of a fleet. The standby may be elected in the middle of a move, when the
// Secret is already gone. Without the key it could not relinquish the Leases.
func (s *sources) warmSeal(fleetName string) {
	if s.Tenure.Holds() {
		return // an elected replica loads the seal when it needs it
	}
	ctx, cancel := context.WithTimeout(context.Background(), warmTimeout)
	defer cancel()
	if _, err := s.Seals.Find(ctx, fleetName); err != nil {
		log.FromContext(ctx).V(1).Info("The seal is not known yet", "fleet", fleetName, "err", err.Error())
	}
}

// recordProblem records a Cluster's problem as an event on it, if this replica has the right to write. The recorder
// counts one that is recorded again with the same reason, and keeps it from expiring.
func (s *sources) recordProblem(key fleet.Key) {
	m, ok := s.Fleet.Member(key)
	if !ok || !s.Serves(key.Fleet) {
		return
	}
	if is := explain.Problem(m); is.Reason != "" {
		s.recordOnCluster(key, nil, corev1.EventTypeWarning, string(is.Reason), "Join", is.Message)
	}
}

// recordProblems records the problems of Clusters that were found before this tenure began.
func (s *sources) recordProblems() {
	for _, key := range s.members.keys() {
		s.recordProblem(key)
	}
}

// fleetChangedIn enqueues everything in a fleet after a delay. A namespace that is enqueued again within the delay is
// decided on once.
func (s *sources) fleetChangedIn(wait time.Duration, fleetName string) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	for _, key := range s.namespacesOf(ctx, fleetName) {
		s.recordQueue.addIn(wait, key)
	}
	s.policiesChangedIn(wait, fleetName)
}

// policiesChangedIn enqueues the policies of a fleet after a delay, so that their statuses are written.
func (s *sources) policiesChangedIn(wait time.Duration, fleetName string) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	stored, err := listPolicies(ctx, s.Client, fleetName)
	if err != nil {
		log.FromContext(ctx).Error(err, "Policies could not be listed", "fleet", fleetName)
	}
	for _, p := range stored {
		s.policyQueue.addIn(wait, client.ObjectKeyFromObject(p))
	}
}

// leaseChanged enqueues a namespace that a publisher has reported as changed, or all if the name is empty.
func (s *sources) leaseChanged(key fleet.Key, namespace string) {
	if namespace == "" {
		s.fleetChangedIn(0, key.Fleet)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	if name := (types.NamespacedName{Namespace: key.Fleet, Name: namespace}); s.isConcerned(ctx, name) {
		s.recordQueue.add(name)
	}
}

// namespacesOf returns all namespaces of a fleet that may need a decision. Each has a record, a policy that manages
// it, or a Lease that the hub may have written in a member.
func (s *sources) namespacesOf(ctx context.Context, fleetName string) []types.NamespacedName {
	names := sets.New[string]()
	records, err := s.ledger.Cached(ctx, fleetName)
	if err != nil {
		log.FromContext(ctx).Error(err, "Records could not be listed", "fleet", fleetName)
	}
	for i := range records {
		names.Insert(records[i].Name)
	}
	for _, p := range s.members.publishers(fleetName) {
		names.Insert(p.MayHaveWritten()...)
	}
	policies, err := s.policies.valid(ctx, fleetName, s.source.Members(fleetName))
	if err != nil {
		log.FromContext(ctx).Error(err, "Policies could not be listed", "fleet", fleetName)
	}
	shown := s.lone.namespacesIn(ctx, fleetName)
	for _, p := range policies {
		for name, in := range placesOf(p, shown) {
			if !names.Has(name) && (in.members > 1 || p.Names[name] || s.lone.keeps(ctx, p, name, in.member)) {
				names.Insert(name)
			}
		}
	}
	keys := make([]types.NamespacedName, 0, len(names))
	for name := range names {
		keys = append(keys, types.NamespacedName{Namespace: fleetName, Name: name})
	}
	return keys
}

// recordChanges enqueues a record that a client other than this tenure has written or deleted.
func (s *sources) recordChanges() handler.TypedEventHandler[*v1alpha1.NamespaceLeader, mcreconcile.Request] {
	type queue = workqueue.TypedRateLimitingInterface[mcreconcile.Request]
	show := func(o *v1alpha1.NamespaceLeader, deleted bool, q queue) {
		if s.ledger.Show(o, deleted) {
			q.Add(requestOf(client.ObjectKeyFromObject(o)))
		}
	}
	return handler.TypedFuncs[*v1alpha1.NamespaceLeader, mcreconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*v1alpha1.NamespaceLeader], q queue) {
			s.moves.found(e.Object)
			show(e.Object, false, q)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*v1alpha1.NamespaceLeader], q queue) {
			show(e.ObjectNew, false, q)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*v1alpha1.NamespaceLeader], q queue) {
			show(e.Object, true, q)
		},
	}
}

// requestFor enqueues the object itself.
func requestFor[T client.Object]() handler.TypedEventHandler[T, mcreconcile.Request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o T) []mcreconcile.Request {
		return []mcreconcile.Request{requestOf(client.ObjectKeyFromObject(o))}
	})
}

// namespacesOfPolicy enqueues every namespace in the fleet of a policy. The policy may select it, may have selected
// it before, or may take it from another policy.
func (s *sources) namespacesOfPolicy(ctx context.Context, p *v1alpha1.LeadershipPolicy) []mcreconcile.Request {
	s.policies.changed(p.Namespace) // before the namespaces are listed: each event from now on sees the change
	var rs []mcreconcile.Request
	for _, key := range s.namespacesOf(ctx, p.Namespace) {
		rs = append(rs, requestOf(key))
	}
	return rs
}

// A member can show any number of namespaces and Leases, and a decision costs a call to the hub's API server. So a
// namespace that has no record, and that no policy claims, triggers no decision.

// isManaged reports whether a policy of the fleet manages a namespace that a member shows with these labels. It
// assumes that the namespace has no record.
func (s *sources) isManaged(
	ctx context.Context, key types.NamespacedName, labels map[string]string, member fleet.Key,
) bool {
	policies, err := s.policies.asShown(ctx, key.Namespace)
	return err != nil || slices.ContainsFunc(policies, func(p *decide.Policy) bool {
		return p.Matches(key.Name, labels) && s.lone.manages(ctx, p, key.Name, member)
	})
}

// isConcerned reports whether a change of a member's Lease in a namespace may change a decision. A Lease that the
// hub may have written does: its record may be lost.
func (s *sources) isConcerned(ctx context.Context, key types.NamespacedName) bool {
	policies, err := s.policies.asShown(ctx, key.Namespace)
	claims := func(p *decide.Policy) bool { return p.Matches(key.Name, nil) }
	if err != nil || s.ledger.Knows(key) || slices.ContainsFunc(policies, claims) {
		return true
	}
	for _, p := range s.members.publishers(key.Namespace) {
		if p.MayHaveWrittenIn(key.Name) {
			return true
		}
	}
	return false
}

// mcNamespaces enqueues a namespace that a member shows, if it is known or managed. A policy that is created later
// enqueues its namespaces itself.
func (s *sources) mcNamespaces(
	name multicluster.ClusterName, _ cluster.Cluster,
) handler.TypedEventHandler[*corev1.Namespace, mcreconcile.Request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, ns *corev1.Namespace) []mcreconcile.Request {
		ctx, cancel := context.WithTimeout(ctx, listTimeout)
		defer cancel()
		member, err := fleet.ParseKey(name)
		key := types.NamespacedName{Namespace: member.Fleet, Name: ns.Name}
		if err != nil || !s.ledger.Knows(key) && !s.isManaged(ctx, key, ns.Labels, member) {
			return nil
		}
		return []mcreconcile.Request{requestOf(key)}
	})
}
