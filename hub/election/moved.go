package election

import (
	"slices"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
)

// otherHub decides nothing where another hub leads: it deposes no leader. A record without a term of this hub gets
// the reason OtherHub. So a tenure that finds no Lease of the other hub any more still counts what that hub has
// promised.
func otherHub(now lease.Reading, p *Policy, s State) Decision {
	d := Decision{Record: s.Record, Waiting: reason.OtherHub, After: otherHubAgain}
	if p == nil || !s.Record.Lost() && s.Record.State != Vacant {
		return d
	}
	r := &d.Record
	if r.Lost() {
		r.LeaseName, r.OpenLocks = p.LeaseName, nil
	}
	if r.State != Vacant || r.Reason != reason.OtherHub {
		r.State, r.Reason, r.Since = Vacant, reason.OtherHub, now.Wall
	}
	r.Duration = max(r.Duration, s.LargestDuration, p.Timings.Duration)
	r.Skew, r.Stop = max(r.Skew, s.LargestSkew), max(r.Stop, s.LargestStop)
	d.Persist = !same(*r, s.Record)
	return d
}

// moved decides on a record that came from another hub, as by clusterctl move. Until the Leases are this hub's, it
// deposes no leader and grants no term. The other hub may still be at work, and only its mark on the Leases shows
// that.
//
// A live Lease that the other hub has relinquished is the present term, and the record follows it. Where no Lease
// is live, this hub takes every Lease, each by compare-and-swap. So of two hubs that find the same Leases, only one
// gets them.
func moved(now lease.Reading, p Policy, s State, cs []Candidate) Decision {
	if r, ok := raise(now, p, s, cs); ok {
		return Decision{Record: r, Persist: true, Waiting: reason.Moved}
	}
	switch {
	case s.OtherHub:
		return Decision{Record: s.Record, Waiting: reason.OtherHub}
	case s.Record.State == Leading && !s.LeaseLost:
		return Decision{Record: s.Record, Waiting: reason.Moved}
	case slices.ContainsFunc(cs, func(c Candidate) bool { return c.Fitness == Unknown }):
		return Decision{Record: s.Record, Waiting: reason.WaitingForClusters}
	case !s.Sent.Final:
		return Decision{Record: s.Record, StopRenewing: true}
	}
	r := Record{
		Epoch: max(s.Record.Epoch, s.Highest), State: Vacant, Reason: reason.Moved, Since: now.Wall,
		Duration: max(longest(s), p.Timings.Duration), Skew: s.Record.Skew, Stop: s.Record.Stop,
		LeaseName: p.LeaseName, Observed: observedPriorities(s.Record, cs, false), Rebalanced: s.Record.Rebalanced,
	}
	if s.Record.State == r.State && s.Record.Reason == r.Reason {
		r.Since = s.Record.Since
	}
	return Decision{Record: r, Persist: !same(r, s.Record), Waiting: reason.Moved}
}
