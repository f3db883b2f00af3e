// Package controller makes every decision of the hub. It gathers the record, the policies, the members and their
// Leases for one namespace. It asks election.Next. It persists the answer by compare-and-swap. Only
// then do the publishers learn what each member's Lease has to say.
//
//	gather ──▶ election.Next ──▶ persist ──▶ assign ──▶ explain
//
// One request is one namespace of one fleet. In a steady state there are none: publishers renew, and touch no record.
// A request comes from an event of a record, a policy, a member or a namespace in a member. It also comes from a
// publisher that has news, and from the instant that the last decision asked for.
//
// A tenure reads a record live once. After that it knows what it wrote, and a watch shows what others write. A
// decision on an outdated record fails when it is written.
//
// Two tenures never decide or renew at once. The Lease of the hub's election may not tell whether the earlier one is
// over, because somebody deleted or edited it. Then nothing is decided until the earlier one must have ended
// (tenure.Tenure.Overlap), because no decision counts what another tenure promises.
package controller
