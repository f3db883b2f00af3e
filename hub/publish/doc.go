// Package publish writes terms into members: one Publisher a member, in it one syncer
// a copy.
//
// A syncer is a small state machine without a clock, a client or a goroutine: given
// what the copy has to be, what is known to be there, and one reading of the clocks,
// it names the next request (syncer.go). The Publisher runs syncers on a few workers and
// does the I/O (publisher.go). A member that answers nothing costs its own workers
// and nobody else's.
//
// # Rules of the protocol that live here
//
//   - One reading: the reading that a syncer gets is both the stamp and what is compared
//     with the deadline of the tenure.
//   - Renew only what stands: a renewal is a compare-and-swap, by UID and
//     resourceVersion, on a live sealed copy that names this holder and epoch. The
//     first copy of a term is written by the tenure that persisted the grant alone.
//   - Hold the stamp: a copy that someone edits or deletes is put right with the stamp
//     that was sent last, which promises nothing new. A new stamp is drawn only for a
//     member that has just answered: on a dead link the read that goes first fails, and
//     nothing is promised.
//   - Every stamp is entered in the Ledger before it is sent. The Ledger outlives the
//     Publishers, because a promise outlives the connection it was sent over.
//   - A term that is revoked ends by compare-and-swap of its live copy (revoke.go). Only when that has
//     certainly been done, its readers are listed, consistently, and asked whether they
//     have released the term (roll.go, readers.go). What a member says whose etcd was
//     restored does not count for a while.
//   - The registrations of readers that must have stopped acting are removed.
//   - A hub that its Clusters leave takes its mark off their copies, and stamps nothing any
//     more. A sealed copy without a mark is free to be taken, by compare-and-swap.
//   - A Lease that nobody of us made, another hub's copy, and a copy that says it
//     belongs to another member are never overwritten: they are reported.
package publish
