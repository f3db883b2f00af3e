package transport

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// metadata are the addresses at which clouds serve credentials and settings to their own machines, beside those of the
// link, such as 169.254.169.254.
var metadata = []netip.Addr{
	// AWS: https://docs.aws.amazon.com/whitepapers/latest/ipv6-on-aws/supporting-amazon-vpc-services.html
	netip.MustParseAddr("fd00:ec2::254"),
	// Azure: https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
	netip.MustParseAddr("168.63.129.16"),
	// Alibaba Cloud: https://www.alibabacloud.com/help/en/ecs/user-guide/view-instance-metadata
	netip.MustParseAddr("100.100.100.200"),
}

// refuseLocal refuses to connect to an address of the hub's own machine, network link or cloud, once names are
// resolved. A kubeconfig could otherwise make the hub reach what listens there.
func refuseLocal(_ context.Context, _, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("the address is no IP address and port: %w", err)
	}
	if isLocal(to.Addr().Unmap().WithZone("")) {
		return fmt.Errorf("the server is at %s, which is of the hub's own machine, network link or cloud: "+
			"start the hub with --allow-local-addresses if that is meant", to.Addr())
	}
	return nil
}

// isLocal reports whether an address is never that of another machine beyond the link, which could be a member.
func isLocal(ip netip.Addr) bool {
	return ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() ||
		slices.Contains(metadata, ip)
}
