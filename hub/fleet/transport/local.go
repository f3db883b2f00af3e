package transport

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"
)

// refuseLocal refuses to connect to an address of the hub's own machine or network link, once names are resolved. Whoever
// may write a kubeconfig could otherwise reach what listens there, such as a cloud's metadata service.
func refuseLocal(_ context.Context, _, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("the address is no IP address and port: %w", err)
	}
	if isLocal(to.Addr().Unmap()) {
		return fmt.Errorf("the server is at %s, which is on the hub's own machine or network link: start the hub with --allow-local-addresses if that is meant", to.Addr())
	}
	return nil
}

// isLocal reports whether an address is never that of another machine beyond the link.
func isLocal(ip netip.Addr) bool {
	return ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast() || ip.IsInterfaceLocalMulticast() ||
		ip.IsMulticast() || ip.IsUnspecified()
}
