package clock

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7 // CLOCK_BOOTTIME in <linux/time.h>

// boottime is the time since boot, suspend included.
func boottime() time.Duration {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		// Every kernel that Go runs on has this clock. Without it the length of a suspend is unknown, so there is no safe
		// answer.
		panic(fmt.Sprintf("clock_gettime(CLOCK_BOOTTIME): %v", errno))
	}
	return time.Duration(ts.Nano())
}
