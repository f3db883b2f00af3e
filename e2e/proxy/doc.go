// Package proxy is the broken network of the drills: a TCP proxy on loopback, placed between
// the hub and one member, whose faults are switched on and off while connections are open.
//
//	p, err := proxy.New("127.0.0.1:6443")
//	...                            // clients talk to p.Addr()
//	p.BlackHole()                  // the link goes dead without a word
//	p.Heal()                       // and is back
//	p.Close()
//
// # Directions
//
// "To the member" is client to target, "from the member" is target to client. Every fault but
// [Proxy.Strand] applies to the connections that are open and to those that come later. It is in
// force when the call returns: no byte passes afterwards against it.
//
// # Three kinds of silence, and what ends each
//
//   - A cut ([Proxy.CutToMember], [Proxy.CutFromMember], [Proxy.BlackHole]) loses bytes. The
//     sender is not told: its writes succeed, as they do into a socket buffer. [Proxy.Heal] ends it
//     and resets the connections that lost something, because their streams now have a hole; a
//     connection that was idle all the time survives, as it would on a real network. [Proxy.Strand]
//     cuts the open connections alone, and nothing but their end mends them.
//   - A hold ([Proxy.Hold], [Proxy.HoldToMember], [Proxy.HoldFromMember]) keeps bytes, in order.
//     [Proxy.Release] lets them through, however late, even when the sender has closed the
//     connection in the meantime: a request that arrives long after its client gave up.
//     [Proxy.Heal] drops them instead, and resets their connections.
//   - A refusal ([Proxy.Reset]) is not silent: open connections are reset, and so is every new one
//     until Heal.
//
// Closing a connection travels like bytes do: it is lost in a cut, kept in a hold and delayed by a
// delay.
//
// # Limits
//
// The kernel, not the far side, accepts a client's connection, so connecting always succeeds; the
// proxy dials the target as soon as bytes may travel to it. A hold keeps at most 1 MiB per
// connection and direction; beyond that the sender's writes block, as they do with a real peer that
// stopped reading. Bytes that the kernel has taken over already (written to the target's
// socket, but not read by it) are out of reach: to freeze what a server has received, stop the server.
package proxy
