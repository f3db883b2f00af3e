package skew

import (
	"fmt"
	"time"
)

// Contradiction is the proof that the hub's own clock is so wrong that nobody can lead by its Leases.
type Contradiction struct {
	// Ahead says that the hub's clock is ahead of the clusters', and not behind.
	Ahead bool
	// Least is how far off it is for certain. Clusters is how many prove that.
	Least    time.Duration
	Clusters int
}

// Contradicted judges the hub's clock by the offsets of the API servers of all clusters that were measured,
// the largest ε and the largest D of any policy. It is contradicted if all of them prove one of two things:
//
//   - it is ahead of theirs by more than ε: readers refuse its renewTime as one in the future;
//   - it is behind theirs by at least D: its Leases have expired when they arrive.
//
// With a smaller error terms work, though they are shorter. That is no reason to stop where there may be no
// other replica. One cluster proves nothing, because its own clock may be wrong. Nor does a cluster that was
// not measured. Without a policy nothing is renewed.
func Contradicted(offsets []Interval, eps, d time.Duration) (Contradiction, bool) {
	if len(offsets) < 2 || d <= 0 {
		return Contradiction{}, false
	}
	ahead, behind := offsets[0].hubAhead(), offsets[0].hubBehind()
	for _, o := range offsets[1:] {
		ahead, behind = min(ahead, o.hubAhead()), min(behind, o.hubBehind())
	}
	switch {
	case ahead > eps:
		return Contradiction{Ahead: true, Least: ahead, Clusters: len(offsets)}, true
	case behind >= d:
		return Contradiction{Least: behind, Clusters: len(offsets)}, true
	}
	return Contradiction{}, false
}

// hubAhead is how far the hub's clock is certainly ahead of the other one, hubBehind how far behind. It is
// negative if it may be the other way round.
func (i Interval) hubAhead() time.Duration { return -i.Hi }

func (i Interval) hubBehind() time.Duration { return i.Lo }

// String says how wrong the clock is, for people.
func (c Contradiction) String() string {
	where := "behind"
	if c.Ahead {
		where = "ahead of"
	}
	return fmt.Sprintf("the clock of this hub is at least %v %s those of all %d clusters that were measured",
		round(c.Least), where, c.Clusters)
}
