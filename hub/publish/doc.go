// Package publish writes terms into members: one Publisher for each member, and in it one syncer for each
// Lease.
//
// A syncer is a small state machine without a clock, a client or a goroutine. It is given what the Lease has
// to say, what is known to be there, and one reading of the clocks. It names the next request
// (leasesyncer.go, decide.go). The Publisher runs syncers on a few workers and does the I/O (publisher.go). A
// member that does not answer costs its own workers and nobody else's.
//
// # Rules of the protocol that live here
//
//   - One reading: the reading that a syncer gets is the renewTime, and it is compared with the deadline of
//     the tenure.
//   - Renew only a live Lease: a renewal is a compare-and-swap, by UID and resourceVersion, of a live sealed
//     Lease that names this holder and epoch. Only the tenure that persisted the grant writes the first Lease
//     of a term.
//   - Keep the renewTime: a Lease that someone edits or deletes is repaired with the renewTime that was sent
//     last, which promises nothing new. A new renewTime is used only for a member that has just answered. On
//     a dead link the read that goes first fails, and nothing is promised.
//   - Every promise is noted in Promises before it is sent. Promises outlive the Publishers, because a
//     promise outlives the connection that it was sent over.
//   - Relinquish: a hub that its Clusters leave takes its mark off their Leases, and renews nothing any more.
//     Another hub may take a sealed Lease without a mark, by compare-and-swap (relinquish.go).
//   - A Lease that no hub made, one of another hub, and one that says that it belongs to another member are
//     never overwritten. They are reported (edits.go).
//
// # Acknowledged handover
//
// The rest works without it:
//
//   - revoke.go: a term is revoked by compare-and-swap of its live Lease.
//   - ackslist.go: once that has certainly been done, the readers are listed consistently, and asked whether
//     they have released the term.
//   - acks.go: who has to release the term, and who has not yet.
//   - acksexpiry.go: the registrations of readers that must have stopped acting are removed.
//   - history.go: for a while, no answer counts of a member whose etcd was restored.
package publish
