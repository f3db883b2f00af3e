package publish

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/election"
)

// What hub/controller does between the real parts: gather, decide, persist, assign.

// view is what a replica holds of the members when it decides.
type view int

const (
	allFit        view = iota // all that were read may lead
	leaderUnfit               // the recorded leader must go
	leaderUnfitIn             // the same, by a wall clock that is stepped forward while it decides
	views
)

// decide has a replica look at the record, the members and what it has sent, and do what the real election says:
// close its syncers, send a write of the record, or assign what the record wants.
func (e *explorer) decide(s *world, x int, v view) *world {
	r := s.replicas[x]
	if r.ruling != nil || !e.mayWrite(s, r) || v != allFit && s.record.Leader == "" || v == leaderUnfitIn && !e.steps {
		return nil
	}
	n := s.clone()
	r = n.change(x)
	r.highest = max(r.highest, r.granted, s.record.Epoch)
	now := s.at(r.wrong)
	if v == leaderUnfitIn {
		now.Wall = now.Wall.Add(time.Duration(e.d) * unit)
	}
	if e.broken.noBootForHub {
		now.Boot += 1000 * unit
	}
	p, cs := e.policy(), e.candidates(s, r, v)
	closed := s.record.State != election.Leading
	if closed {
		e.close(r)
	}
	st := e.state(s, r, closed)
	d := election.Next(now, &p, st, cs)
	if d.StopRenewing {
		e.close(r)
		st.Sent = e.sent(r, true)
		d = election.Next(now, &p, st, cs)
	}
	if b := s.record.NotBefore; e.broken.boundTrusted && s.record.State == election.Ending && !now.Wall.Before(b) {
		st.Sent, st.Tenure.Inherited = election.Sent{Final: true}, origin.Add(-time.Hour)
		d = election.Next(now, &p, st, cs)
	}
	switch {
	case d.Record.Epoch >= e.firstEpoch+int64(e.terms):
		return nil // a term more than this scope looks at
	case !d.Persist:
		e.assign(r, &d.Record)
		return e.idle(n, x)
	}
	r.ruling = &ruling{
		record: &d.Record, base: s.version, sent: s.now,
		grants: d.Record.State == election.Leading && d.Record.Epoch != s.record.Epoch && d.Record.Reason != reason.Adopted,
	}
	if e.broken.grantsFirst && r.ruling.grants {
		r.granted = d.Record.Epoch
		e.assign(r, &d.Record)
	}
	return e.idle(n, x)
}

func (e *explorer) policy() election.Policy {
	p := election.Policy{LeaseName: "leasecast", Acknowledged: e.acknowledged, Timings: lease.Timings{
		Duration: time.Duration(e.d) * unit, Renew: exploredRenew * unit, Timeout: exploredTau * unit,
		Skew: time.Duration(e.skew) * unit,
	}}
	if e.broken.noSkew {
		p.Timings.Skew = 0
	}
	return p
}

// candidates are the members as the replica holds them.
func (e *explorer) candidates(s *world, r *replica, v view) []election.Candidate {
	var cs []election.Candidate
	for m := range e.sites {
		l := r.syncers[m]
		c := election.Candidate{Name: siteNames[m], Fitness: election.Fit, Reason: reason.Eligible, Answering: true}
		switch {
		case !r.isRead[m]:
			c.Fitness, c.Reason = election.Unknown, reason.NeverReached
		case v != allFit && siteNames[m] == s.record.Leader:
			c.Fitness, c.Reason = election.Unfit, reason.Deleting
		}
		c.Refused = l.status.Refused && l.status.MinRenewTime.Equal(s.record.Since)
		c.Prepared = l.status.InPlace && l.status.MinRenewTime.Equal(s.record.Since)
		cs = append(cs, c)
	}
	return cs
}

// close closes the source of renewTimes, as Publisher.StopRenewing does.
func (e *explorer) close(r *replica) {
	for m := range e.sites {
		if r.syncers[m].want.Role == assign.Lead {
			l := *r.syncers[m]
			l.want.Role = assign.Hold
			r.syncers[m] = &l
		}
	}
}

// assign assigns to the syncers what the record wants.
func (e *explorer) assign(r *replica, record *election.Record) {
	first := record.Epoch != 0 && r.granted == record.Epoch && r.promise.Epoch != record.Epoch
	p := e.policy().Timings
	timings := Timings{Renew: p.Renew, Timeout: p.Timeout, Skew: p.Skew, LongestPromise: p.Duration + p.Skew}
	for m := range e.sites {
		a := election.Assign(*record, fleetName, siteNames[m], time.Duration(e.d)*unit, first)
		if e.broken.endingRenews && record.State == election.Ending && siteNames[m] == record.Leader {
			a.Role = assign.Lead
		}
		l := *r.syncers[m]
		l.assign(a, timings)
		r.syncers[m] = &l
		if e.acknowledged && m == registrar && l.want.Role != assign.Revoke {
			r.roll = r.roll.clone()
			r.roll.cancel(explorationKey)
		}
	}
}

// rulingArrives carries out a write of the record, by compare-and-swap.
func (e *explorer) rulingArrives(s *world, x int) *world {
	w := s.replicas[x].ruling
	if w == nil || w.settled {
		return nil
	}
	n := s.clone()
	settled := *w
	settled.settled, settled.done = true, e.rule(n, w)
	n.change(x).ruling = &settled
	if e.slowAnswers {
		return n
	}
	return e.rulingAnswers(n, x)
}

// rule is the hub's API server.
func (e *explorer) rule(s *world, w *ruling) bool {
	if w.base != s.version && !e.broken.noRecordSwap {
		return false
	}
	s.record = w.record
	s.version++
	if s.late != nil && s.late.base != s.version && !e.broken.noRecordSwap {
		s.late = nil // it can never be carried out any more
	}
	return true
}

// rulingAnswers takes in the answer, and does what now depends on the record.
func (e *explorer) rulingAnswers(s *world, x int) *world {
	w := s.replicas[x].ruling
	if w == nil || !w.settled {
		return nil
	}
	n := s.clone()
	r := n.change(x)
	r.ruling = nil
	if w.done {
		if w.grants {
			r.granted = w.record.Epoch
		}
		e.assign(r, w.record)
	}
	return e.idle(n, x)
}

// rulingLost is a write of the record that is never answered.
func (e *explorer) rulingLost(s *world, x int) *world {
	w := s.replicas[x].ruling
	if w == nil || s.faults >= e.faults {
		return nil
	}
	n := s.clone()
	n.leaveRuling(w)
	n.change(x).ruling = nil
	n.faults++
	return n
}

// leaveRuling leaves a write of the record to arrive late.
func (s *world) leaveRuling(w *ruling) {
	if !w.settled && w.base == s.version {
		s.late = w
	}
}

// lateRuling carries out a write of the record that nobody waits for any more.
func (e *explorer) lateRuling(s *world) *world {
	if s.late == nil {
		return nil
	}
	n := s.clone()
	n.late = nil
	e.rule(n, s.late)
	return n
}

// enter records a promise in real Promises.
func enter(p Promise, epoch int64, stamp lease.Reading, promises step, skew time.Duration) Promise {
	key := types.NamespacedName{Namespace: fleetName, Name: "ns"}
	l := NewPromises()
	l.byNamespace[key] = p
	l.add(key, epoch, stamp, promises.promised, skew, 0)
	return l.Get(key)
}
