// Package lease is the arithmetic that hub and readers share: what one term promises, and until when. It has no
// Kubernetes types and does no I/O. Package wire turns a Content into a coordination.k8s.io/v1 Lease. Authors of
// controllers use package member instead. This package may change with any version.
//
// # The promise in one paragraph
//
// The hub reads its clock once before each request, and writes that reading into the Lease as its renewTime. The
// deadline is renewTime + Duration, and it travels inside the Lease. So a delay, a stale cache, a pause or a restored
// etcd can only show a reader an earlier deadline than the newest one promised. A reader acts while its own clocks are
// before the deadline. The hub grants the namespace to another cluster only after the latest deadline that it can have
// promised, plus ε, twice the largest clock error. So two clusters never lead together as long as every clock stays
// within ε/2 of true time.
//
// # Who measures, and from when
//
//   - Term.RenewTime is the hub's wall clock, read before the request is sent.
//   - Term.Duration is the D that was sent with that renewTime, in whole seconds.
//   - A reader freezes the remaining time when it sees a new deadline, on the clock that keeps counting in suspend (see
//     Reading.Boot). It honours the earlier of that and its wall clock (see Reader). An earlier deadline in the same
//     epoch shortens the permission: the later one was an edit that the hub has reverted.
//
// A reader in any other language may use the naive rule
//
//	holderIdentity == annotations["leasecast.dev/cluster"] &&
//	    now < renewTime + leaseDurationSeconds
//
// and is safe under the same assumption about clocks.
package lease
