// Package fleet turns a CAPI Cluster and its kubeconfig Secret into a connected member. [Provider] is a
// multicluster.Provider. It engages each member with the manager under the name `<fleet>/<cluster>`, so that
// the multicluster controllers watch it. It also answers questions about every Cluster that takes part,
// connected or not. Package transport holds the connections to one member, and package wake lets goroutines
// wait for each other.
//
// # What is read of a member
//
// Every answer passes package transport, which keeps the few fields that the hub uses and bounds them, before anything
// is decoded. To read another field or another kind, add it to fields.go and kinds.go there. A flood is read more
// slowly, or not seen.
//
// # Who is a member
//
// A Cluster takes part while it has the label leasecast.dev/priority. It stays connected while it has the
// annotation leasecast.dev/cluster-uid, because then something of ours may be left in it. After the Cluster
// was deleted it stays connected until [Provider.Forget] or [ForgottenAfter]. Members that take no part any
// more are still listed, with a reason.
//
// # Nobody waits for a bad member
//
// Every member has its own goroutines, connections and deadlines. The informers of a member are synced before
// it is engaged. So a dead address, or a server that completes TLS and then says nothing, does not hold up
// the others' start, work or stop. A replica without the right to write connects its members too, and engages
// them when it is elected and they are pinned. Once engaged, a member stays engaged until nothing of ours is left
// there, or until it is forgotten. While it cannot be reached, its caches keep their last answer and its watches
// wait until it answers again.
//
// # Credentials
//
// The Secret is the truth. A changed kubeconfig is checked first (it must lead to the pinned cluster) and
// then swapped in below the clients: the members' clients and caches stay the same objects. A kubeconfig that
// cannot be used, or no longer exists, is reported, and the last good one stays in use for as long as it
// works. So a broken rotation does not cost leadership. If only the bearer token changed, connections and
// watches go on and new requests carry the new token. Otherwise the old connections end, and watches go on from
// where they were on new ones.
//
// If the kubeconfig is an administrator's, the hub impersonates a user of its own (package rights). Only the first
// contact of a kubeconfig and the installation, repair and removal of that user's role are sent without it. Another
// kubeconfig was prepared for the hub, and is used as it is.
//
// The kubeconfig is untrusted input. It can name an https server, CAs, a client certificate or a token, all
// of them inline, and nothing else. Its size, its depth and its keys are bounded before it is parsed. It is parsed
// once for each version. A standby parses it too: it stays connected, so that a takeover finds warm caches.
//
// # Which cluster is this
//
// At first contact, the replica that has the right to write pins the UID of the member's kube-system
// namespace, in the annotation leasecast.dev/cluster-uid of its Cluster. It does not do so while the Secret is missing
// or unusable: the connection may lead to an earlier cluster of that name. Another UID behind the same name is
// WrongCluster. The same UID behind two Clusters is DuplicateCluster for one of them: the pinned one keeps
// it, then the older one, then the first by name. A pin counts when contact has found that UID. It also counts when
// the annotation leasecast.dev/cluster-uid-proof shows, by the fleet's seal, that the hub itself has pinned it. To
// accept a rebuilt cluster under its old name, remove the annotation.
//
// # Health
//
// Each member is probed as often as the policies of its fleet that select it need ([Provider.SetProbing]). Each policy
// judges the outcome by its own timeout (health.Tracks), so one probe serves them all. A probe is an authenticated
// read, which also checks the UID, and a write on the path of renewals: an update of the Lease
// kube-system/leasecast-hub-probe. Whoever writes renewals reports the outcome with [Member.Observe], which spares the
// write probe. A member that stopped answering is probed each second or faster. The hub's own pauses are not held
// against members.
//
// # Who calls whom
//
// From top to bottom: the runner, which watches the hub's objects; the [Provider], which answers questions; the
// connection of each member, which owns its target and its cluster; its prober; the registry of all members; the
// member, which is one locked state; and what all members share. Calls go down only.
package fleet
