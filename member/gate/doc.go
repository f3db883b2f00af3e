// Package gate builds controllers with controller-runtime that act only where their cluster leads.
//
//	cfg.Wrap(member.CapWrites) // before the manager is made
//	...
//	m, err := member.New(mgr.GetConfig(), member.Options{Logger: ctrl.Log})
//	...
//	err = errors.Join(
//		mgr.Add(m), // in every replica, elected or not
//		mgr.AddReadyzCheck("leases", m.Healthz),
//		gate.ControllerManagedBy(mgr, m).For(&webappv1.Guestbook{}).Complete(reconciler))
//
// The last line is all that a controller needs, and each controller of a program needs it. The
// controller differs from one of ctrl.NewControllerManagedBy in two ways. Requests of a namespace that another cluster
// leads are skipped. When this cluster is promoted, it enqueues all that a start of the controller would enqueue for
// the namespace. This is every object of For, and what the handlers of Watches make of their objects, through the same
// predicates. All of it has a low priority, as at a start, so that new events come first.
//
// The builder takes predicates as they are, without builder.WithPredicates. In place of WatchesMetadata and
// builder.OnlyMetadata, pass a PartialObjectMetadata with its kind. With Owns, For needs an object of its own type. In
// place of WithLogConstructor, set the LogConstructor in WithOptions. There is no Build, and no
// builder.MatchEveryOwner.
//
// # Cluster-scoped kinds, and requests of other types
//
// A cluster leads namespaces. So [ControllerManagedBy] refuses to build a controller for a cluster-scoped kind. With
// [TypedControllerManagedBy] its author sets which namespace's leader acts on a request. A promotion then lists all
// objects of such a kind, and enqueues the requests of the promoted namespace. The same holds for handlers of Watches,
// which may make a request of any namespace from an object of any other.
//
// # Why no request is lost
//
// A request is skipped only if the check failed at that moment. Any term that begins later is announced after checks
// have begun to succeed. Then every request is enqueued that the objects in the cache stand for. An object that the
// cache does not hold yet is enqueued by its own event when it arrives. A workqueue keeps a key that is added while it
// is being worked on. So whatever was skipped before the promotion is reconciled after it. A term that one check has
// found run out never resumes: if the same cluster leads on, that is another term, and announced.
//
// Only what a raw source enqueues cannot be listed again: see [TypedBuilder.WatchesRawSource].
//
// Objects that were deleted while this cluster was no leader are not listed. Their cleanup needs a finalizer, as it
// does across a restart.
//
// # Finalizers
//
// Each member has its own objects, and each object its own finalizers. If an object is deleted in a follower, its
// request is skipped as every other. The object stays, with its deletionTimestamp, until that cluster leads. Then it is
// enqueued and the reconciler finalizes it. That is right where finalizing acts on what all clusters share.
//
// If a follower's objects must go at once, because there is nothing to clean up outside that cluster, finalize them by
// Observe. Its reconciler then needs the manager's client itself, not a client.Reader. Observe acts in every cluster,
// so it must act on its own cluster alone. The same holds for a namespace: it stays Terminating while it holds such an
// object.
//
// # Replicas in one cluster
//
// The hub elects clusters, and the manager's LeaderElection elects one replica within each. The two are independent,
// and both must be won: controllers start only in the elected replica, and then check for the cluster. When the local
// election is won, controller-runtime starts the controller's sources, and their first list enqueues every object. The
// Member needs no election: it runs in the other replicas as well, and is warm when one of them takes over.
//
// # Fencing
//
// The reconciler's context ends with the term and carries its epoch, see member.EpochFrom. Hand the epoch to external
// systems that can refuse a lower one than they have seen. For requests to Kubernetes, wrap the manager's configuration
// before the manager is made: cfg.Wrap(member.CapWrites).
//
// # Metrics
//
// controller-runtime's registry has leasecast_reader_leads, leasecast_reader_term_remaining_seconds and
// leasecast_reader_terms_total for each namespace that has a Lease. For each controller it has
// leasecast_reader_reconciles_dropped_total, by reason.
package gate
