//go:build unix && !linux

package process

import "syscall"

// attributes puts a process into a group of its own, so that a Ctrl-C reaches its owner only.
// There is no way here to have the kernel kill it with its owner.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitStopped trusts the kernel: SIGSTOP cannot be refused.
func awaitStopped(int, <-chan struct{}) error { return nil }
