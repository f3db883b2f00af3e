package drill

import (
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock"
)

var system clock.System

// Now reads both clocks of this machine.
func Now() lease.Reading { return system.Now() }

// BootOf is when, on the boot clock, the wall clock showed wall, if it has not been stepped
// between then and now.
func BootOf(wall time.Time, now lease.Reading) time.Duration {
	return now.Boot - now.Wall.Sub(wall)
}

// Floor is the least time from a fault to the first act of another cluster that any lease without
// out-of-band fencing allows: nobody may be granted before all that the old leader was promised has passed,
// and ε more, nor before the fault was detected. fault and stamp, that of the last copy which the old leader could see, are
// instants on the boot clock; detection is counted from the fault.
func Floor(t lease.Timings, fault, stamp, detection time.Duration) time.Duration {
	return max(detection, stamp+t.Duration+t.Skew-fault)
}
