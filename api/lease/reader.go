package lease

import "time"

// Permit is what a reader may do after its last observation, frozen. The zero
// Permit permits nothing. It is immutable and may be shared between goroutines.
type Permit struct {
	// Epoch is the fencing token of the term.
	Epoch int64
	// wall and boot are the two ends of the permission; the earlier one counts.
	wall time.Time
	boot time.Duration
}

// Holds reports whether the holder of the permit may act at now: before both of
// its ends.
func (p Permit) Holds(now Reading) bool {
	return now.Boot < p.boot && now.Wall.Before(p.wall)
}

// Remaining is how much of the permission is left at now, never negative.
func (p Permit) Remaining(now Reading) time.Duration {
	return max(0, min(p.boot-now.Boot, p.wall.Sub(now.Wall)))
}

// Reader applies the reader's rule to the copies of one namespace, in the order
// in which a reader sees them. It is not safe for concurrent use.
//
// Both clocks matter. By observation alone, as client-go's elector does it, a
// restarted reader or a delayed watch event makes an old Lease look fresh. By
// the wall clock alone, a clock that is stepped back extends a term.
type Reader struct {
	// Skew is ε: how far in the future a stamp may lie before it is refused.
	Skew time.Duration

	highest     int64  // the highest epoch seen
	nobodyLeads bool   // the copy that it was seen in says that nobody leads
	frozen      Permit // of the latest deadline seen in the newest term that led here
	current     Permit // what the last observation permits: frozen, less than that, or nothing
}

// Observe takes in a copy as it was seen at now and returns what is permitted
// from here on. The reading must be taken after the copy was received.
//
// Within a term only a later deadline is news: an observation delivered again
// freezes nothing again, because after a step back of the wall clock that would
// extend the term. An earlier deadline ends the permission earlier: the later one was an edit that
// the hub has put right. A copy with a fallen or absurd epoch, or with a stamp more than
// Skew in the future, is not believed; what was promised before it still stands.
func (r *Reader) Observe(c Content, now Reading) Permit {
	switch {
	case c.Epoch < r.highest, !PlausibleEpoch(now.Wall, c.Epoch), c.RenewTime.After(now.Wall.Add(r.Skew)):
		return r.current
	}
	r.highest, r.nobodyLeads = c.Epoch, c.Holder == ""
	if !c.LeadsHere() {
		r.current = Permit{}
		return r.current
	}
	if deadline := c.Deadline(); c.Epoch != r.frozen.Epoch || deadline.After(r.frozen.wall) {
		r.frozen = Permit{
			Epoch: c.Epoch,
			wall:  deadline,
			boot:  now.Boot + deadline.Sub(now.Wall),
		}
	}
	r.current = r.frozen.until(c.Deadline(), now)
	return r.current
}

// until is what is permitted if the deadline is no later than that, seen at now.
func (p Permit) until(deadline time.Time, now Reading) Permit {
	if earlier := p.wall.Sub(deadline); earlier > 0 {
		p.wall, p.boot = deadline, min(p.boot-earlier, now.Boot+deadline.Sub(now.Wall))
	}
	return p
}

// Over returns the highest epoch that is over for good, and false unless the last copy
// that was believed says that nobody leads: then this reader leads in no epoch below that
// copy's any more, and may release them when what it did in them has finished. (A copy that names
// somebody else says as much, but by then nobody waits for a release.)
func (r *Reader) Over() (epoch int64, ok bool) { return r.highest - 1, r.nobodyLeads }

// Gone takes in that the copy does not exist: a missing Lease means no. The
// highest epoch and the freeze are kept for the copy that may come back.
func (r *Reader) Gone() { r.current = Permit{} }
