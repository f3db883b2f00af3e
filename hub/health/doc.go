// Package health turns the hub's observations of a member into one of three answers: healthy, unhealthy or
// unknown. It is pure: it reads no clock and does no I/O.
//
// # What is measured, and from when
//
// An [Observation] is one request to the member's API server, at the time when the request was sent, not when
// its answer came. Reads and writes are judged apart, because a member that answers reads but no renewals is
// lost all the same. Only the boot clock counts (see lease.Reading). A step of the wall clock, or a suspend,
// makes no member healthier or sicker. The wall clock is carried along for people.
//
// # The rules
//
//   - Unknown: the member has not answered both a read and a write yet. Unknown is not unhealthy: nobody is
//     deposed for it, and nobody is chosen.
//   - Unhealthy: a read or a write failed, and the last one of its kind that was answered was sent more than
//     UnreachableAfter ago. A member that refuses (403) has answered "no": that is a failure with reason
//     Forbidden.
//   - Healthy again: both kinds have been answered without a failure over a span of at least RecoverAfter. A
//     member that is reached for the first time is healthy at once.
//   - Without a failure nothing becomes unhealthy: silence counts only where somebody asked. [Track.Excuse]
//     excludes time in which the hub itself did not ask.
//   - In time is what came within the timeout of the policy. So [Tracks] keep the facts apart for each timeout: no
//     policy is told that a member is lost because another one was not patient.
//
// Thresholds belong to policies and observations to members. So a [Track] keeps facts, and computes the
// answer for any thresholds. Equal facts and equal thresholds give equal answers.
package health
