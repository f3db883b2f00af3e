package lease

import "time"

// Permit is what a reader may do after its last observation, frozen. The zero Permit permits nothing. It is immutable
// and may be shared between goroutines.
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

// Reader applies the reader's rule to the Leases of one namespace, in the order of observation. It is not safe for
// concurrent use.
//
// Both clocks matter. By observation alone, as in client-go's elector, a restarted reader or a delayed watch event
// makes an old Lease look new. By the wall clock alone, a clock that is stepped back extends a term.
type Reader struct {
	// Skew is ε: a renewTime further in the future is refused. A Lease may allow less.
	Skew time.Duration

	highest     int64  // the highest epoch seen
	nobodyLeads bool   // the Lease with that epoch has no holder
	frozen      Permit // for the latest deadline seen in the newest term that led here
	current     Permit // permitted by the last observation: frozen, less than that, or nothing
}

// Observe applies the content of the Lease at now, and returns what is permitted from here on. The reading must be
// taken after the Lease was received.
//
// Within a term only a later deadline freezes a new permission. A repeated delivery does not, because it would extend
// the term after a step back of the wall clock. An earlier deadline ends the permission earlier: the later one was an
// edit that the hub has reverted. Content with a Doubt is not believed, and the earlier promise still counts.
func (r *Reader) Observe(c Content, now Reading) Permit {
	if r.Doubt(c, now) != Believed {
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

// Doubt is why the content of a Lease is not believed.
type Doubt int

const (
	// Believed is no doubt.
	Believed Doubt = iota
	// FallenEpoch: the epoch is below one that was seen before.
	FallenEpoch
	// AbsurdEpoch: the epoch is above all that a hub can have given up to now.
	AbsurdEpoch
	// FutureRenewTime: the renewTime is further in the future than Allowed.
	FutureRenewTime
)

// Doubt returns why content that is seen at now is not believed.
func (r *Reader) Doubt(c Content, now Reading) Doubt {
	switch {
	case c.Epoch < r.highest:
		return FallenEpoch
	case !PlausibleEpoch(now.Wall, c.Epoch):
		return AbsurdEpoch
	case c.RenewTime.After(now.Wall.Add(r.Allowed(c))):
		return FutureRenewTime
	}
	return Believed
}

// Allowed is how far in the future a renewTime may be: the Lease's skew or Skew, whichever is less. A reader cannot
// verify the seal, so this lets an edit of the Lease only make the bound stricter. A Lease without a skew is from an
// older hub, and Skew alone counts.
func (r *Reader) Allowed(c Content) time.Duration {
	if c.Skew <= 0 {
		return r.Skew
	}
	return min(r.Skew, c.Skew)
}

// Highest is the highest epoch that was believed.
func (r *Reader) Highest() int64 { return r.highest }

// until returns what is permitted if the deadline is no later than this one, seen at now.
func (p Permit) until(deadline time.Time, now Reading) Permit {
	if earlier := p.wall.Sub(deadline); earlier > 0 {
		p.wall, p.boot = deadline, min(p.boot-earlier, now.Boot+deadline.Sub(now.Wall))
	}
	return p
}

// Over returns the highest epoch that is over for good. It returns false unless the last believed Lease has no holder.
// Then this reader never leads again in an epoch below the Lease's. It may release those epochs when its work in them
// has finished. A Lease that names another cluster ends them too, but by then the hub waits for no release.
func (r *Reader) Over() (epoch int64, ok bool) { return r.highest - 1, r.nobodyLeads }

// Gone records that the Lease does not exist. A missing Lease permits nothing. The highest epoch and the frozen
// permission are kept for a Lease that may come back.
func (r *Reader) Gone() { r.current = Permit{} }
