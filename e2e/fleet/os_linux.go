package fleet

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/leasecast/leasecast/e2e/must"
)

// ReservePort returns a TCP port of 127.0.0.1 that the kernel gives to no other program while this process lives. A Go
// program can listen there: its socket shares the address with the reserving one, which never listens.
func ReservePort() (int, error) {
	return must.Return(func() int {
		fd := must.Get(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
		must.Do(errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), // net.Listen sets it, too
			unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})), "reserve a port on loopback")
		return must.Get(unix.Getsockname(fd)).(*unix.SockaddrInet4).Port
	})
}
