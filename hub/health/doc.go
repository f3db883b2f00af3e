// Package health turns the hub's observations of a member into one of three states: healthy, unhealthy or unknown.
// It is pure: it reads no clock and does no I/O.
//
// # What is measured, and from when
//
// An [Observation] is one request to the member's API server, at the time when the request was sent, not when its
// answer came. Reads and writes are judged separately, because a member that answers reads but no renewals is lost
// all the same. Only the boot clock counts (see lease.Reading). A step of the wall clock, or a suspend, does not
// change a member's health. The wall clock is carried along for people.
//
// # The rules
//
//   - Unknown: the member has not answered both a read and a write yet. Unknown is not unhealthy: it deposes no
//     leader, and makes no cluster eligible.
//   - Unhealthy: a read or a write failed, and the last one of its kind that was answered was sent more than
//     UnreachableAfter ago. A rejection (403) is a failure with reason Forbidden.
//   - Healthy again: both kinds have been answered without a failure over a span of at least RecoverAfter. A member
//     that is reached for the first time is healthy at once.
//   - Without a failure nothing becomes unhealthy: silence counts only where a request was sent. [Track.Excuse]
//     excludes time in which the hub itself sent no requests.
//   - An answer is in time if it came within the timeout of the policy. So [Tracks] keep separate facts for each
//     timeout: no policy finds a member lost because of another policy's shorter timeout.
//
// Thresholds belong to policies and observations to members. So a [Track] keeps facts, and computes the state for
// any thresholds. Equal facts and equal thresholds give equal states.
package health
