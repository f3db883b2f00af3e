// Command chaos breaks a real fleet at random and checks that two clusters never lead at once. The fleet has two
// replicas of the hub, three members with an etcd and an API server each, and a reader process in every member. The
// command prints each result, writes out/chaos.json, and draws who could act when in every failed schedule. Use it
// through make:
//
//	make chaos N=100           the schedules of the seeds 1 to 100
//	make chaos N=1 SEED=17     the schedule of seed 17, and who could act when
//
// It exits with 1 if any schedule fails.
//
// # A schedule
//
// A schedule is a list of faults, each with a beginning and an end. It is a pure function of its seed ([Generate]).
// What the processes do meanwhile is not: a seed repeats the faults, not the run. All schedules run on one fleet, one
// after the other. Each begins when the one before has healed, with the leaders that it left.
//
// # What is judged
//
// The judge does not rely on what the hub reports. A reader asks package member whether it may act. Of each yes it logs
// three instants on the boot clock, which all processes share: when it asked, when it had the answer, and the deadline
// in the answer.
//
//   - Overlaps. From the answer to its deadline the reader may act, whatever becomes of it. Two such spans of different
//     clusters must not overlap. A later span must not have a lower epoch. No two clusters may have the same epoch
//     ([harness.Judge]). This is more than what readers do: a paused or killed reader is judged by what it might have
//     done, and epochs fence any store that they act on.
//   - Stuck. After the last fault every namespace must have a leader that acts in time. The limit is what the protocol
//     needs plus a slack; play.go defines both.
package main
