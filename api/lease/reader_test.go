package lease_test

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

const (
	skew  = time.Second
	term  = 15 * time.Second // D
	s     = time.Second
	here  = "east.default"
	there = "west.default"
)

// at is a reading d after noon by both clocks. Boot is an hour ahead of zero.
func at(d time.Duration) lease.Reading { return lease.Reading{Wall: noon.Add(d), Boot: time.Hour + d} }

// stepped is the same with a wall clock that was stepped.
func stepped(d, step time.Duration) lease.Reading {
	r := at(d)
	r.Wall = r.Wall.Add(step)
	return r
}

// leaseAt is a Lease in east, renewed d after noon.
func leaseAt(d time.Duration, holder string, epoch int64) lease.Content {
	return lease.Content{
		Term:      lease.Term{Holder: holder, Epoch: epoch, AcquireTime: noon, RenewTime: noon.Add(d), Duration: term},
		Namespace: "team-a", Name: "leasecast", Cluster: here,
	}
}

// seen is one observation: a Lease, or that there is none.
type seen struct {
	at   lease.Reading
	copy lease.Content
	gone bool
}

// see is the observation of a Lease that was renewed some time after noon.
func see(at lease.Reading, renewed time.Duration, holder string, epoch int64) seen {
	return seen{at: at, copy: leaseAt(renewed, holder, epoch)}
}

// lasting changes the Lease's duration.
func (s seen) lasting(d time.Duration) seen {
	s.copy.Duration = d
	return s
}

// allowing changes the Lease's ε.
func (s seen) allowing(d time.Duration) seen {
	s.copy.Skew = d
	return s
}

func feed(r *lease.Reader, all ...seen) (p lease.Permit) {
	for _, s := range all {
		if s.gone {
			r.Gone()
			p = lease.Permit{}
			continue
		}
		p = r.Observe(s.copy, s.at)
	}
	return p
}

func TestReaderLeadsUntilTheEarlierOfBothClocks(t *testing.T) {
	const never = -1
	absurd := lease.EpochFloor(noon) + 1<<21
	first, missing := see(at(0), 0, here, 7), seen{gone: true}
	edited := see(at(s), 0, here, 7).lasting(time.Hour)
	for name, row := range map[string]struct {
		seen []seen
		end  time.Duration // after noon, when a clock first forbids; never: it is not permitted at all
		step time.Duration // of the wall clock after the last observation
	}{
		"nothing":                             {nil, never, 0},
		"this cluster leads":                  {[]seen{first}, term, 0},
		"another cluster leads":               {[]seen{see(at(0), 0, there, 7)}, never, 0},
		"no cluster leads":                    {[]seen{see(at(0), 0, "", 7)}, never, 0},
		"a renewal":                           {[]seen{first, see(at(5*s), 5*s, here, 7)}, 5*s + term, 0},
		"the wall clock steps back":           {[]seen{first}, term, -time.Hour},
		"the wall clock steps forward":        {[]seen{first}, term - 10*s, 10 * s},
		"the Lease is gone":                   {[]seen{first, missing}, never, 0},
		"gone, and a lower epoch comes":       {[]seen{first, missing, see(at(s), 0, here, 6)}, never, 0},
		"another cluster takes over":          {[]seen{first, see(at(s), s, there, 8)}, never, 0},
		"taken over, and the old Lease again": {[]seen{first, see(at(s), s, there, 8), see(at(2*s), 0, here, 7)}, never, 0},
		"a higher epoch here that is shorter": {[]seen{first, see(at(s), s, here, 8).lasting(2 * s)}, 3 * s, 0},
		"an absurd epoch before":              {[]seen{see(at(0), 0, there, absurd), see(at(s), 0, here, 7)}, term, 0},
		"ε ahead":                             {[]seen{see(at(0), skew, here, 7)}, skew + term, 0},
		"more than ε ahead":                   {[]seen{see(at(0), skew+1, here, 7)}, never, 0},
		"the Lease's ε, ahead":                {[]seen{see(at(0), skew/2, here, 7).allowing(skew / 2)}, skew/2 + term, 0},
		"more than the Lease's ε ahead":       {[]seen{see(at(0), skew, here, 7).allowing(skew / 2)}, never, 0},
		"a larger ε of the Lease":             {[]seen{see(at(0), 2*skew, here, 7).allowing(3 * skew)}, never, 0},
		"reverted and renewed": {
			[]seen{first, edited, see(at(2*s), 0, here, 7), see(at(5*s), 5*s, here, 7)}, 5*s + term, 0},
		"gone, and the same after a step back": {
			[]seen{first, missing, see(stepped(5*s, -5*s), 0, here, 7)}, term, -5 * s},
		"the wall clock is late, and corrected": {[]seen{see(stepped(0, -s/2), 0, here, 7)}, term, 0},
	} {
		p := feed(&lease.Reader{Skew: skew}, row.seen...)
		if row.end == never {
			var now time.Duration
			if n := len(row.seen); n > 0 && !row.seen[n-1].gone {
				now = row.seen[n-1].at.Boot - time.Hour
			}
			if begin := stepped(now, row.step); p.Holds(begin) || p.Remaining(begin) != 0 {
				t.Errorf("%s: permitted at once, for %v", name, p.Remaining(begin))
			}
			continue
		}
		for left := range time.Duration(2) {
			if now := stepped(row.end-left, row.step); p.Holds(now) != (left > 0) || p.Remaining(now) != left {
				t.Errorf("%s: Holds %v after noon = %v with %v left", name, row.end-left, p.Holds(now), p.Remaining(now))
			}
		}
	}
}

// Only a Lease without a holder ends epochs that a reader may release: all below its own.
func TestOver(t *testing.T) {
	for name, row := range map[string]struct {
		all  []seen
		over int64
		ok   bool
	}{
		"another cluster leads": {[]seen{see(at(0), 0, there, 7)}, 6, false},
		"no cluster leads":      {[]seen{see(at(0), 0, "", 8)}, 7, true},
		"a cluster leads again": {[]seen{see(at(0), 0, "", 8), see(at(1), 1, there, 9)}, 8, false},
		"an older Lease":        {[]seen{see(at(0), 0, "", 8), see(at(1), 1, there, 7)}, 7, true},
		"the Lease is gone":     {[]seen{see(at(0), 0, "", 8), {gone: true}}, 7, true},
	} {
		r := &lease.Reader{Skew: skew}
		feed(r, row.all...)
		if over, ok := r.Over(); over != row.over || ok != row.ok {
			t.Errorf("%s: Over = %d, %v, want %d, %v", name, over, ok, row.over, row.ok)
		}
	}
}
