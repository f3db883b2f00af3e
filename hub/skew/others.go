package skew

import (
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

const (
	// Lag is the longest time from an API server's reading of its clock for its own Lease until a list shows
	// the Lease.
	Lag = 10 * time.Second
	// Delay is the longest time from the reading of a host's clock until an API server admits the fastest of
	// some renewals.
	Delay = 500 * time.Millisecond
	// window is how many renewals are remembered of each clock, and how many there must be before one is
	// taken for the fastest.
	window = 4
	// recent is how old a renewal may be when it is seen. forget is how long after its last renewal a clock
	// is forgotten: a host that is gone has no clock.
	recent = 2 * time.Minute
	forget = 10 * time.Minute
)

// Renewal is a Lease that a host or an API server renews for itself.
type Renewal struct {
	Name string
	// RenewTime is that of the Lease, to the microsecond.
	RenewTime time.Time
	// Admitted is the second in which an API server stored it, by its own clock, or zero if the object does
	// not say. Only hosts need it.
	Admitted time.Time
}

// other is a clock of the member that does not answer the hub itself.
type other struct {
	latest    []proof       // what the latest renewals proved, oldest first
	renewTime time.Time     // of the latest renewal
	seen      time.Duration // the boot reading at which that was first seen
}

// proof is what one renewal proved: bounds of the clock's origin as of a boot reading.
type proof struct {
	lo, hi time.Time
	at     time.Duration
}

// prove adds a sample. older widens it by the drift of that time.
func (o *other) prove(s Sample, older time.Duration) {
	lo, hi := s.origins()
	o.latest = append(o.latest, proof{lo: lo.Add(-older / drift), hi: hi.Add(older / drift), at: o.seen})
	o.latest = o.latest[max(0, len(o.latest)-window):]
}

// offset is how far the clock is from the hub's wall clock at now. Any renewal but the fastest may have been
// under way for long. So the clock is never further behind than each renewal says, but may be further ahead
// than all but one say.
func (o *other) offset(now lease.Reading) Interval {
	i := Interval{Lo: -century, Hi: -century}
	own := now.Wall.Add(-now.Boot)
	for _, p := range o.latest {
		wider := (now.Boot - p.at) / drift
		i.Lo = max(i.Lo, cut(p.lo.Sub(own))-wider)
		i.Hi = max(i.Hi, cut(p.hi.Sub(own))+wider)
	}
	if len(o.latest) < window {
		i.Hi = century
	}
	return i
}

// others are such clocks by name.
type others map[string]*other

// news returns the clocks of those renewals that are new, and forgets clocks that are not renewed any more.
func (os others) news(rs []Renewal, boot time.Duration) map[*other]Renewal {
	fresh := map[*other]Renewal{}
	for _, r := range rs {
		o := os[r.Name]
		if o == nil {
			o = &other{}
			os[r.Name] = o
		}
		if !o.renewTime.Equal(r.RenewTime) {
			o.renewTime, o.seen = r.RenewTime, boot
			fresh[o] = r
		}
	}
	for name, o := range os {
		if boot-o.seen > forget {
			delete(os, name)
		}
	}
	return fresh
}

// hosts adds renewals of hosts, with the times at which an API server admitted them by its clock, of which
// there is an estimate.
func (os others) hosts(rs []Renewal, server *Estimate, answered lease.Reading) {
	lo, hi := server.bounds(answered.Boot)
	for o, r := range os.news(rs, answered.Boot) {
		if r.Admitted.IsZero() {
			continue
		}
		from := cut(r.Admitted.Sub(hi))                                       // it was admitted after this, on the hub's boot clock,
		until := min(cut(r.Admitted.Add(time.Second).Sub(lo)), answered.Boot) // and before this
		if age := answered.Boot - from; age <= recent && from <= until {
			o.prove(Sample{After: from - Delay, Before: until, Shown: r.RenewTime, Grain: time.Microsecond}, max(0, age))
		}
	}
}

// servers adds renewals of API servers, as a consistent list showed them. The list before it, which did not
// show those that are new, was sent at before.
func (os others) servers(rs []Renewal, before *time.Duration, answered lease.Reading) {
	for o, r := range os.news(rs, answered.Boot) {
		s := Sample{Open: true, Before: answered.Boot, Shown: r.RenewTime, Grain: time.Microsecond}
		if before != nil && len(o.latest) > 0 {
			s.Open, s.After = false, *before-Lag
		}
		o.prove(s, 0)
	}
}

// farthest names the clock with the greatest proved distance, or is empty.
func (os others) farthest(now lease.Reading) (name string) {
	most := time.Duration(0)
	for n, o := range os {
		if d := o.offset(now).Least(); d > most || d == most && d > 0 && n < name {
			most, name = d, n
		}
	}
	return name
}
