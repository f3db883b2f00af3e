// Package harness runs the whole product on one machine and judges what it does. Every test, drill and benchmark below
// e2e/ that needs a hub uses it.
//
//	d, err := harness.Start(ctx, harness.Options{...})
//	...
//	d.Fleet.Member("east").Pause()                       // a fault
//	first, err := d.AwaitAct(ctx, time.Minute, ...)      // its effect, in what a guestbook did
//	verdicts := harness.Judge(acts)                      // did two clusters ever act at once?
//	d.Stop()
//
// # Two ways to run a hub
//
// A [Drill] runs a hub process under the RBAC of config/ and a guestbook process in every member, on a fleet of real
// control planes. Tests get one by [New], a package by [Main], a program by [Start].
//
// A [World] runs a hub in the test's own process and no guestbook. Many tests use one fleet, one after the other: each
// has a fleet namespace and a hub of its own.
//
// Both embed a [Site], which reads records, candidates and Leases as the administrators see them.
//
// # Time
//
// Each instant is a reading of the boot clock of this machine ([Now]), which all processes share. The renewTime of a
// Lease is the hub's wall clock; [BootOf] converts it.
//
// # Judging
//
// The judge does not rely on what the hub reports. A guestbook writes a line before each act and one after it. [Judge]
// looks for two clusters that act at once, and for acts of a term after an act of a later term. A [View] watches the
// members' Leases and the records straight at the API servers. So the floor of a failover ([Floor]) follows from what a
// reader could have believed.
//
// # Processes
//
// Hub and guestbooks are processes with credentials of their own. Each writes a log into the drill's folder. They end
// with the drill and, on Linux, with the process that started them. [Drill.Keep] restarts those that end.
package harness
