package election_test

import (
	"math"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
)

// simHub is one hub process in its tenure: it gathers, asks the real election, persists by compare-and-swap, and has
// lanes do what the real Assign says.
type simHub struct {
	w      *world
	clock  simClock
	tenure election.Tenure
	stamp  time.Time // of the last renewal of its election
	stuck  bool      // cannot renew its election, and cannot know it before its deadline
	ended  bool

	sent     election.Sent
	stamped  int64 // the epoch of the last stamp
	granted  int64
	highest  int64
	standing *election.FoundTerm
	read     map[string]bool
	lanes    map[string]*simLane
	ask      time.Duration
	busy     bool // a record is being written
}

// simLane is a model of the publisher's.
type simLane struct {
	member  *simMember
	want    lease.Assignment
	busy    bool
	last    lease.Term // stamped last
	lost    bool
	placed  time.Time // the Fresh that was satisfied
	refused time.Time // the Fresh that was not
}

func (h *simHub) mayStamp(now lease.Reading) bool {
	return !h.ended && now.Wall.Before(h.stamp.Add(simH))
}

func (h *simHub) work() {
	now := h.w.read(h.clock)
	if !h.stuck && !h.ended && now.Wall.Sub(h.stamp) > 300*time.Millisecond {
		h.stamp = now.Wall
	}
	if !h.mayStamp(now) {
		return
	}
	for _, m := range h.w.members {
		if m.up && !h.read[m.name] && h.w.chance(10) {
			h.readMember(m)
		}
	}
	for _, m := range h.w.members {
		h.lanes[m.name].work(h)
	}
	if h.w.now >= h.ask && !h.busy {
		h.decide()
	}
}

// readMember reads the copy of a member at the start of the tenure.
func (h *simHub) readMember(m *simMember) {
	h.read[m.name] = true
	h.ask = h.w.now
	if c := m.copy; c != nil {
		h.highest = max(h.highest, c.Epoch)
		if c.LeadsHere() && (h.standing == nil || c.Epoch > h.standing.Term.Epoch) {
			h.standing = &election.FoundTerm{Cluster: m.name, Term: c.Term, Boot: math.MaxInt64}
		}
	}
}

func (h *simHub) state(closed bool) election.State {
	w := h.w
	s := election.State{
		Record: w.record, Tenure: h.tenure, Sent: h.sent, Highest: max(h.highest, h.granted), Found: h.standing,
		LargestDuration: max(w.largest, w.policy.Timings.Duration),
	}
	s.Sent.Final = closed
	lost := 0
	for _, m := range w.members {
		if m.fitness == election.Unfit && m.why != reason.Deleting {
			lost++
		}
		if m.name == w.record.Leader {
			s.LeaseLost = h.lanes[m.name].lost
		}
	}
	s.MostUnreachable = 2*lost > len(w.members)
	return s
}

func (h *simHub) candidates() []election.Candidate {
	var cs []election.Candidate
	for _, m := range h.w.members {
		l := h.lanes[m.name]
		c := election.Candidate{Name: m.name, Priority: m.priority, Fitness: m.fitness, Reason: m.why, Answering: m.up}
		if !h.read[m.name] {
			c.Fitness, c.Reason = election.Unknown, reason.NeverReached
		}
		since := h.w.record.Since
		c.Prepared, c.Refused = !since.IsZero() && l.placed.Equal(since), !since.IsZero() && l.refused.Equal(since)
		cs = append(cs, c)
	}
	return cs
}

func (h *simHub) close() {
	for _, l := range h.lanes {
		if l.want.Role == lease.Lead {
			l.want.Role = lease.Hold
		}
	}
}

// decide does what the controller does.
func (h *simHub) decide() {
	w := h.w
	p, cs := w.policy, h.candidates()
	closed := w.record.State != election.Leading
	if closed {
		h.close()
	}
	d := election.Next(w.read(h.clock), &p, h.state(closed), cs)
	if d.StopRenewing {
		h.close()
		d = election.Next(w.read(h.clock), &p, h.state(true), cs)
	}
	h.ask = w.now + time.Hour
	if d.After > 0 {
		h.ask = w.now + d.After
	}
	if !d.Persist {
		h.assign(d.Record, p)
		return
	}
	w.largest = max(w.largest, d.Record.Duration)
	h.persist(d.Record, p)
}

