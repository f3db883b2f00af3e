package election

import (
	"slices"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// openLocks returns the fenced locks that may be held where the leader is, and how long until another one opens, or
// zero.
//
// A lock stays open while the policy fences it. A lock that is new to the record may still have an earlier holder:
// under the Lease of another namespace, or without a fence. So it opens when every cluster has rejected it for as
// long as such a holder goes on. In a cluster that the hub does not reach, the Lease that admits the holder ends
// within D + ε.
func openLocks(now lease.Reading, p Policy, s State) (open []string, wait time.Duration) {
	for _, lock := range p.Locks {
		if !s.Record.Lost() && slices.Contains(s.Record.OpenLocks, lock) {
			open = append(open, lock)
			continue
		}
		since, refused := s.RefusedSince[lock]
		if !refused {
			continue
		}
		if rest := since + p.lockOpensAfter(s) - now.Boot; rest > 0 {
			wait = Soonest(wait, rest)
			continue
		}
		open = append(open, lock)
	}
	return open, wait
}

// stillFenced returns the open locks that the policy fences. Others close, whatever the record's state: while a
// lock is not fenced, any cluster may take it.
func stillFenced(p *Policy, open []string) (fenced []string) {
	if p == nil {
		return nil
	}
	for _, lock := range open {
		if slices.Contains(p.Locks, lock) {
			fenced = append(fenced, lock)
		}
	}
	return fenced
}

// lockOpensAfter returns how long every cluster has to reject a lock before it opens.
func (p Policy) lockOpensAfter(s State) time.Duration {
	return max(p.Timings.Duration, s.FleetDuration) + max(p.Timings.Skew, s.FleetSkew) + max(p.StopTime, s.FleetStop)
}

// noteUnfenced records the leader that is being replaced, if its fence is missing.
func (r *Record) noteUnfenced(cs []Candidate) {
	if holder, _ := named(cs, r.Leader); holder.Unfenced == FenceMissing {
		r.UnfencedLeader = r.Leader
	}
}

// stillUnfenced returns the former leader whose fence was missing when it was replaced. It returns "" once that
// fence is in force, or if that cluster leads again. It returns "" for a cluster that is no candidate any more, too.
func stillUnfenced(r Record, leader string, cs []Candidate) string {
	former, known := named(cs, r.UnfencedLeader)
	if !known || former.Name == leader || former.Unfenced == FenceInForce {
		return ""
	}
	return r.UnfencedLeader
}
