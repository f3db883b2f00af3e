// Package command runs a program only where its cluster leads a namespace. It is the core of cmd/leasecast-gate, for
// programs in any language that know nothing of Leases.
//
//	leasecast-gate -namespace shop -- /bin/shopkeeper --all
//
// # What it does
//
// When this cluster leads, [Run] starts the program in its own process group. The whole group gets SIGTERM when a
// quarter of the term's duration is left without a renewal. It gets SIGTERM at once when the term is revoked or lost.
// It gets SIGKILL a tenth of the duration before the deadline that it was started or renewed under, however far its
// shutdown has got. With a short StopAhead that is half of StopAhead, and never less than 100 ms.
// It gets SIGKILL at once when another cluster leads. In a registered gate the term's duration counts as 15 s at most,
// so StopAhead is 5 s at most. A program that was stopped so is started again in the next term,
// or when the term is renewed after all.
//
// A process that leaves the group, as a daemon does, becomes a child of the gate when its parent ends. The gate kills
// it after the group, and waits until no child is left that was started since the program was. Only then is the term
// released, and only then can another one begin.
//
// A program that exits by itself during the term ends the gate, with the same exit code. The gate then kills the
// processes that it leaves behind. So keep the program in the foreground: a program that only starts a daemon ends with
// it. The gate passes signals on to the group. After SIGTERM, SIGINT or SIGQUIT it does not start the program again.
//
// # What is promised
//
// A watchdog, a second small process of the gate, leads the process group. It gets the deadline before the program
// starts, by the clock that keeps counting in suspend and by the wall clock. At the same instant as the gate, a tenth
// of the duration before the deadline, it kills what the gate has adopted, and its own group. It kills the group at
// once when the gate dies. That tenth is what the machine may take to schedule the watchdog and to deliver signals. So
// no process acts past the deadline if
//
//   - the gate is paused or hangs: the watchdog kills the group and the daemons;
//   - the gate dies: the watchdog kills the group. Daemons have another parent then, see below;
//   - the watchdog is paused: the gate kills the group. If it dies, the gate kills the group and fails.
//
// # What is not promised
//
//   - If gate, watchdog and program are paused together, nothing can kill the program in the meantime, but it cannot
//     act either. When they wake, the program can act until gate or watchdog has had its turn, which is usually a few
//     milliseconds. This happens to a frozen container, a virtual machine and a laptop. Hand the epoch to a system that
//     can refuse an old one.
//   - What the program has sent already is not called back.
//   - A gate that runs a program waits for all its children. So it refuses a kubeconfig whose credentials come from a
//     plugin, as EKS, GKE and AKS have them: the plugin would fail now and then.
//   - A daemon gets no SIGTERM, only SIGKILL. If the gate itself is killed with SIGKILL, its daemons live on, unless it
//     is the first process of a container. A daemon that replaces its process all the time may outrun the watchdog of a
//     paused gate.
//   - A gate without rights cannot kill a process that changes its user. The gate waits for it, and does not release
//     the term.
//   - If gate and watchdog are both killed with SIGKILL, nothing kills the program. Where the gate is the first process
//     of a container, its end ends all processes. PR_SET_PDEATHSIG would not help more: a paused parent is not dead.
package command
