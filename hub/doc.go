// Package hub is the hub controller: it watches the CAPI Clusters of a management cluster, decides which
// cluster leads each managed namespace, and writes that into native Leases in every member. Programs make one
// with NewManager; the binary is cmd/leasecast-hub.
//
// # The way through the code
//
//   - fleet: a CAPI Cluster and its kubeconfig Secret become a connected member; fleet/secrets shows the Secrets of
//     those fleets that the hub was granted;
//   - rights: the role of the user that the hub impersonates in a member;
//   - health: the hub's observations of a member become healthy, unhealthy or unknown;
//   - skew: how far the clock of a member's API server is from the hub's, by the Date of its answers;
//   - act: what operators order by annotations;
//   - assign: what the Lease in one member has to say;
//   - election: the rules by their numbers, as pure functions; start reading there;
//   - ledger: the record of each namespace, with what this tenure remembers of it;
//   - decide: what a decision rests on, and what it makes of that, as pure functions;
//   - explain: conditions, statuses, events and messages about a decision, as pure functions;
//   - fairqueue: the order of decisions;
//   - controller: gathers, decides, has the ledger persist, and assigns Leases;
//   - worker: the work in one member, from its engagement to its end;
//   - publish: writes the Leases of one member and renews the leader's;
//   - guard: the admission policies that protect the Leases in each member, and the fences that policies ask for;
//   - tenure: until when this replica has the right to write;
//   - seal: the key that Leases are sealed with;
//   - follow: keeps the objects of LeaderResourceSets in place in the members;
//   - labelled: watches the metadata of labelled objects in a member;
//   - metrics: what Prometheus reads of all this.
//
// The other side, the readers, is package member.
//
// # A fleet that moves to another hub
//
// clusterctl move pauses the Clusters and creates all objects on the target, without their status. Then it
// deletes them on the source, in any order, each with the annotation delete-for-move. A record is a spec, so
// it arrives whole, and the hub writes its status again. From the second step on two hubs see the same
// members. Each learns only from the members what the other one does. So the mark of a hub on a Lease is
// the right to write it, and it passes by compare-and-swap:
//
//   - The source renews live Leases until its first Cluster is annotated. While all Clusters are paused
//     (fleet.Move), it concludes nothing from an object that is gone. Then it takes its mark off the
//     remaining records, so that it never again takes them for its own, stops all renewals, and takes its
//     mark off every Lease. The terms stay as they are (publish.Relinquish). A replica that is elected
//     in the meantime continues with that. If the move is given up, so that no Cluster is annotated any more, the
//     source takes its Leases and records back as a target does (publish.Resume). A Cluster that was deleted on
//     the way counts as moving for ten minutes.
//   - The target knows a record of another hub by the mark on it. It grants nothing and deposes nobody there
//     (election, moved.go). It waits, with the reason OtherHub, as long as a Lease carries the other hub's
//     mark. A live Lease without a mark is the present term: the record follows it, and the next renewal puts
//     the mark of this hub on the Lease. Where no Lease is live, the hub takes the Leases of all members.
//     Then the record gets the mark of this hub, and is one like any other.
//
// So the leader, its term and its epoch stay. Two hubs may find the same Leases, as when objects were copied
// by hand or from a backup. They never both have the mark on the one Lease that counts: one of them reports
// OtherHub. If the source dies before it has let go, and never comes back, its marks stay and the terms end
// at their deadlines. To say that it is gone, delete the Leases in the members (label leasecast.dev/managed).
// The target then waits for all that the source may have promised, D + ε from then on, and chooses again. A
// management cluster that was restored beside itself looks the same, because its kube-system has the same
// UID: do not run both.
//
// # Two installations on one management cluster
//
// The mark of a hub is the UID of the management cluster's kube-system and the namespace that holds the hub's
// election. So its replicas share it, and a hub in another namespace is another hub. One of them serves each
// fleet: the first that puts its mark on the fleet's seal, by compare-and-swap. The other one decides nothing
// for that fleet and writes nothing. It explains this in an event on each policy. If the mark goes, the one
// that served restores it at once, and the other one leaves it ten seconds for that.
//
// Whoever renames the hub's namespace replaces one installation by another: the README of this folder lists the
// steps. The new one finds records of another hub, and goes on as the target of a move whose source has died.
package hub
