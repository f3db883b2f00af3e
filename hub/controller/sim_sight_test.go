package controller

import (
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/skew"
)

// measuring is how long a process takes to measure the members' clocks.
const measuring = time.Second

// offset is what a member shows of the replica's clock. The members' clocks are right, but not all are measured as
// closely.
func (s *simSource) offset(name string) skew.Interval {
	precision := 50 * time.Millisecond
	if name != s.r.contacts[0].m.name {
		precision = 300 * time.Millisecond
	}
	wrong := s.r.host.wrong()
	return skew.Interval{Lo: -wrong - precision, Hi: -wrong + precision}
}

// clock: the members' are right, so that they show when the replica's is not.
func (s *simSource) clock(_ lease.Reading, m fleet.Member, eps time.Duration) skew.Verdict {
	switch off := s.offset(m.Name); {
	case off.Least() > eps:
		return skew.Verdict{State: skew.Beyond, Offset: off}
	case off.Most() <= eps:
		return skew.Verdict{State: skew.Within}
	default:
		return skew.Verdict{}
	}
}

// offsets shows how wrong the replica's clock is.
func (s *simSource) offsets() map[fleet.Key]skew.Interval {
	if s.r.w.now-s.r.began < measuring {
		return nil
	}
	all := map[fleet.Key]skew.Interval{}
	for _, ct := range s.r.contacts {
		if ct.connected {
			all[ct.key()] = s.offset(ct.m.name)
		}
	}
	return all
}

// served is what the cache shows.
func (s *simSource) served(string) (here bool, other string) {
	other, _ = seal.OtherInstallation(s.r.hubID(), s.r.mark)
	return s.r.mark == s.r.hubID(), other
}

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
