// Package proxy is the broken network of the drills: a TCP proxy on loopback, between the hub and one member, whose
// faults are switched on and off while connections are open.
//
// "To the member" is client to target, "from the member" is target to client. Every fault but [Proxy.Strand] applies to
// open and to later connections. No byte passes against it once the call has returned. The end of a connection travels
// like its bytes.
//
//   - A cut loses bytes, and the sender does not notice. [Proxy.Heal] ends it and resets the connections that lost
//     something. Idle ones survive. [Proxy.Strand] cuts the open connections only, until they end.
//   - A hold keeps bytes, in order. [Proxy.Release] lets them through, even if the sender has closed the connection in
//     the meantime: a request arrives long after its client gave up. [Proxy.Heal] drops them and resets their
//     connections.
//   - [Proxy.Reset] resets open connections, and every new one until Heal.
//
// The kernel accepts a client's connection, so connecting always succeeds. The proxy dials the target as soon as bytes
// may travel to it. Bytes that were written to the target's socket are out of reach: to freeze what a server has
// received, stop the server.
package proxy
