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
	// Skew is ε: how far in the future a stamp may lie before it is refused. A copy may allow less.
	Skew time.Duration

	highest int64  // the highest epoch seen
	vacant  bool   // the copy that it was seen in says that nobody leads
	frozen  Permit // of the latest deadline seen in the newest term that led here
	current Permit // what the last observation permits: frozen, less than that, or nothing
}

// Observe takes in a copy as it was seen at now and returns what is permitted
// from here on. The reading must be taken after the copy was received.
//
// Within a term only a later deadline is news: an observation delivered again
// freezes nothing again, because after a step back of the wall clock that would
// extend the term. An earlier deadline ends the permission earlier: the later one was an edit that
// the hub has put right. A copy that there is a Doubt about is not believed; what was promised
// before it still stands.
func (r *Reader) Observe(c Copy, now Reading) Permit {
	if r.Doubt(c, now) != Believed {
		return r.current
	}
	r.highest, r.vacant = c.Epoch, c.Holder == ""
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

// Doubt is why a copy is not believed.
type Doubt int

const (
	// Believed is no doubt.
	Believed Doubt = iota
	// FallenEpoch: the epoch is below one that was seen before.
	FallenEpoch
	// AbsurdEpoch: the epoch is above all that a hub can have given up to now.
	AbsurdEpoch
	// FutureStamp: the stamp lies further in the future than Allowed.
	FutureStamp
)

// Doubt returns why a copy that is seen at now is not believed.
func (r *Reader) Doubt(c Copy, now Reading) Doubt {
	switch {
	case c.Epoch < r.highest:
		return FallenEpoch
	case !PlausibleEpoch(now.Wall, c.Epoch):
		return AbsurdEpoch
	case c.Renewed.After(now.Wall.Add(r.Allowed(c))):
		return FutureStamp
	}
	return Believed
}

// Allowed is how far in the future the stamp of a copy may lie: by what the copy says or by Skew, whichever is less.
// A reader knows no seal, so an edit of the copy can only make it stricter. A copy that says nothing is from an older
// hub, and Skew alone counts.
func (r *Reader) Allowed(c Copy) time.Duration {
	if c.Skew <= 0 {
		return r.Skew
	}
	return min(r.Skew, c.Skew)
}

// Current is what the last observation permits.
func (r *Reader) Current() Permit { return r.current }

// Highest is the highest epoch that was believed.
func (r *Reader) Highest() int64 { return r.highest }

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
func (r *Reader) Over() (epoch int64, ok bool) { return r.highest - 1, r.vacant }

// Gone takes in that the copy does not exist: a missing Lease means no. The
// highest epoch and the freeze are kept for the copy that may come back.
func (r *Reader) Gone() { r.current = Permit{} }