// persist writes the record by compare-and-swap. The request may be lost, or arrive when nobody waits for it any more.
func (h *simHub) persist(r election.Record, p election.Policy) {
	w, was, version := h.w, h.w.record, h.w.version
	arrives, answered := w.between(0, 50*time.Millisecond), true
	if w.faulty && w.chance(15) {
		arrives, answered = w.between(0, 4*second), false
	}
	h.busy = true
	done := false
	if answered || w.chance(2) {
		w.after(arrives, func() {
			if done = w.version == version; done {
				w.record = r
				w.version++
				w.say("record %+v", r)
			}
			w.hub.ask = w.now
		})
	}
	wait := arrives + tick
	if !answered {
		wait = timeout
	}
	w.after(wait, func() {
		h.busy, h.ask = false, w.now
		if !answered || !done {
			return
		}
		if r.State == election.Leading && r.Epoch != was.Epoch && r.Reason != reason.Adopted {
			h.granted = r.Epoch
		}
		h.assign(r, p)
	})
}

func (h *simHub) assign(r election.Record, p election.Policy) {
	first := r.Epoch != 0 && h.granted == r.Epoch && h.stamped != r.Epoch
	for _, m := range h.w.members {
		l := h.lanes[m.name]
		a := election.Assign(r, "fleet", m.name, p.Timings.Duration, first)
		if a.Term.Epoch < l.want.Term.Epoch {
			continue
		}
		if a.Role != l.want.Role || !a.Term.SameTerm(l.want.Term) {
			l.lost = false
		} else if a.MinRenewTime.IsZero() {
			a.MinRenewTime = l.want.MinRenewTime
		}
		l.want = a
	}
}

// work sends what the lane has to send, if the member can be reached.
func (l *simLane) work(h *simHub) {
	m, want := l.member, l.want
	if l.busy || !m.up || want.Role == lease.Hold || want.Role == lease.Absent {
		return
	}
	now := h.w.read(h.clock)
	known := m.copy
	switch want.Role {
	case lease.Follow:
		if known != nil && (known.Epoch > want.Term.Epoch || known.SameTerm(want.Term) && !known.RenewTime.Before(want.MinRenewTime)) {
			if known.Epoch == want.Term.Epoch {
				l.placed, l.refused = want.MinRenewTime, time.Time{}
				h.ask = min(h.ask, h.w.now)
			}
			return
		}
		want.Term.RenewTime = now.Wall
	case lease.Lead:
		stands := known != nil && known.SameTerm(want.Term) && known.Live(now.Wall)
		switch {
		case stands && now.Wall.Sub(known.RenewTime) < simRenew:
			return
		case stands, want.First && h.stamped != want.Term.Epoch:
			want.Term.RenewTime = now.Wall
			h.enter(now, want.Term)
			l.last = want.Term
		case l.last.SameTerm(want.Term) && l.last.Live(now.Wall):
			want.Term = l.last
		default:
			if !l.lost {
				l.lost, h.ask = true, h.w.now
			}
			return
		}
	}
	l.send(h, want)
}

// enter notes a stamp before it is sent.
func (h *simHub) enter(now lease.Reading, t lease.Term) {
	h.stamped = t.Epoch
	h.sent.Until = maxTime(h.sent.Until, now.Wall.Add(t.Duration))
	h.sent.BootUntil = max(h.sent.BootUntil, now.Boot+t.Duration)
}

// send writes by compare-and-swap. The request may be lost, or arrive long after.
func (l *simLane) send(h *simHub, want lease.Assignment) {
	w, m := h.w, l.member
	version := m.version
	c := &lease.Content{Term: want.Term, Cluster: lease.Identity(m.name, "fleet")}
	arrives, answered := w.between(0, 50*time.Millisecond), true
	if w.faulty && w.chance(8) {
		arrives, answered = w.between(0, 5*second), false
	}
	l.busy = true
	if answered || w.chance(2) {
		w.after(arrives, func() {
			if m.version == version {
				w.put(m, c)
			}
		})
	}
	wait := arrives + tick
	if !answered {
		wait = timeout
	}
	w.after(wait, func() {
		l.busy = false
		if !answered && want.Role == lease.Follow && !want.MinRenewTime.IsZero() {
			l.refused, h.ask = want.MinRenewTime, w.now
		}
	})
}
