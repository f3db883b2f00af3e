package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
)

// promise is one version of the Lease of a cluster that leads: it lets the cluster lead from its renewTime until its
// deadline, on the boot clock.
type promise struct {
	member      string
	epoch       int64
	from, until time.Duration
}

// verdict is what the controllers did.
type verdict struct {
	Writes int `json:"writes"`
	// Holds is how often a lock was taken.
	Holds int `json:"holds"`
	// Changes is how often another cluster wrote than before.
	Changes int `json:"changes"`
	// Overlaps are the times when the controllers of two clusters worked at once, or that of an old leader once more
	// after that of its successor.
	Overlaps int `json:"overlaps"`
	// Late are the writes in a cluster that came before the first of its Leases, or later than the stop time after the
	// deadline of the last one.
	Late int `json:"late"`
	// WorstOverlapSeconds is the longest time for which processes in two clusters held the lock.
	WorstOverlapSeconds float64 `json:"worstOverlapSeconds"`
	// WorstGapSeconds is the longest time from the last write of a cluster to the first of the next one.
	WorstGapSeconds float64 `json:"worstGapSeconds"`
	// ClosestSeconds is the shortest time from the end of a process that held its lock until another cluster's is taken.
	ClosestSeconds float64 `json:"closestSeconds"`
	// Breaches tell of each overlap and each late write.
	Breaches []string `json:"breaches,omitempty"`
}

// together adds up what several programs did, each judged by itself.
func together(programs map[string]verdict) (all verdict) {
	first := true
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		v := programs[name]
		if first || v.ClosestSeconds < all.ClosestSeconds {
			all.ClosestSeconds = v.ClosestSeconds
		}
		first = false
		all.Writes, all.Holds, all.Changes = all.Writes+v.Writes, all.Holds+v.Holds, all.Changes+v.Changes
		all.Overlaps, all.Late = all.Overlaps+v.Overlaps, all.Late+v.Late
		all.WorstOverlapSeconds = max(all.WorstOverlapSeconds, v.WorstOverlapSeconds)
		all.WorstGapSeconds = max(all.WorstGapSeconds, v.WorstGapSeconds)
		for _, b := range v.Breaches {
			all.Breaches = append(all.Breaches, name+": "+b)
		}
	}
	return all
}

// judge judges what the controllers wrote, and when their processes held their locks. Every act lies somewhere between
// its Begin and its End; a process holds its lock all that time.
func judge(writes, holds []harness.Act, promises []promise, stop time.Duration) verdict {
	v := verdict{Writes: len(writes), Holds: len(holds)}
	writes, holds = slices.Clone(writes), slices.Clone(holds)
	for i := range writes {
		w := &writes[i]
		w.Epoch = epochAt(promises, w.Cluster, w.End)
		if !slices.ContainsFunc(promises, func(p promise) bool { return p.allows(*w, stop) }) {
			v.Late++
			v.Breaches = append(v.Breaches, fmt.Sprintf("%s wrote at %v, in no term and in no stop time of its own", w.Cluster,
				w.End))
		}
	}
	for i := range holds {
		holds[i].Epoch = epochAt(promises, holds[i].Cluster, holds[i].Begin)
	}
	for _, b := range harness.Breaches(harness.Judge(slices.Concat(writes, holds))) {
		v.Overlaps++
		v.Breaches = append(v.Breaches, b.String())
	}
	v.WorstOverlapSeconds = worstOverlap(holds).Seconds()
	slices.SortFunc(writes, func(a, b harness.Act) int { return cmp.Compare(a.End, b.End) })
	for i := 1; i < len(writes); i++ {
		if before, after := writes[i-1], writes[i]; before.Cluster != after.Cluster {
			v.Changes++
			v.WorstGapSeconds = max(v.WorstGapSeconds, (after.End - before.End).Seconds())
		}
	}
	var apart []float64
	for _, of := range harness.Judge(holds) {
		for _, c := range of.Changes {
			apart = append(apart, c.Gap().Seconds())
		}
	}
	if len(apart) > 0 {
		v.ClosestSeconds = slices.Min(apart)
	}
	return v
}

// worstOverlap is the longest time for which two clusters held the lock.
func worstOverlap(holds []harness.Act) (worst time.Duration) {
	for i, a := range holds {
		for _, b := range holds[:i] {
			if a.Cluster != b.Cluster {
				worst = max(worst, min(a.End, b.End)-max(a.Begin, b.Begin))
			}
		}
	}
	return worst
}

// allows reports whether a write may have come while the promise held, or in the stop time after it.
func (p promise) allows(w harness.Act, stop time.Duration) bool {
	return p.member == w.Cluster && p.from <= w.End && w.Begin <= p.until+stop
}

// epochAt is that of the last term of a cluster that had begun by then, 0 if there was none.
func epochAt(promises []promise, member string, at time.Duration) (epoch int64) {
	for _, p := range promises {
		if p.member == member && p.from <= at {
			epoch = max(epoch, p.epoch)
		}
	}
	return epoch
}
