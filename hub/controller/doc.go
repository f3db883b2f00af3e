// Package controller makes every decision of the hub. For one namespace it gathers the record, the policies, the
// members and their Leases. It calls election.Next, and persists the answer by compare-and-swap. Only then does it
// assign the content of each member's Lease to the publishers.
//
//	gather ──▶ election.Next ──▶ persist ──▶ assign ──▶ explain
//
// One request is one namespace of one fleet. In a steady state there are no requests: publishers renew, and touch
// no record. A request comes from an event of a record, a policy, a member or a namespace in a member. It also
// comes from a publisher that has observed a change, and from the time that the last decision asked for.
//
// A tenure reads a record live once. After that it tracks its own writes, and a watch shows the writes of others. A
// decision on an outdated record fails when it is written.
//
// Two tenures never decide or renew at once. An edited or deleted Lease of the hub's election may not show whether
// the earlier tenure is over. Then nothing is decided until that tenure must have ended (tenure.Tenure.Overlap),
// because no decision counts what another tenure promises.
package controller
