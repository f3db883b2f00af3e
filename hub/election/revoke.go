package election

import (
	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
)

// revokes reports whether the term of the leader that is being replaced must be revoked. A revocation cannot be
// undone, so it waits until the end is recorded and the successor has shown that it can be written. It is useless
// where an acknowledgement could not count, or where no Lease can be live any more.
func revokes(now lease.Reading, p Policy, s State, ranked []Candidate) bool {
	r := s.Record
	holder, _ := named(ranked, r.Leader)
	c, ok := ready(now, p, s, ranked)
	return p.Acknowledged && r.State == Ending && r.Revoked == 0 && !s.stale() &&
		ok && c.Name != r.Leader && holder.Answering && now.Wall.Before(s.Sent.Until) &&
		inheritedExpiry(s, p.bounds()).passed(now) && s.Sent.covered(now)
}

// acknowledged reports whether all readers have released the recorded term. Their releases cover what this tenure
// has sent. What an earlier tenure may have sent must have expired: its writes may still arrive. Releases do not
// cover fenced locks, whose holders are no readers.
func acknowledged(now lease.Reading, p Policy, s State) bool {
	return p.Acknowledged && s.Record.Revoked != 0 && s.Released &&
		inheritedExpiry(s, p.bounds()).passed(now) && s.Sent.covered(now)
}

// covered reports whether releases by readers cover all that this tenure has sent: no fenced lock can be held under
// it.
func (s Sent) covered(now lease.Reading) bool {
	return s.Stop == 0 && !now.Wall.Before(s.EarlierEnd) && now.Boot >= s.BootEarlierEnd
}

// ready returns the successor, if it could be granted the next term at once.
func ready(now lease.Reading, p Policy, s State, ranked []Candidate) (Candidate, bool) {
	c, ok := successorOf(now, p, s, ranked)
	return c, ok && (c.Prepared || c.Name == s.Record.Leader) && !mustWait(p, s, ranked, c)
}

// mustWait reports whether a successor must wait, because the observer may be at fault. An operator's order is no
// observation.
func mustWait(p Policy, s State, ranked []Candidate, c Candidate) bool {
	holder, _ := named(ranked, s.Record.Leader)
	return !c.Ordered && holder.Fenced == "" && c.Name != s.Record.Leader && s.MostUnreachable &&
		!p.FailOverWhenMostUnreachable &&
		isObservation(s.Record.Reason)
}

// waiting returns what the record of an ending term waits for.
func waiting(r Record) reason.Reason {
	if r.Revoked != 0 {
		return reason.WaitingForReaders
	}
	return reason.WaitingForExpiry
}
