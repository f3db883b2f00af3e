// Package controller has every decision of the hub made and carried out. For one namespace it takes the record and
// what this tenure remembers from the ledger, and gathers policies, members and their Leases into a Snapshot. The
// Snapshot's Plan is persisted by compare-and-swap. Only then are the Leases in all members assigned to the publishers.
//
//	Take ──▶ gather ──▶ Decide ──▶ Write ──▶ assign ──▶ Status ──▶ WriteStatus
//
// A plan may ask that all renewals stop before promises are counted. Then the controller stops them, and decides
// again.
//
// One request is one namespace of one fleet. In a steady state there are no requests: publishers renew, and touch
// no record. A request comes from an event of a record, a policy, a member or a namespace in a member. It also
// comes from a publisher that has observed a change, and from the time that the last decision asked for.
//
// Two tenures never decide or renew at once. An edited or deleted Lease of the hub's election may not show whether
// the earlier tenure is over. Then nothing is decided until that tenure must have ended (tenure.Tenure.Overlap),
// because no decision counts what another tenure promises.
//
// # The parts
//
// Each part knows only those above it:
//
//   - hub: what all parts share, and the queues of requests;
//   - members: the workers, and what decisions see of the members;
//   - policies: the policies of a fleet, and what they own;
//   - loneNamespaces: which namespaces a policy manages that exist in one cluster only;
//   - moves: the planned changes that are under way;
//   - sources: what enqueues requests;
//   - seals: the seals of fleets;
//   - policyStatuses: the statuses of policies;
//   - following: shows package follow who leads where. Resource sets are asked before a planned change, and decide
//     nothing;
//   - cases: what the latest decisions rest on, for the plugin;
//   - hubClock: whether this replica's own clock is wrong;
//   - clusterLabels: the labels of a policy's publish.clusterLabels;
//   - Controller: the decisions;
//   - workersHub: the hub as the workers see it.
package controller
