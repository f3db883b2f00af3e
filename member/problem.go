package member

import (
	"fmt"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// problem is what is wrong with a Lease. The zero problem is none.
type problem struct {
	kind string // does not change from one Lease to the next
	text string
}

// take applies a Lease that was received just now, and returns what is permitted from here on. A Lease that no hub can
// have written counts as missing.
func (n *nsState) take(c lease.Content, now lease.Reading) lease.Permit {
	name := fmt.Sprintf("Lease %s/%s in epoch %d", c.Namespace, c.Name, c.Epoch)
	if wrong := invalid(c); wrong != "" {
		n.problem = problem{wrong, fmt.Sprintf("%s %s, which no hub writes: not believed", name, wrong)}
		n.reader.Gone()
		return lease.Permit{}
	}
	doubt := n.reader.Doubt(c, now)
	switch doubt {
	case lease.Believed:
		n.problem = problem{}
		if !c.RenewTime.Equal(n.seen.RenewTime) { // no two Leases of a hub have the same renewTime
			n.arrived = arrival{age: now.Wall.Sub(c.RenewTime), lasts: c.Duration}
		}
		n.seen = c
		return n.reader.Observe(c, now)
	case lease.FallenEpoch:
		name += fmt.Sprintf(" comes after one in epoch %d: not believed", n.reader.Highest())
	case lease.AbsurdEpoch:
		name += ": no hub can have given that epoch by this clock: not believed"
	default:
		name += fmt.Sprintf(": its renewTime is %s ahead of this clock, allowed %s: not believed",
			seconds(c.RenewTime.Sub(now.Wall)), exactly(n.reader.Allowed(c)))
	}
	n.problem = problem{fmt.Sprint(doubt), name}
	return n.reader.Observe(c, now)
}

// invalid returns what proves that no hub can have written a Lease, and "" if nothing does. A hub writes all of these
// fields into every Lease, so a failing Lease was edited.
func invalid(c lease.Content) string {
	switch {
	case c.Cluster == "":
		return "has no annotation " + v1alpha1.ClusterAnnotation
	case c.Epoch <= 0:
		return fmt.Sprintf("has leaseTransitions %d or none", c.Epoch)
	case c.RenewTime.IsZero():
		return "has no renewTime"
	case c.Duration <= 0, c.Duration > lease.MaxDuration:
		return fmt.Sprintf("has leaseDurationSeconds %d or none", c.Duration/time.Second)
	}
	return ""
}

// arrival describes a Lease that names its own cluster. It has the Lease's age when first seen, by the wall clock, and
// how long it lasts after its renewTime.
type arrival struct{ age, lasts time.Duration }

// late reports whether more than half of the duration had passed. Where clocks agree this is rare: the hub renews about
// every third of the duration.
func (a arrival) late() bool { return a.age > a.lasts/2 }
