package fleet

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attributes puts a server into a process group of its own, so that a Ctrl-C reaches only the
// program that owns the fleet, and has the kernel kill it when that program dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitStopped returns when every thread of a child that was sent SIGSTOP has stopped.
func awaitStopped(pid int, end <-chan struct{}) error {
	const patience = 5 * time.Second
	deadline := time.Now().Add(patience)
	for {
		var info unix.Siginfo
		// Only stops are asked for, so the one who waits for the exit is not robbed of it.
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOHANG, nil)
		switch {
		case err == nil && info.Signo != 0:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("wait for it to stop: %w", err)
		case time.Now().After(deadline):
			return fmt.Errorf("it has not stopped after %s", patience)
		}
		select {
		case <-end:
			return errNotRunning
		case <-time.After(time.Millisecond):
		}
	}
}

// port is a TCP port of 127.0.0.1 that nobody else is given, also while its server is down. The
// socket behind it never listens; the server shares the port with it (--permit-port-sharing).
type port struct {
	fd     int
	number int
}

func reservePort() (*port, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	p := &port{fd: fd}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
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
