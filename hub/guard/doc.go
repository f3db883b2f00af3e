// Package guard keeps in each member the admission policy that protects the copies.
//
// Namespace editors may write Leases by default, so without it a tenant could
// elect itself: a ValidatingAdmissionPolicy, enforced by the member's own API
// server, refuses to everybody but the hub what only the hub may write.
//
// # What is protected
//
// Every Lease that carries a label or an annotation whose key starts with
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
