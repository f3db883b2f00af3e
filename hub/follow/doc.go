// Package follow keeps the objects of LeaderResourceSets in place in the members: see [v1alpha1.LeaderResourceSet].
//
// A set has a form for the leader's cluster and one for the others (sources.go, form.go: pure functions). Work on a set
// in a member is one request of a queue: sixteen at once, and two of them in one member. A pass applies what has
// changed by server-side apply, then deletes what the form does not have any more (pass.go). One metadata watch for
// each kind in a member shows what sets have there, and what others have changed or deleted (inventory.go).
//
// Nothing is decided by what this package does. A cluster that cannot be reached keeps its form. After a start of the
// hub all clusters keep theirs, until the leader's cluster was read or its time to answer has passed, and the record
// is no older than the Leases that were read.
//
// The hub finds its objects by a label with the identity of the set, as an ApplySet has it (KEP-3659), and of the
// object: a label that was copied marks nothing. The kinds that a set may have anywhere are an annotation of the set,
// written before the first object of a kind is. So a hub that knows nothing else, such as the target of a clusterctl
// move, finds and deletes all of them.
package follow
