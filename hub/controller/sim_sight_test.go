package controller

import (
	"time"

	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/skew"
)

// measuring is how long a process takes to measure the members' clocks.
const measuring = time.Second

// offsets: the members' clocks are right, and show how wrong that of the replica is.
func (s *simSource) offsets() map[fleet.Key]skew.Interval {
	if s.r.w.now-s.r.began < measuring {
		return nil
	}
	all := map[fleet.Key]skew.Interval{}
	for _, ct := range s.r.contacts {
		if ct.connected {
			all[ct.key()] = skew.Interval{Lo: -s.r.host.wrong() - skew.Fine, Hi: -s.r.host.wrong() + skew.Fine}
		}
	}
	return all
}

// servedBy is what the cache shows.
func (s *simSource) servedBy(string) string { return s.r.mark }

// markChanged tells the replicas whose mark is on the seal, sooner or later.
func (h *hubServer) markChanged(mark string) {
	for _, r := range h.w.replicas {
		r.after(h.w.lag()+r.cacheLag, func() {
			if r.mark != mark {
				r.mark = mark
				r.reconcileAll()
			}
		})
	}
}
