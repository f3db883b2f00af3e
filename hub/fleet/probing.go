package fleet

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/leasecast/leasecast/hub/fleet/wake"
	"github.com/leasecast/leasecast/hub/health"
)

// Probing is what a policy needs to know of the Clusters that it selects.
type Probing struct {
	Clusters labels.Selector
	// Interval is the longest time between two probes, Timeout how long an answer may take. Both are positive.
	Interval, Timeout time.Duration
	// Skew is the ε that clocks are judged under.
	Skew time.Duration
}

// How a member is probed that no policy selects. Policies can ask for more only.
const (
	defaultInterval = 5 * time.Second
	defaultTimeout  = 3 * time.Second
)

// maxTimeouts bounds how many timeouts are told apart in one member, because each has a prober of its own. A policy beyond
// that is judged by the next longer one.
const maxTimeouts = 8

// pace is how often probes with one timeout are sent.
type pace struct{ interval, timeout time.Duration }

// SetProbing sets what the policies of a fleet need. Each member is probed for the policies that select it, and its
// clocks are judged under their ε: there is no verdict under any other one.
func (p *Provider) SetProbing(fleet string, by []Probing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.probing[fleet] = slices.Clone(by)
	for k, m := range p.members {
		if k.Fleet == fleet {
			m.setProbing(p.probing[fleet])
		}
	}
}

// probeAnew looks anew which policies select a member.
func (p *Provider) probeAnew(m *member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m.setProbing(p.probing[m.key.Fleet])
}

// setProbing heeds the policies that select the member. The lock of the provider keeps two calls in order.
func (m *member) setProbing(by []Probing) {
	set := labels.Set(m.get().spec.labels)
	selecting := slices.DeleteFunc(slices.Clone(by), func(p Probing) bool { return !p.Clusters.Matches(set) })
	paces, eps := demanded(selecting)
	m.change(func(s *state) {
		if slices.Equal(s.paces, paces) {
			return
		}
		timeouts := make([]time.Duration, len(paces))
		for i := range paces {
			timeouts[i] = paces[i].timeout
		}
		s.paces, s.tracks = paces, s.tracks.Under(timeouts)
		wake.Wake(m.wakeProbe)
	})
	m.setSkews(eps)
}

// demanded is how a member is probed, by rising timeouts, and each ε that its clocks are judged under.
func demanded(by []Probing) (paces []pace, eps []time.Duration) {
	intervals := map[time.Duration]time.Duration{}
	for _, p := range by {
		intervals[p.Timeout] = min(cmp.Or(intervals[p.Timeout], defaultInterval), p.Interval)
		eps = append(eps, p.Skew)
	}
	if len(by) == 0 {
		intervals[defaultTimeout] = defaultInterval
	}
	timeouts := slices.Sorted(maps.Keys(intervals))
	for left := len(timeouts) - maxTimeouts; left > 0; left-- {
		// The longer ones are kept: nobody is judged too strictly by them.
		intervals[timeouts[1]] = min(intervals[timeouts[1]], intervals[timeouts[0]])
		timeouts = timeouts[1:]
	}
	for _, timeout := range timeouts {
		paces = append(paces, pace{intervals[timeout], timeout})
	}
	slices.Sort(eps)
	return paces, slices.Compact(eps)
}

// firstTracks are those of a member that no policy is known to select.
func firstTracks() health.Tracks { return health.Tracks{}.Under([]time.Duration{defaultTimeout}) }
