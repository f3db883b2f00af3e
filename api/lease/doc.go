// Package lease is the arithmetic that hub and readers share: what one term
// promises, until when, and who sealed it. It knows no Kubernetes type and does
// no I/O; package wire turns a Copy into a coordination.k8s.io/v1 Lease.
//
// # The promise in one paragraph
//
// The hub reads its clock once before each request and writes that reading, the
// stamp, into the copy. Stamp + Duration is the deadline of the copy, and it
// travels inside the object: a delay, a stale cache, a pause or a restored etcd
// can only ever show a reader an earlier deadline than the newest one promised.
// A reader acts while its own clocks are before the deadline. The hub grants the
// namespace to another cluster only after the latest deadline that it can have
// promised, plus ε, twice the largest clock error. So two clusters never lead
// together as long as every clock stays within ε/2 of true time.
//
// # Who measures, and from when
//
//   - Term.RenewTime is the hub's wall clock, read before the request is sent.
//   - Term.Duration is the D that was sent with that stamp, in whole seconds.
//   - A reader freezes what remains at the moment of a new observation, on the
//     clock that keeps counting in suspend (see Reading.Boot), and honours the
//     earlier of that and its wall clock (see Reader). A copy of the same epoch with an
//     earlier deadline shortens that: the later one was an edit that is put right.
//
// A reader in any other language may use the naive rule
//
//	holderIdentity == annotations["leasecast.dev/cluster"] &&
//	    now < renewTime + leaseDurationSeconds
//
// and is safe under the same assumption about clocks.
package lease
