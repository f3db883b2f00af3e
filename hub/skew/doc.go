// Package skew measures how far the clocks of a member are from the hub's, by what the member says anyway. It
// does no I/O and reads no clock.
//
// # What a sample proves
//
// A [Sample] says that at some instant between two readings of the hub's boot clock the other clock showed a
// time from Shown up to Shown + Grain. So it proves an interval of offsets, as wide as the round trip and the
// grain together, and no more. An [Estimate] is the intersection of its samples (as in Marzullo's algorithm
// and NTP). Two clocks drift apart, so the interval widens with its age. A sample that contradicts it means
// that a clock was stepped, or that another server answered. Then the latest sample counts alone. Offsets are
// kept against the boot clock, which never steps. So a step of the hub's own wall clock is seen at once, and
// contradicts nothing.
//
// # What the sources are worth
//
//   - The Date of an answer was written between sending the request and receiving the answer. Both sides are
//     proved, to a second. The second flips at an edge, and two answers on both sides of an edge are as good
//     as a time to the microsecond. [Estimate.Aim] says when to ask so that the answer halves the interval.
//   - The renewTime of a Lease was read before the Lease was seen. That proves that the clock is not further
//     behind, whatever the delay. That it was not read long before can only be assumed. For an API server's
//     own Lease it was read at most [Lag] before the last list that did not show it. For a host's Lease, the
//     API server that admitted it has noted the second; the fastest of several is assumed to be admitted
//     within [Delay]. So a host that is ahead is found at ε, one that is behind at about ε + 1.5 s.
//
// # The verdict
//
// If every clock is within ε/2 of true time, two clocks differ by at most ε. So only an interval that lies
// wholly beyond ± ε is a verdict against a member: one of the two clocks breaks the promise. Two samples in a
// row must prove it. The verdict ends when nothing has proved more than ¾ ε for [Calm]. An unknown offset is
// held against nobody.
//
// If all members prove the same of the hub's own clock, and by so much that nobody could lead by its Leases,
// that is a verdict against the hub: see [Contradicted].
package skew
