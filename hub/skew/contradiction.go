package skew

import (
	"fmt"
	"time"
)

// Contradicted returns why the hub's own clock is so wrong that nobody can lead by its Leases, or "". It judges by the
// offsets of the API servers of all clusters that were measured, the largest ε and the largest D of any policy. The
// hub's clock is contradicted if all of them prove one of two things:
//
//   - it is ahead of theirs by more than ε: readers refuse its renewTime as one in the future;
//   - it is behind theirs by at least D: its Leases have expired when they arrive.
//
// With a smaller error terms work, though they are shorter. That is no reason to stop where there may be no
// other replica. One cluster proves nothing, because its own clock may be wrong. Nor does a cluster that was
// not measured. Without a policy nothing is renewed.
func Contradicted(offsets []Interval, eps, d time.Duration) string {
	if len(offsets) < 2 || d <= 0 {
		return ""
	}
	ahead, behind := -offsets[0].Hi, offsets[0].Lo // for certain
	for _, o := range offsets[1:] {
		ahead, behind = min(ahead, -o.Hi), min(behind, o.Lo)
	}
	const why = "the clock of this hub is at least %v %s those of all %d clusters that were measured"
	switch {
	case ahead > eps:
		return fmt.Sprintf(why, round(ahead), "ahead of", len(offsets))
	case behind >= d:
		return fmt.Sprintf(why, round(behind), "behind", len(offsets))
	default:
		return ""
	}
}
