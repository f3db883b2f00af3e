// Package drill puts the whole on stage: a fleet of real control planes, a hub process under the
// RBAC of config/, and a guestbook process in every member. Then it judges what the guestbooks really did.
// The demo, the benchmark and integration tests stand on it.
//
//	d, err := drill.Start(ctx, drill.Options{...})
//	...
//	d.Fleet.Member("east").Pause()                       // a fault
//	first, err := d.AwaitAct(ctx, time.Minute, ...)      // its effect, seen in what a guestbook did
//	verdict := drill.Judge(acts)                         // did two clusters ever act at once?
//	d.Stop()
//
// # Time
//
// All instants are readings of the boot clock of this machine ([Now]), which every process of a
// drill shares. Stamps are the hub's wall clock; [BootOf] puts them on the boot clock.
//
// # What is judged
//
// Nothing that the hub says about itself. A guestbook writes a line before each act and one after
// it; [Judge] looks for two clusters that act at once, and for acts of a term after a later term has begun
// to act. Stamps are read from the members' Leases, by watches straight at their API servers, so that the
// floor of a failover ([Floor]) is that of what a reader could have believed.
//
// # Processes
//
// Hub and guestbooks are separate processes with credentials of their own. Each writes a log
// into the drill's folder. They end with the drill and, on Linux, when the process that started them dies.
package drill
