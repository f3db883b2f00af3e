package harness

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

func TestFloor(t *testing.T) {
	const fault, s, ms = time.Minute, time.Second, time.Millisecond
	for name, c := range map[string]struct{ stamp, detection, want time.Duration }{
		"the fault follows a renewal at once: all of D and ε": {fault, 0, 3250 * ms},
		"the fault precedes a renewal: the rest of D and ε":   {fault - s, 0, 2250 * ms},
		"a renewal is under way at the fault: from that one":  {fault + 200*ms, 0, 3450 * ms},
		"the term ends before the detection: the detection":   {fault - s, 5 * s, 5 * s},
		"the term ended before the fault: the detection":      {fault - 10*s, 2 * s, 2 * s},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Floor(Fast, fault, c.stamp, c.detection); got != c.want {
				t.Errorf("floor %v, want %v", got, c.want)
			}
		})
	}
}

func TestBootOf(t *testing.T) {
	now := lease.Reading{Wall: time.Unix(1000, 0), Boot: time.Hour}
	if got, want := BootOf(time.Unix(990, 0), now), time.Hour-10*time.Second; got != want {
		t.Errorf("ten seconds ago is %v on the boot clock, want %v", got, want)
	}
}
