// Package publish writes terms into members. Each member has one Publisher, and each of its Leases has one syncer.
//
// A syncer is a small state machine without a clock, a client or a goroutine. Its input is the Lease's assigned
// content, the known Lease, and one reading of the clocks. It returns the next request (leasesyncer.go, decide.go).
// The Publisher runs syncers on a few goroutines and does the I/O (publisher.go). A member that does not answer blocks
// only its own goroutines, and gets one request at a time.
//
// The Publisher owns the syncers, Readers own what the readers have registered and released (readers.go), and silence
// owns who waits for an answer (silence.go). Each has its own lock. They are taken in this order: Publisher, silence,
// Readers, Promises, tenure.
//
// # Rules of the protocol that live here
//
//   - One reading: the reading that a syncer gets is the renewTime, and it is compared with the deadline of the
//     tenure.
//   - Renew only a live Lease: a renewal is a compare-and-swap, by UID and resourceVersion, of a live sealed Lease
//     that names this holder and epoch. Only the tenure that persisted the grant writes the first Lease of a term.
//   - Keep the renewTime: an edited or deleted Lease is repaired with the renewTime that was sent last, which
//     promises nothing new. So is a renewal that failed: until it is stored, nothing more is promised. A new
//     renewTime is used only for a member that has just answered. On a dead link the preceding read fails, and
//     nothing is promised.
//   - Every promise is recorded in Promises before it is sent. Promises outlive the Publishers, because a promise
//     outlives the connection that it was sent over.
//   - Relinquish: a hub that its Clusters leave removes its mark from their Leases, and renews nothing any more.
//     Another hub may take a sealed Lease without a mark, by compare-and-swap (relinquish.go). If the move is given
//     up, this hub takes it back in the same way.
//   - Three kinds of Leases are reported and never overwritten (edits.go): a Lease that no hub made, one of another
//     hub, and one that names another member.
//
// # Acknowledged handover
//
// The rest works without it:
//
//   - revoke.go: a term is revoked by compare-and-swap of its live Lease.
//   - readers.go: once the term has certainly been revoked, the readers are listed consistently, and asked whether
//     they have released it.
//   - acks.go: who has to release the term, and who has not yet.
//   - acksexpiry.go: the registrations of readers that must have stopped acting are removed.
//   - history.go: after a restore of the member's etcd, its readers' answers do not count for a while.
package publish
