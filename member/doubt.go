package member

import (
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// doubt is why a Lease is not believed. The zero doubt is no doubt.
type doubt struct {
	kind       string // does not change from one Lease to the next
	text       string
	impossible string // the text, if the Lease permits nothing because no hub can have written it
}

// takes applies a Lease that was received just now, and returns what is permitted from here on. A Lease that no hub can
// have written counts as missing.
func (n *nsState) takes(c lease.Content, now lease.Reading) lease.Permit {
	if wrong := impossible(c); wrong != "" {
		text := fmt.Sprintf("Lease %s/%s %s: not believed", c.Namespace, c.Name, wrong)
		n.doubted = doubt{"impossible " + wrong, text, text}
		n.reader.Gone()
		return lease.Permit{}
	}
	if d := n.reader.Doubt(c, now); d != lease.Believed {
		n.doubted = doubt{kind: fmt.Sprint("doubt ", d), text: n.doubts(c, d, now)}
		return n.reader.Observe(c, now)
	}
	n.doubted = doubt{}
	if !c.RenewTime.Equal(n.seen.RenewTime) { // no two Leases of a hub have the same renewTime
		n.arrived = arrival{age: now.Wall.Sub(c.RenewTime), lasts: c.Duration, at: now.Boot}
	}
	n.seen = c
	return n.reader.Observe(c, now)
}

// impossible returns what proves that no hub can have written a Lease, and "" if nothing does. A hub writes all of
// these fields into every Lease, so a failing Lease was edited.
func impossible(c lease.Content) string {
	switch {
	case c.Cluster == "":
		return "has no annotation " + v1alpha1.ClusterAnnotation
	case c.Epoch <= 0:
		return fmt.Sprintf("has no epoch: its leaseTransitions are missing, or %d", c.Epoch)
	case c.RenewTime.IsZero():
		return "has no renewTime"
	case c.Duration <= 0:
		return fmt.Sprintf("has no duration: its leaseDurationSeconds are missing, or %d", c.Duration/time.Second)
	case c.Duration > lease.MaxDuration:
		return fmt.Sprintf("says leaseDurationSeconds %d, and no policy allows more than %d", c.Duration/time.Second, lease.MaxDuration/time.Second)
	}
	return ""
}

// doubts returns why the reader's rule refuses a Lease.
func (n *nsState) doubts(c lease.Content, d lease.Doubt, now lease.Reading) string {
	name := fmt.Sprintf("Lease %s/%s in epoch %d", c.Namespace, c.Name, c.Epoch)
	switch d {
	case lease.FallenEpoch:
		return fmt.Sprintf("%s comes after one in epoch %d: not believed", name, n.reader.Highest())
	case lease.AbsurdEpoch:
		return name + ": no hub can have given that epoch by this clock: not believed"
	default:
		return fmt.Sprintf("%s: its renewTime is %s ahead of this clock, allowed %s: not believed",
			name, seconds(c.RenewTime.Sub(now.Wall)), exactly(n.reader.Allowed(c)))
	}
}

// unsaid returns what a Lease has instead of the policy's clock skew, and "" if it has one.
func unsaid(c lease.Content, l *coordinationv1.Lease) string {
	if c.Skew > 0 {
		return ""
	}
	if text, found := l.Annotations[v1alpha1.MaxClockSkewAnnotation]; found {
		return fmt.Sprintf("%.40s", strconv.Quote(text))
	}
	return "nothing"
}
