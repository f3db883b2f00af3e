// Command chaos breaks a real fleet at random and looks whether two clusters ever lead: two replicas of the
// hub, three members with an etcd and an API server each, and a reader process in every member. It prints what it sees,
// writes out/chaos.json, and a timeline of every schedule that fails into out/chaos. Use it through make:
//
//	make chaos N=100           the schedules of the seeds 1 to 100
//	make chaos N=1 SEED=17     the schedule of seed 17, with its timeline
//
// It exits with 1 if any schedule fails.
//
// # A schedule
//
// is a pure function of its seed ([Generate]): a list of faults with a beginning and an end. What the processes do
// meanwhile is not, so a seed repeats the faults, not the run. All schedules are played on one fleet, one after the
// other; each begins when the one before has healed, with the leaders that it left behind.
//
// # What is judged
//
// Nothing that the hub says. A reader asks package member whether it may act, works for a while, and writes into a
// register outside of all clusters. It notes when it asked, when it had the answer, how much time it was told to have,
// and when the write began and ended, on the boot clock that all processes of this machine share.
//
//   - Overlaps. From a reader's yes until the deadline that it was told it may act, whatever becomes of it. Two such spans
//     of different clusters must not overlap, the epoch of a later one must not be lower, and no two clusters may have the same one
//     ([drill.Judge]). That is more than what readers do: one that is stopped, or killed, is judged by what it might have done.
//   - Registers. Writes carry their epoch. The fenced register of a namespace refuses one that is lower than the highest it
//     has taken; the calls of all readers must be linearizable, which porcupine checks. It never takes a write of a term after one of a
//     later term, also from a reader that was stopped between its question and its write.
//   - Stuck. Once the last fault has ended, every namespace has a leader that acts within what the protocol needs and a slack,
//     both in play.go.
//
// # What is not promised, and measured
//
// A reader that is stopped between its question and its write wakes when its term is over, and writes. A plain register beside the fenced one takes
// whatever comes, at the same instant. How often it took a write of a term that was over is reported, beside
// how often the fenced one did. A fifth of a reader's time lies between its question and its write.
package main
