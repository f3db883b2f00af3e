//go:build unix && !linux

package fleet

import (
	"fmt"
	"net"
	"strconv"
)

// port is a TCP port of 127.0.0.1 that was free when it was chosen. Without Linux's rules for
// shared ports it cannot be kept from others.
type port struct{ number int }

func reservePort(bool) (*port, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a free port on loopback: %w", err)
	}
	p := &port{number: listener.Addr().(*net.TCPAddr).Port}
	return p, listener.Close()
}

func (p *port) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number)) }

func (p *port) free() {}
