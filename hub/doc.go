// Package hub is the hub controller: it watches the CAPI Clusters of a management
// cluster, decides which cluster leads each managed namespace, and writes that into
// native Leases in every member. Programs make one with NewManager; the binary
// is cmd/leasecast-hub.
//
// # The way through the code
//
//   - fleet: a CAPI Cluster and its kubeconfig Secret become a connected member; fleet/secrets shows the Secrets of
//     those fleets that the hub was granted;
//   - health: what was observed of a member becomes healthy, unhealthy or unknown;
//   - skew: how far a member's clocks are from the hub's, by what the member says anyway;
//   - election: the rules by their numbers, as pure functions; start reading there;
//   - controller: gathers, asks the election, persists, and assigns copies;
//   - publish: writes the copies of one member and renews the leader's;
//   - guard: the admission policy that protects the copies in each member;
//   - tenure: until when this replica has the right to write;
//   - seal: what copies are sealed with;
//   - metrics: what Prometheus is told of all this.
//
// The other side, the readers, is package member.
//
// # A fleet that moves to another hub
//
// clusterctl move pauses the Clusters, makes copies of all objects on the target, without
// their status, and deletes them on the source, in any order, each with the annotation
// delete-for-move. A record is a spec, so it arrives whole, and the hub writes its status anew. From the second step on two hubs see the same members, and only the
// members can tell each of them what the other one does. So the mark of a hub on a copy is
// the right to write it, and it passes by compare-and-swap:
//
//   - The source renews what stands until its first Cluster is annotated. That an object is
//     gone means nothing to it while all Clusters are paused (fleet.Move). Then it takes its
//     mark off the records that are left, so that it never again takes them for its own, closes
//     the source of stamps, and takes its mark off every copy. The terms stay as they are
//     (publish.Depart). A standby that is elected in the middle goes on with that.
//   - The target knows a record of another hub by the mark on it. It grants nothing and deposes
//     nobody there (election, moved.go). It waits and says OtherHub as long as it sees the other
//     hub's mark on a copy. A live copy without a mark is the standing term: the record follows it,
//     and the next renewal puts the mark of this hub on the copy. Where nothing stands, the copies
//     of all members are taken. Then the record gets the mark of this hub, and is one like any other.
//
// So the leader, its term and its epoch stay. Two hubs that find the same copies, as when
// objects were copied by hand or from a backup, never both have the mark on the one copy that counts:
// one says OtherHub. If the source dies before it has let go, and never comes back, its marks stay and the
// terms end at their deadlines: delete the copies in the members (label leasecast.dev/managed) to say that it
// is gone. The target then waits for all that the source may have promised, D + ε from then on, and chooses anew.
// What this cannot tell apart is a management cluster that was restored beside itself,
// because its kube-system has the same UID: do not run both.
//
// # Two installations on one management cluster
//
// The mark of a hub is the UID of the management cluster's kube-system and the namespace that holds the hub's election. So
// its replicas share it, and a hub in another namespace is another hub. Each fleet is served by one of
// them: the first that puts its mark on the fleet's seal, by compare-and-swap. The other one stands back: it decides
// nothing for that fleet, writes nothing, and says so by an event on each policy. Should the mark go, the one that
// served puts it back at once, and the other one leaves it ten seconds for that.
//
// Whoever renames the hub's namespace replaces one installation by another. In this order, or any other: stop
// the old one for good; delete the Leases with the label leasecast.dev/managed in all members, because its mark is on them; take
// the mark off the seal (kubectl -n <fleet> annotate secret leasecast-seal leasecast.dev/hub-). The new one finds records
// of another hub, and goes on as the target of a move whose source has died: D + ε after the last Lease is gone
// somebody leads again. The Leases are what keeps that safe. If the old one is alive after all, the two never both have
// the mark on the one copy that counts.
package hub
