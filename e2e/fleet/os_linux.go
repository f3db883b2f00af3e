package fleet

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ReservePort returns a TCP port of 127.0.0.1 that the kernel gives to no other program while this process lives. A Go
// program can listen there: its socket shares the address with the reserving one, which never listens.
func ReservePort() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("reserve a port: %w", err)
	}
	if err := errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), // net.Listen sets it, too
		unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})); err != nil {
		return 0, fmt.Errorf("reserve a port on loopback: %w", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return 0, fmt.Errorf("read the reserved port: %w", err)
	}
	return name.(*unix.SockaddrInet4).Port, nil
}
