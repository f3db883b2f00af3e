package process

import (
	"context"
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

// attributes puts a process into a group of its own, so that Ctrl-C reaches its owner only. The kernel kills it when
// its owner dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitStopped returns when every thread of a child that was sent SIGSTOP has stopped.
func awaitStopped(pid int) error {
	return wait.PollUntilContextTimeout(context.Background(), time.Millisecond, 5*time.Second, true,
		func(context.Context) (bool, error) {
			var info unix.Siginfo
			err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOHANG, nil) // leaves the exit to cmd.Wait
			if errors.Is(err, unix.ECHILD) {
				err = ErrEnded
			}
			return info.Signo != 0, err
		})
}
