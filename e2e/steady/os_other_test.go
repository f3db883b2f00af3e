//go:build unix && !linux

package steady

import "syscall"

// attributes: the kernel offers nothing; a process outlives a killed test.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
