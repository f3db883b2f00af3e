//go:build unix && !linux

package fleet

import (
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// attributes puts a server into a process group of its own, so that a Ctrl-C reaches only the
// program that owns the fleet. There is no way here to have the kernel kill it with that program.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitStopped trusts the kernel: SIGSTOP cannot be refused.
func awaitStopped(int, <-chan struct{}) error { return nil }

// port is a TCP port of 127.0.0.1 that was free when it was chosen. Without Linux's rules for
// shared ports it cannot be kept from others.
type port struct{ number int }

func reservePort() (*port, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a free port on loopback: %w", err)
	}
	p := &port{number: listener.Addr().(*net.TCPAddr).Port}
	return p, listener.Close()
}

func (p *port) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number)) }

func (p *port) free() {}
