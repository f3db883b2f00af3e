package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/act"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/skew"
)

// simSource is what the replica's fleet shows.
type simSource struct{ r *replica }

func (s *simSource) synced() bool { return true }

func (s *simSource) Members(string) []fleet.Member {
	if s.r.members != nil {
		return s.r.members
	}
	ms := make([]fleet.Member, 0, len(s.r.contacts))
	for _, ct := range s.r.contacts {
		cl := s.r.clusters[ct.m.name]
		m := fleet.Member{
			Key: fleet.Key{Fleet: simFleet, Name: ct.m.name}, UID: ct.m.uid, Pinned: true,
			Priority: cl.priority, Connected: ct.connected, Paused: cl.paused, Gone: cl.gone,
			Drain: act.Act{Until: s.r.w.start.Add(cl.drained)}, Fenced: cl.fenced,
		}
		if !cl.label {
			m.PriorityReason = reason.NoPriority
		}
		ms = append(ms, m)
	}
	s.r.members = ms
	return ms
}

func (s *simSource) contact(m fleet.Member) *contact {
	for _, ct := range s.r.contacts {
		if ct.m.name == m.Name {
			return ct
		}
	}
	panic("no such member")
}

func (s *simSource) health(m fleet.Member, th health.Thresholds) health.Verdict {
	return s.contact(m).track.State(s.r.Now(), th)
}

func (s *simSource) lastAnswer(m fleet.Member) lease.Reading { return s.contact(m).answered }

func (s *simSource) Move(context.Context, string) (fleet.Move, error) { return fleet.Stays, nil }

func (s *simSource) namespace(_ context.Context, m fleet.Member, name string) (*corev1.Namespace, error) {
	if ns := s.contact(m).spaces[name]; ns != nil {
		return ns, nil
	}
	return nil, errNoSpace
}

func (s *simSource) namespaces(_ context.Context, m fleet.Member) (all []corev1.Namespace) {
	for _, ns := range s.contact(m).spaces {
		if ns != nil {
			all = append(all, *ns)
		}
	}
	return all
}

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
	case s.r.host.unnoticed():
		return skew.Verdict{State: skew.Suspected}
	case off.Least() > eps:
		return skew.Verdict{State: skew.Beyond, Offset: off}
	case off.Most() <= eps:
		return skew.Verdict{State: skew.Within}
	default:
		return skew.Verdict{}
	}
}

// Offsets shows how wrong the replica's clock is.
func (s *simSource) Offsets() map[fleet.Key]skew.Interval {
	if s.r.w.now-s.r.began < measuring {
		return nil
	}
	all := s.r.offsets // nobody keeps it
	clear(all)
	for _, ct := range s.r.contacts {
		if ct.connected {
			all[ct.key()] = s.offset(ct.m.name)
		}
	}
	return all
}

// Served is what the cache shows.
func (s *simSource) Served(string) (here bool, other string) {
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
