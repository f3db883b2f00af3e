//go:build unix && !linux

package process

import "syscall"

// attributes puts a process into a group of its own, so that Ctrl-C reaches its owner only. It outlives an owner that
// is killed.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitStopped trusts the kernel: SIGSTOP cannot be refused.
func awaitStopped(int) error { return nil }
