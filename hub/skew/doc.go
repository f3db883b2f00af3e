// Package skew measures how far the clock of a member's API server is from the hub's, by the Date of its answers. It
// does no I/O and reads no clock.
//
// # What an answer proves
//
// The API server wrote the Date between the sending of the request and the arrival of the answer, and cut it to the
// second. So one answer proves an interval of offsets, one second plus the round trip wide, and no more. An [Estimate]
// is the intersection of such intervals (as in Marzullo's algorithm and NTP). Two clocks drift apart, so the interval
// widens with its age. An answer that contradicts it means that a clock was stepped, or that another server answered.
// Then the latest answer counts alone. Offsets are kept against the boot clock, which never steps. So a step of the
// hub's own wall clock shows at once, and contradicts nothing.
//
// # The precision
//
// Answers that come at varying phases of the second narrow the interval by themselves. Probes are sent a little early
// by a random time for that. With probes every second the interval is some 0.1 s plus the round trip wide after a
// minute. With probes every 5 s it is some 0.15 s plus the round trip wide after five minutes. So a clock that is off
// by more than ε plus that precision is found. One that is off by more than ε + 1 s and the round trip is found at
// once.
//
// # The verdict
//
// If every clock is within ε/2 of true time, two clocks differ by at most ε. So an interval that lies wholly
// beyond ±ε proves that the hub's clock or the member's is off. Two answers must agree on it. The verdict ends when
// nothing has proved more than ¾ ε for [Calm]. An unknown offset is held against no member. A hub that has just
// started gives nothing new to a member whose first answer shows an offset beyond ε: epochs follow the hub's clock.
//
// The proof does not say which of the two clocks is off: see rule 10 in package election.
//
// If all members prove that the hub's own clock is so wrong that no cluster could lead by its Leases, that is a verdict
// against the hub: see [Contradicted].
package skew
