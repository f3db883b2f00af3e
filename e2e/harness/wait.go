package harness

import (
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock"
)

var system clock.System

// Now reads both clocks of this machine.
func Now() lease.Reading { return system.Now() }

// BootOf converts a time of the wall clock to the boot clock, if the wall clock was not stepped in between.
func BootOf(wall time.Time, now lease.Reading) time.Duration { return now.Boot - now.Wall.Sub(wall) }

// Floor is the least time from a fault to the first act of another cluster that any lease without out-of-band fencing
// allows: the term of the old leader must have ended ε ago, and the fault must be detected. fault and stamp, the
// renewTime of the last Lease that the old leader could see, are on the boot clock. detection counts from the fault.
func Floor(t lease.Timings, fault, stamp, detection time.Duration) time.Duration {
	return max(detection, stamp+t.Duration+t.Skew-fault)
}
