//go:build unix && !linux

package fleet

import "net"

// ReservePort returns a TCP port of 127.0.0.1 that is free. Other systems than Linux cannot keep it from others.
func ReservePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}
