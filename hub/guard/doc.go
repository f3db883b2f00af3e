// Package guard keeps in each member the admission policies that protect the hub's Leases and the readers'
// registrations.
//
// Namespace editors may write Leases by default. Without the policies a tenant could elect itself, or release a
// term in another reader's name. ValidatingAdmissionPolicies, enforced by the member's own API server, let only the
// hub or the reader write what is theirs. A member is guarded only where both admission policies are enforced.
//
// # What is protected
//
// Managed Leases: every Lease that carries a label or an annotation whose key starts with leasecast.dev/, before or
// after the request. Creating, changing and deleting one is protected, also as a collection. So only the hub can
// add such a key to a Lease or remove it. Other Leases are not affected. The namespaces kube-system, kube-public
// and kube-node-lease are excluded: they are never managed, and the heartbeats of nodes must not depend on this
// admission policy.
//
// For every writer, the hub included, a managed Lease must be complete, and leaseTransitions, the epoch, never falls
// by an update. A namespace that is being deleted deletes its Leases.
//
// Registrations: every Lease with the label reader.leasecast.dev/registration, in any namespace. It is created
// complete, and only by the user that it names. Only that user and the hub change or delete it. Its identity, its
// namespaces and its account never change. No Lease becomes a registration, or ceases to be one, by an update. A
// namespace that is being deleted deletes its registrations. The reader removes their finalizer, or the hub does
// when the reader must have stopped.
//
// # Who is the hub
//
// Whoever may `publish` the URL /leasecast.dev/leases: a verb and a URL that exist for this check only. The API
// server uses its own authorizer, so the right is plain RBAC (a ClusterRole with nonResourceURLs) and survives
// rotated credentials. A reviewer can check who counts as the hub:
//
//	kubectl auth can-i publish /leasecast.dev/leases --as=...
//
// It is a URL and not a resource for two reasons. kubectl cannot check a resource that no server serves. No Role or
// RoleBinding can grant a URL, so no power in a namespace includes it. Administrators of the cluster
// (system:masters, cluster-admin) may do everything, so they may publish too. The hub reverts their edits.
//
// # Fences
//
// A LeadershipPolicy may ask for fences (fence.go): README.md lists what they catch. Their expressions are in cel.go.
//
// The manifests of the two admission policies above are managed-leases.yaml and reader-registrations.yaml.
//
// # How they are kept
//
// A Keeper keeps the guard and the fences of one member (keeper.go). One turn goes one way:
//
//   - Desired is what policies, namespaces and Leases ask for (desired.go).
//   - The store holds a snapshot of the metadata in the member (snapshot.go). What it left there is known by
//     its uid, its generation and its marks: labels and annotations. Anything else is replaced as a whole.
//   - A fence is installed step by step, so that its gate or its wall is in force at any time (keepfence.go).
//   - Probes show what is in force (verify.go). Unguarded and FencedSince return that.
//   - Fences that are not desired are removed last.
//
// An admission policy takes effect about a second after it was written, and ends as late. So writing it proves nothing.
// Verify asks the API server to reject a write that nobody may do. The answer is about the API server that gave it.
// Others of the same cluster may be behind.
package guard
