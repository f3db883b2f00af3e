// Package election is the heart of the hub: the rules by which a namespace gets,
// keeps and changes its leader, as pure functions. Equal inputs give equal
// decisions; nothing here reads a clock, a cluster or a record.
//
// # One decision
//
// The controller gathers a State (the record as persisted, what this tenure has
// promised, what the tenure inherited) and the candidates, and asks Next. The
// Decision says what the record must become, to be persisted before anything is
// written into a member, and when to ask again. Assign then says what the copy in
// each member has to be, as a function of the persisted record alone.
//
//	Vacant ──grant──▶ Leading ──drain──▶ Draining ──grant──▶ Leading
//	   ▲                 ▲                  │  │
//	   │                 └──────resume──────┘  │
//	   └───────── nobody is eligible ──────────┘        any ──▶ Retired ──▶ gone
//
// Planned and unplanned changes are one path. A term ends by draining: the record
// says Draining, the source of stamps is closed, and only then the bound is
// counted: the latest deadline that anybody can have been promised, plus ε. The
// next grant comes when the bound has passed on the wall clock and on the clock
// that never steps.
//
// Where all readers register, a term can end earlier. Once the drain is recorded and the
// successor has shown that it can be written, the record says that the term is revoked, in
// an epoch of its own. From then on it never resumes; its live copy gives way to one that
// names nobody, and the next grant comes when all readers have released the term, or
// when the bound has passed.
//
// # The protocol
//
// D is how long a stamp lets a reader act, r the renew interval, τ the timeout of a request, ε twice the largest
// error of any clock, h the duration of the hub's own election. A tenure is one replica's unbroken right to
// write, a term one cluster's lead of one namespace, its epoch the number that fences it. Comments, tests and
// mutants name the rules by their numbers.
//
//  1. One reading. The clock is read once before a request is sent: that is the stamp, and what is compared with the
//     tenure's deadline, which is counted from before the election's last renewal was sent, + h. A replica
//     stops stamping before it gives up its election. While an earlier tenure may be at work, that is no orderly release.
//  2. Record first. Leader, epoch, D and state, and a revocation, are persisted by compare-and-swap before any copy
//     tells of them. So are the largest D and ε that anything was ever sent under.
//  3. Renew only what stands: by UID and resourceVersion, a live copy that names this leader and this epoch.
//     Anything else is a new term. Only the tenure that persisted a grant writes its first copy. A copy that was
//     edited to promise more is put right at once, also while its term is being replaced. For D after that readers may
//     not have seen it, so it counts like a promise, and a new term outbids its epoch. A sealed copy that is newer
//     than the record is news for the record, and never overwritten.
//  4. Close, then count. Nothing is renewed for a record that drains; it may go back to leading until it is
//     revoked. The source of stamps is closed before the bound is counted, and no bound of another tenure
//     is trusted.
//  5. Grant when the latest of all that was sent, stamp + D, lies ε in the past, on the wall clock and on the one that
//     never steps; or when all registered readers have released the term. A policy that changes D, ε or
//     the Lease's name shortens nothing of what was promised before. A wall clock that was ahead when it stamped holds this up
//     by another D + ε at most: readers refuse its stamps.
//  6. A new tenure does not know what earlier ones sent. They can have stamped until the deadline that the election's
//     Lease shows or, where that was deleted or says anything odd, until h after the start of the new one,
//     which decides nothing before then: two tenures never decide at once. The earlier one may go by a clock that is
//     behind by ε, unless it ended in order. To that the largest D and ε ever are
//     added. Nothing that a member shows shortens it. An empty record is a lost one, and so is one that no hub can
//     have written. Sealed copies found at the start raise an older record; a live one names the leader.
//  7. The epoch is one above the highest in the record and in sealed copies, and at least the seconds since 2025. A
//     record outlives its policy, as Retired, until all that it promised has passed and the seconds have overtaken
//     its epoch. A copy that readers may have believed for no good reason is outbid; an absurd one is
//     believed by nobody, and replaced, whether or not it is sealed.
//  8. Two hubs. Where a copy carries another hub's mark this hub writes nothing, and says so; where another hub's term
//     stands, under whatever name, it decides nothing. It deposes no leader whose copy it has not itself taken by
//     compare-and-swap. Of two on one management cluster, the one whose mark is on a fleet's seal serves the fleet, and
//     the other one does nothing there.
//  9. Unknown is not dead, and empty is not healthy: a member that was never reached is no candidate, and is not
//     deposed for it before its bound. An empty list decides nothing. Deleting a Cluster ends no term.
//  10. The observer may be at fault: when most members are lost at once, leaders are kept. A successor has to show that
//     it can be written.
//  11. A paused Cluster keeps what it has and gets nothing new. One that moves to another hub is left alone.
//  12. Recovery moves nothing. A healthy leader is replaced when somebody edits a priority, and not otherwise. After an
//     outage of the hub, when everything promised has passed, each cluster has D from the start of the tenure to answer. As
//     long as nobody can replace a leader that cannot be reached, the record remembers it.
//  13. A candidate has the namespace, active and matching, a clock that is right, and takes what is written. A
//     namespace is managed while it matches anywhere. Its first leader waits for better clusters that are not ready
//     yet, from when it was first seen.
//  14. A cluster is its kube-system UID, pinned at first contact. Another UID behind a name, or one behind two names,
//     is no candidate.
//
// # Where each rule lives
//
//   - bound.go: rules 4, 5 and 6, when an old promise has certainly ended;
//   - rank.go: rule 13, who is best among those that may lead;
//   - replace.go: rules 9, 10, 11 and 12, when a leader must go, and when it must not;
//   - revoke.go: rules 4 and 5, when a term ends by the word of its readers;
//   - grant.go: rule 7, the new term and its epoch;
//   - moved.go: rules 6, 8 and 11, what came from another hub;
//   - raise.go: rule 6, what sealed copies tell a tenure whose record is old or lost;
//   - next.go: the states;
//   - assign.go: rules 2 and 3, what each member's copy has to be.
package election
