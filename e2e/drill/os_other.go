//go:build unix && !linux

package drill

import "syscall"

// attributes puts a process into a group of its own, so that a Ctrl-C reaches the drill only.
// There is no way here to have the kernel kill it with the drill.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitStopped trusts the kernel: SIGSTOP cannot be refused.
func awaitStopped(int, <-chan struct{}) error { return nil }
