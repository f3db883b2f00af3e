package lease

import "time"

// Permit is what a reader may do after its last observation, frozen. The zero Permit permits nothing. It is
// immutable and may be shared between goroutines.
type Permit struct {
	// Epoch is the fencing token of the term.
	Epoch int64
	// wall and boot are the two ends of the permission; the earlier one counts.
	wall time.Time
	boot time.Duration
}

// Holds reports whether the holder of the permit may act at now: before both of its ends.
func (p Permit) Holds(now Reading) bool {
	return now.Boot < p.boot && now.Wall.Before(p.wall)
}

// Remaining is how much of the permission is left at now, never negative.
func (p Permit) Remaining(now Reading) time.Duration {
	return max(0, min(p.boot-now.Boot, p.wall.Sub(now.Wall)))
}

// Reader applies the reader's rule to what it sees of the Lease of one namespace, in order. It is not safe
// for concurrent use.
//
// Both clocks matter. By observation alone, as in client-go's elector, a restarted reader or a delayed watch
// event makes an old Lease look new. By the wall clock alone, a clock that is stepped back extends a term.
type Reader struct {
	// Skew is ε: a renewTime further in the future is refused.
	Skew time.Duration

	highest     int64  // the highest epoch seen
	nobodyLeads bool   // the Lease with that epoch names nobody
	frozen      Permit // for the latest deadline seen in the newest term that led here
	current     Permit // what the last observation permits: frozen, less than that, or nothing
}

// Observe notes what the Lease said at now, and returns what is permitted from here on. The reading must be
// taken after the Lease was received.
//
// Within a term only a later deadline freezes anything. An observation that is delivered again does not,
// because it would extend the term after a step back of the wall clock. An earlier deadline ends the
// permission earlier: the later one was an edit that the hub has repaired. A fallen or absurd epoch, or a
// renewTime more than Skew in the future, is not believed, and what was promised before it still counts.
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

// until is what is permitted if the deadline is no later than this one, seen at now.
func (p Permit) until(deadline time.Time, now Reading) Permit {
	if earlier := p.wall.Sub(deadline); earlier > 0 {
		p.wall, p.boot = deadline, min(p.boot-earlier, now.Boot+deadline.Sub(now.Wall))
	}
	return p
}

// Over returns the highest epoch that is over for good. It returns false unless the last Lease that was
// believed names nobody. Then this reader leads in no lower epoch than the Lease's any more. It may release
// them when its work in them has finished. (A Lease that names another cluster ends them too, but by then
// nobody waits for a release.)
func (r *Reader) Over() (epoch int64, ok bool) { return r.highest - 1, r.nobodyLeads }

// Gone notes that the Lease does not exist. A missing Lease permits nothing. The highest epoch and the freeze
// are kept for a Lease that may come back.
func (r *Reader) Gone() { r.current = Permit{} }
