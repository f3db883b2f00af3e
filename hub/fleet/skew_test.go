package fleet_test

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/skew"
)

// A real API server on this machine has the hub's clock. How closely that is measured depends on the machine.
func TestTheClockOfARealMemberIsMeasured(t *testing.T) {
	h := startHub(t, "clocks", true)
	h.probe("clocks", time.Second)
	k := register(t, servers(t).Member("east"), "clocks", "1")
	h.awaitMember(t, k, "its clock is within 1 s", retryPause, func(m fleet.Member) bool {
		return m.Clock(h.clock.Now(), time.Second).State == skew.Within
	})
	i, ok := h.Offsets()[k]
	if !ok || i.Lo > 0 || i.Hi < 0 {
		t.Errorf("the clock of this machine is %+v from itself, %v", i, ok)
	}
	t.Logf("measured to within %v", i.Hi-i.Lo)
}
