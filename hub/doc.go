// Package hub is the hub controller: it watches the CAPI Clusters of a management
// cluster, decides which cluster leads each managed namespace, and writes that into
// native Leases in every member. Programs set it up with SetupWithManager; the binary
// is cmd/leasecast-hub.
//
// # The way through the code
//
//   - fleet: a CAPI Cluster and its kubeconfig Secret become a connected member;
//   - health: what was observed of a member becomes healthy, unhealthy or unknown;
//   - election: the rules, pure functions; start reading there;
//   - controller: gathers, asks the election, persists, and assigns copies;
//   - publish: writes the copies of one member and renews the leader's;
//   - guard: the admission policy that protects the copies in each member;
//   - tenure: until when this replica has the right to write;
//   - seal: what copies are sealed with.
//
// The other side, the readers, is package member.
package hub
