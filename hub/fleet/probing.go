package fleet

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/leasecast/leasecast/hub/fleet/wake"
	"github.com/leasecast/leasecast/hub/skew"
)

// Probing is what a policy needs of the Clusters that it selects.
type Probing struct {
	Clusters labels.Selector
	// Interval is the longest time between two probes, Timeout how long an answer may take. Both are positive.
	Interval, Timeout time.Duration
	// Skew is the ε that clocks are judged under.
	Skew time.Duration
}

// maxTimeouts bounds how many different timeouts one member has. A policy beyond that is judged by the next longer
// one.
const maxTimeouts = 8

// demand is how a member is probed: how often, and the timeouts that answers are judged by, the shortest one first.
type demand struct {
	interval time.Duration
	timeouts []time.Duration
}

// defaultDemand is the demand on a member that no policy selects. Policies can ask for more only.
var defaultDemand = demand{5 * time.Second, []time.Duration{3 * time.Second}}

// setProbing has the member probed for the policies that select it.
func (m *member) setProbing(by []Probing) {
	var eps []time.Duration
	m.change(func(s *state) {
		selecting := slices.DeleteFunc(slices.Clone(by), func(p Probing) bool {
			return !p.Clusters.Matches(labels.Set(s.spec.labels))
		})
		was := s.demand
		s.demand, eps = demanded(selecting)
		if slices.Equal(s.demand.timeouts, was.timeouts) && s.demand.interval == was.interval {
			return
		}
		s.tracks = s.tracks.Under(s.demand.timeouts)
		wake.Wake(m.wakeProbe)
	})
	now := m.clock.Now()
	m.changeSkew(now, func(t *skew.Track) { t.Judge(now, eps) })
}

// demanded is how a member is probed, and each ε that its clocks are judged under.
func demanded(by []Probing) (d demand, eps []time.Duration) {
	if len(by) == 0 {
		return defaultDemand, nil
	}
	d.interval = defaultDemand.interval
	for _, p := range by {
		d.interval = min(d.interval, p.Interval)
		d.timeouts = append(d.timeouts, p.Timeout)
		eps = append(eps, p.Skew)
	}
	slices.Sort(d.timeouts)
	d.timeouts = slices.Compact(d.timeouts)
	d.timeouts = d.timeouts[max(0, len(d.timeouts)-maxTimeouts):] // nobody is judged too strictly by the longer ones
	slices.Sort(eps)
	return d, slices.Compact(eps)
}
