package main

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// leastRun is the shortest run after which the program may begin again. An election cannot be lost sooner. A shorter
// run is a fault, and beginning again would repeat it without end.
const leastRun = time.Second

// beginAgain replaces this process by a new run of the program, with the same arguments and environment. It returns
// only if that fails.
//
// A replica that has lost the election must end at once, and another one must stand by at once. A kubelet waits longer
// before each restart, up to 5 minutes. The kernel does both in one step: it ends all threads, closes all connections,
// and begins the program. No memory and no request of this process survives that. So it is as safe as an exit, and it
// must not wait for anything that an exit would not wait for.
func beginAgain(ran time.Duration) error {
	if ran < leastRun {
		return fmt.Errorf("not begun again: it ran for %v only", ran)
	}
	path, err := os.Executable()
	if err != nil {
		return fmt.Errorf("not begun again: %w", err)
	}
	return fmt.Errorf("not begun again: %w", syscall.Exec(path, os.Args, os.Environ()))
}
