package process

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attributes puts a process into a group of its own, so that a Ctrl-C reaches its owner only,
// and has the kernel kill it when the owner dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitStopped returns when every thread of a child that was sent SIGSTOP has stopped.
func awaitStopped(pid int, end <-chan struct{}) error {
	const patience = 5 * time.Second
	deadline := time.Now().Add(patience)
	for {
		var info unix.Siginfo
		// Only stops are asked for: the exit is for the one who waits for it.
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
			return ErrEnded
		case <-time.After(time.Millisecond):
		}
	}
}
