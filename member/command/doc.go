// Package command runs a program only where its cluster leads a namespace. It is what cmd/leasecast-gate is made of,
// for programs in any language that know nothing of Leases.
//
//	leasecast-gate -namespace shop -- /bin/shopkeeper --all
//
// # What it does
//
// When this cluster leads, [Run] starts the program in a process group of its own. The whole group gets SIGTERM when a
// quarter of the term's duration is left without a renewal, and at once when the term is revoked or lost. It gets
// SIGKILL shortly before the deadline that it was started or renewed under, however little it has done by then, and at
// once when another cluster leads. A program that was stopped so is started again in the next term, or when the term
// is renewed after all.
//
// A process that leaves the group, as a daemon does, becomes a child of the gate when its parent ends. The gate kills
// it after the group, and waits until no child is left that was started since the program was. Only then is the term
// released, and only then can another one begin.
//
// A program that exits by itself during the term ends the gate, with the same exit code. What it leaves behind is
// killed then. So keep the program in the foreground: one that only starts a daemon ends with it. Signals to the gate
// are passed on to the group. After SIGTERM, SIGINT or SIGQUIT the program is not started again.
//
// # What is promised
//
// A watchdog, a second small process of the gate, leads the process group. It knows the deadline before the program
// starts, by the clock that keeps counting in suspend and by the wall clock. At the deadline it kills what the gate has
// adopted, and its own group. It kills the group at once when the gate dies. So no process acts past the deadline if
//
//   - the gate is paused or hangs: the watchdog kills the group and the daemons;
//   - the gate dies: the watchdog kills the group. Daemons have another parent then, see below;
//   - the watchdog is paused: the gate kills the group. If it dies, the gate kills the group and fails.
//
// # What is not promised
//
//   - If gate, watchdog and program are paused together, nothing can kill the program meanwhile. Nobody acts then. When
//     they wake, the program can act until gate or watchdog has had its turn, which is usually a few milliseconds.
//     This happens to a frozen container, a virtual machine and a laptop. Hand the epoch to what can refuse an old one.
//   - What the program has sent already is not called back.
//   - A gate that runs a program waits for all its children. So it refuses a kubeconfig whose credentials come from a
//     plugin, as those of EKS, GKE and AKS do: the plugin would fail now and then.
//   - A daemon gets no SIGTERM, only SIGKILL. If the gate itself is killed with SIGKILL, its daemons live on, unless it
//     is the first process of a container.
//   - A process that changes its user cannot be killed by a gate without rights. The gate waits for it, and does not
//     release the term.
//   - If gate and watchdog are both killed with SIGKILL, nobody kills the program. Where the gate is the first process
//     of a container, its end is the end of all. PR_SET_PDEATHSIG would not help more: a paused parent is no dead one.
package command
