// Package gate gates controller-runtime reconcilers by the leadership of
// clusters: a reconciler acts only where its cluster leads the namespace of the
// request.
//
//	cfg.Wrap(member.CapWrites) // before the manager is made
//	...
//	m, err := member.New(mgr.GetConfig(), member.Options{Logger: ctrl.Log})
//	...
//	err = errors.Join(
//		mgr.Add(m), // in every replica, elected or not
//		mgr.AddHealthzCheck("leases", m.Healthz),
//		ctrl.NewControllerManagedBy(mgr).
//			For(&webappv1.Guestbook{}).
//			WatchesRawSource(gate.Resync(m, mgr.GetClient(), &webappv1.GuestbookList{})).
//			Complete(gate.Gate(m, reconciler)))
//
// Gate skips what is not to be done here, and Resync brings it back when this
// cluster is promoted. They belong together: without Resync, what was skipped is
// lost until the object changes.
//
// # Why no request is lost between the two
//
// Gate skips a request only if the check said no at that moment. Any term that
// begins later is announced to Resync after checks have begun to say yes, and
// Resync then enqueues every object of the namespace that the cache holds; an
// object that the cache does not hold yet is enqueued by its own event when it
// arrives. A workqueue keeps a key that is added while it is being worked on. So
// whatever was skipped before the promotion is looked at again after it. A term that
// one check has found run out never resumes: if the same cluster leads on, that is
// another term, and announced.
//
// Objects that were deleted while this cluster was no leader are not listed. Their
// cleaning up needs a finalizer, as it does across a restart.
//
// # Finalizers
//
// Each member has objects of its own, so each has the finalizers of its own objects. Where
// a follower's object is deleted, the request is skipped as every other, and the object
// stays, with its deletionTimestamp, until that cluster leads: then Resync enqueues it
// and the reconciler finalizes it. That is right where finalizing acts on what all clusters
// share. If a follower's objects are to go at once, because there is nothing to clean up
// but in that cluster, finalize them by Observe with the manager's own client instead of
// one made by ReadOnly: it acts in every cluster, so it must act on that cluster alone. The
// same holds for a namespace: it stays Terminating while it holds such an object.
//
// # Replicas in one cluster
//
// Gate elects clusters, the manager's LeaderElection elects one replica within each.
// The two are independent and both must say yes: controllers start only in the
// replica that was elected, Gate then asks for the cluster. When the local election
// is won, controller-runtime starts the controller's sources, and their first list
// enqueues every object, so nothing has to be resynced for that; Resync is a source
// too, and hears of the terms that stand as it starts. The Member needs no election:
// it runs in the other replicas as well, and is warm when one of them takes over.
//
// # Fencing
//
// The reconciler's context ends with the term and carries its epoch, see
// member.EpochFrom. Hand the epoch to external systems that can refuse a lower one
// than they have seen. For requests to Kubernetes, wrap the manager's configuration
// before the manager is made: cfg.Wrap(member.CapWrites).
package gate
