package harness

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

func TestFloor(t *testing.T) {
	for name, c := range map[string]struct{ fault, stamp, detection, want time.Duration }{
		"the fault follows a renewal: all of D and ε": {fault: time.Minute, stamp: time.Minute,
			want: 3250 * time.Millisecond},
		"the fault precedes a renewal: the rest of D and ε": {fault: time.Minute, stamp: time.Minute - time.Second,
			want: 2250 * time.Millisecond},
		"the fault precedes a renewal under way: from that one": {fault: time.Minute,
			stamp: time.Minute + 200*time.Millisecond, want: 3450 * time.Millisecond},
		"the term ends before the fault is detected: the detection": {fault: time.Minute, stamp: time.Minute - time.Second,
			detection: 5 * time.Second, want: 5 * time.Second},
		"the term ended before the fault: the detection": {fault: time.Minute,
			stamp: time.Minute - 10*time.Second, detection: 2 * time.Second, want: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Floor(Fast, c.fault, c.stamp, c.detection); got != c.want {
				t.Errorf("floor %v, want %v", got, c.want)
			}
		})
	}
}

func TestBootOf(t *testing.T) {
	now := lease.Reading{Wall: time.Unix(1000, 0), Boot: time.Hour}
	if got := BootOf(time.Unix(990, 0), now); got != time.Hour-10*time.Second {
		t.Errorf("ten seconds ago is %v on the boot clock, want %v", got, time.Hour-10*time.Second)
	}
}
