// Package guard keeps in each member the admission policies that protect the copies, and
// the registrations of readers.
//
// Namespace editors may write Leases by default, so without them a tenant could
// elect itself, or say in another reader's name that it has stopped: ValidatingAdmissionPolicies,
// enforced by the member's own API server, refuse to everybody else what only the hub, or
// the reader, may write. The guard of a member stands only where both do.
//
// # What is protected
//
// Copies: every Lease that carries a label or an annotation whose key starts with
// leasecast.dev/, before or after the request: creating, changing and deleting it,
// one by one or as a collection. So nobody but the hub can put such a mark on a
// Lease or take it off. Other Leases are left alone. The namespaces kube-system,
// kube-public and kube-node-lease are left out: they are never managed, and the
// heartbeats of nodes must not depend on this policy.
//
// For everybody, the hub included, a marked Lease must be complete, and
// leaseTransitions, the epoch, never falls by an update. A namespace that is being
// deleted takes its copies with it.
//
// Registrations: every Lease with the label reader.leasecast.dev/registration, in any
// namespace. It is created complete, and by nobody but the user that it names; only that
// user and the hub change or delete it. Who it is of, and of which namespaces, never changes,
// and no Lease becomes a registration or ceases to be one by an update. A namespace
// that is being deleted deletes its registrations; their finalizer is taken off by
// the reader, or by the hub when the reader must have stopped.
//
// # Who is the hub
//
// Whoever may `publish` the URL /leasecast.dev/leases: a verb and a URL that exist for
// this question only. The API server asks its own authorizer, so the answer is plain RBAC
// (a ClusterRole with nonResourceURLs), it survives rotated credentials, and
//
//	kubectl auth can-i publish /leasecast.dev/leases --as=...
//
// tells a reviewer who counts as the hub. It is a URL and not a resource for two reasons:
// kubectl cannot ask about a resource that no server serves, and no Role or
// RoleBinding can grant a URL, so whatever power somebody has in a namespace, this is not
// among it. Administrators of the cluster (system:masters, cluster-admin) may do
// everything and so may publish too; what they edit is for the hub to repair.
//
// # When it counts
//
// A policy takes effect about a second after it was written, and stops so. So
// writing it proves nothing: Verify asks the API server to refuse a write that even the hub may
// not do. It speaks for the API server that answered, not for others of the same
// cluster that have not caught up.
package guard
