// Package election is the heart of the hub: the rules by which a namespace gets, keeps and changes its
// leader, as pure functions. Equal inputs give equal decisions. Nothing here reads a clock, a cluster or a
// record.
//
// # One decision
//
// Package decide makes a State (the record as persisted, what this tenure has promised, what the tenure
// inherited) and the candidates, and calls Next. The Decision contains the record to persist before anything is
// written into a member, and when to decide again. Assign then returns the content of the Lease in each
// member, as a function of the persisted record alone.
//
//	Vacant ──grant──▶ Leading ──end────▶ Ending ──grant──▶ Leading
//	   ▲                 ▲                  │  │
//	   │                 └──────resume──────┘  │
//	   └───────── nobody is eligible ──────────┘
//
//	any ──▶ Retired ──▶ gone
//
// Planned and unplanned changes are one path. First the record says Ending, then all renewals stop, and only then
// the expiry of the term is computed. That is the latest deadline that can have been promised, plus ε. The next
// grant comes when the expiry has passed on the wall clock and on the clock that never steps.
//
// Where all readers register, a term can end earlier. When Ending is recorded and the successor has shown
// that it can be written, the record says that the term is revoked, in an epoch of its own. From then on the
// term never resumes, and its live Lease is replaced by one without a holder. The next grant comes when all
// readers have released the term, or when it has expired.
//
// # The protocol
//
// D is how long after its renewTime a Lease lets a reader act, r the renew interval, τ the timeout of a
// request, ε twice the largest error of any clock, h the duration of the hub's own election. A tenure is one
// replica's unbroken right to write. A term is one cluster's lead of one namespace, and its epoch is the
// number that fences it. Comments, tests and mutants name the rules by their numbers.
//
//  1. One reading. The clock is read once before a request is sent. That reading is the renewTime, and it is
//     compared with the tenure's deadline, which is counted from before the election's last renewal was sent,
//     + h. A replica stops writing before it gives up its election. While an earlier tenure may be at work,
//     giving it up is no orderly release.
//  2. Record first. Leader, epoch, D and state, and a revocation, are persisted by compare-and-swap before
//     any Lease shows them. So are the largest D, ε and stop time under which Leases of the term are sent, and the
//     locks that they open.
//  3. Renew only a live Lease: by UID and resourceVersion, one that names this leader and this epoch. Anything else
//     is a new term. Only the tenure that persisted a grant writes its first Lease. A Lease that was edited to
//     promise more is repaired at once, also while its term is being replaced. For D after the repair, readers may
//     not have seen it. So the edit counts like a promise, and a new term gets a higher epoch. A sealed Lease that is
//     newer than the record raises the record, and is never overwritten.
//  4. Stop renewing, then count. Nothing is renewed for a record that says Ending. It may go back to leading until
//     it is revoked. All renewals stop before the expiry is computed, and the expiry that another tenure
//     computed is not trusted.
//  5. Grant when the latest renewTime + D that was sent lies ε in the past, on the wall clock and on the clock that
//     never steps. Or grant when all registered readers have released the term. A policy that changes D, ε, the stop
//     time or the Lease's name shortens no earlier promise. Nor does a larger value lengthen one: each Lease counts
//     as it was sent. If the wall clock was ahead at a renewal, this delays the grant by another D + ε at most:
//     readers refuse a renewTime in the future.
//  6. A new tenure does not know what earlier ones sent. They can have written until the deadline that the election's
//     Lease shows. Where that Lease was deleted or is implausible, or where a record or a Lease of theirs is later,
//     they can have written until h after the start of the new tenure, which decides nothing before then. So two
//     tenures never decide at once. The clock of the earlier one may be behind by ε, unless it ended in order. The
//     record's D, ε and stop time are added to that, and no less than the seal has for its policy, or sealed Leases of
//     its term: a record can come from a backup. For a lost record the seal has the values for every policy that may
//     have owned it. The values fall once what was promised under them has passed. The election's Lease can come from
//     a backup, too. So D, ε and stop time count from the start where a newer term was seen, or the leader's cluster
//     was not read. A term that ended before counts as it did if the election's Lease is no older than a minute.
//     Nothing that a member shows shortens the wait. A record without a D is a lost one. Sealed Leases found at the
//     start raise an older record. A live sealed Lease names the leader. A newer one that has expired names the
//     leader that is replaced, which may get the next term.
//  7. API servers refuse edits of a record's spec by others, and any epoch that is lower. A record that was deleted, or
//     created again from a backup, is restored as this tenure knows it. The epoch is one above the highest in the
//     record and in sealed Leases. It is also at least the number of seconds since 2025. A record outlives its policy,
//     as Retired, until all that it promised has passed and the seconds are above its epoch. If readers may have
//     accepted an edited Lease, the next epoch is above the edit's. An absurd epoch is ignored, and the Lease with it
//     is replaced, sealed or not.
//  8. Two hubs. Where a Lease carries another hub's mark, this hub writes nothing and reports OtherHub. Where
//     another hub's term is live, under whatever name, it decides nothing, and the record says OtherHub. What that
//     hub promised counts after its Leases are gone, once the record says so. This hub deposes no leader whose Lease
//     it has not itself taken by compare-and-swap. Of two hubs on one management cluster, the one whose mark is on a
//     fleet's seal serves the fleet, and the other one does nothing there.
//  9. Unknown is not dead, and empty is not healthy. A member that was never reached is no candidate, and as
//     a leader it is not deposed before its expiry. An empty list decides nothing. Deleting a Cluster ends no
//     term.
//  10. The observer may be at fault. When most members are lost at once, leaders are kept. A leader is replaced for its
//     clock only while another cluster's clock is proved to agree with the hub's. A successor has to show that it can
//     be written.
//  11. A paused Cluster keeps what it has and gets nothing new. One that moves to another hub is left alone.
//  12. Recovery moves nothing, but rule 23. A healthy leader is replaced when people order it: rules 18, 21 and 24,
//     and edited priorities. Rule 26 replaces one whose programs are not. Such a change waits while a fence of locks or
//     schedules is missing in the leader's cluster: programs there would go on. After an outage of the hub, when
//     everything promised has passed, each cluster has D from the start of the tenure to answer, where operators fail
//     over a minute at most. As long as no cluster can replace a leader that cannot be reached, the record keeps its
//     name. One that recovers is waited for until another cluster was able to lead for D.
//  13. A candidate has the namespace, active and matching, and can be written. Its clock is not proved to be off, and
//     before two answers agree on it the latest shows no such thing: an epoch from a wrong clock would stay. It is
//     guarded, and fenced where the policy asks for that. A namespace is managed while it matches anywhere. Its
//     first leader waits for better clusters that are not ready yet, counted from when the namespace was first seen.
//  14. A cluster is its kube-system UID, pinned at first contact. Another UID behind a name, or one behind two
//     names, is no candidate.
//  15. Where locks are fenced, the next grant waits for their stop time, too. It counts from the end of what
//     rule 5 waits for: a holder may have been admitted until then. What readers release does not shorten it.
//     Where the fence was missing in the leader's cluster, the record names that cluster: programs there may still act.
//  16. A fenced lock is closed in every cluster until the leader's Lease lists it. A lock that is new to the record
//     may still be held: by the leader of another namespace, or without a fence. So it is listed once every cluster
//     in reach has refused it for as long as the fleet's largest D, ε and stop time together. Each other cluster must
//     have refused it, or been out of reach, for as long. It stays listed from term to term while the policy fences
//     it. A cluster whose administrator has not allowed the fence of a lock outside the policy's namespace refuses
//     nothing, so such a lock is not newly listed.
//  17. One namespace, one policy. The policy that the record names owns the namespace until its own selection ends. The
//     oldest one that selects a namespace without an owner gets it. A policy that owns none has no effect there. One
//     that became invalid changes nothing.
//  18. A drained Cluster hands over what it leads, by planned changes, and gets nothing new. It goes on where no other
//     cluster may lead. The end of a drain moves nothing. A drain waits for fences as an edited priority does.
//  19. Planned changes are those for a drain, an order, an edited priority or a failback. Of one policy only so
//     many are under way at once, and the leaders of the others are renewed. An edit that waits has not been
//     counted. What is lost, deleted or without a leader waits for nobody.
//  20. Where people have frozen who leads, there is neither a planned change nor a failover. The leader is renewed. If
//     its term ends, it may get a new one, and no other cluster does. An edit of a priority waits until then. A
//     namespace without a leader gets one.
//  21. An ordered move changes the leader once, also against priorities, and also where the leader cannot be reached.
//     All priorities count as they are when it is done.
//  22. Where operators fail over by hand, no leader is replaced for what only the hub sees: that it does not answer, or
//     that its clock is off. Nobody else gets a term while nothing else speaks against it. Orders count as always.
//  23. Where the policy fails back, a better cluster gets the lead when every decision of a time found it able to lead.
//     Another one that was not able to for so long is passed over.
//  24. At the instant of a rebalance, all priorities count as edited, once. A namespace that gets another policy after
//     that stays. Where namespaces are spread, each has an order of its own among clusters of one priority. A cluster
//     that joins with the leader's priority takes nothing.
//  25. An operator may declare that a leader's cluster is off. It is replaced at once, also where people have
//     frozen who leads. When all renewals have stopped and it does not answer, the record accepts the declaration.
//     A new tenure gives it r + τ to answer. Only then the next grant waits for no promise, of this tenure or an
//     earlier one. An answer after that voids the acceptance, for this term. Where a newer term than the recorded
//     one was seen, nothing is accepted. No clock but the hub's counts.
//  26. A policy may require objects, or a reader, to be healthy in a cluster. Where one of them has not been healthy
//     for as long as the policy allows, the cluster ranks last. A leader there is replaced, without a pace, where all
//     of it has been healthy for as long in a cluster that may lead. Otherwise it stays. What cannot be read moves
//     nothing. A planned change goes only where the state of what is required is no worse. A lost leader may be
//     replaced by any.
//
// # Where each rule lives
//
//   - package tenure: rule 1, and rule 6 with expiry.go;
//   - expiry.go: rules 4, 5, 6 and 15, when an old promise has certainly ended;
//   - rank.go: rule 13, who is best among those that may lead;
//   - replace.go: rules 9 to 12 and 18 to 22, when a leader must go, and when it must not;
//   - fence.go: rule 25, when a leader's cluster counts as off;
//   - failback.go: rules 21, 23 and 24, what moves a leader that may go on;
//   - requires.go: rule 26, what must be healthy where a leader is;
//   - revoke.go: rules 4 and 5, when a term ends because its readers have released it;
//   - grant.go: rule 7, the new term and its epoch;
//   - locks.go: rule 16, which locks are open;
//   - moved.go: rules 6, 8 and 11, what came from another hub, and what another hub leads;
//   - raise.go: rule 6, what sealed Leases show a tenure whose record is old or lost;
//   - next.go: the states;
//   - assign.go: rules 2 and 3, the content of each member's Lease;
//   - package fleet, identity.go: rule 14;
//   - package decide, claim.go and valid.go: rule 17.
package election
