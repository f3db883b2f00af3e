package fleet

import (
	"fmt"
	"net"
	"strconv"

	"golang.org/x/sys/unix"
)

// port is a TCP port of 127.0.0.1 that nobody else is given, also while its server is down. The
// socket behind it never listens. Whoever listens shares the port with it: an API server by --permit-port-sharing, and
// any Go program if it was reserved so.
type port struct {
	fd     int
	number int
}

// reservePort reserves a port for an API server, or for any Go program that is told to listen there.
func reservePort(anyProgram bool) (*port, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	p := &port{fd: fd}
	share := unix.SO_REUSEPORT
	if anyProgram {
		share = unix.SO_REUSEADDR // which net.Listen sets, too
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, share, 1); err != nil {
		p.free()
		return nil, fmt.Errorf("reserve a port for sharing: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		p.free()
		return nil, fmt.Errorf("reserve a port on loopback: %w", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		p.free()
		return nil, fmt.Errorf("read the reserved port: %w", err)
	}
	p.number = name.(*unix.SockaddrInet4).Port
	return p, nil
}

func (p *port) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number)) }

func (p *port) free() { _ = unix.Close(p.fd) }
