package lease_test

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

const (
	skew = time.Second
	term = 15 * time.Second // D
)

// at is a reading d after noon by both clocks. Boot is an hour ahead of zero.
func at(d time.Duration) lease.Reading {
	return lease.Reading{Wall: noon.Add(d), Boot: time.Hour + d}
}

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
		Namespace: "team-a", Name: "leasecast", Cluster: "east.default",
	}
}

const (
	here  = "east.default"
	there = "west.default"
)

// seen is one thing that a reader sees: a Lease, or that there is none.
type seen struct {
	at   lease.Reading
	copy lease.Content
	gone bool
}

func observe(at lease.Reading, c lease.Content) seen { return seen{at: at, copy: c} }
func missing() seen                                  { return seen{gone: true} }

// after lets a new reader see all of it and returns what is permitted then.
func after(all ...seen) lease.Permit {
	r := &lease.Reader{Skew: skew}
	return feed(r, all...)
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

// hour is a Lease that somebody has edited to promise an hour.
func hour(c lease.Content) lease.Content {
	c.Duration = time.Hour
	return c
}

func TestReaderLeadsUntilTheEarlierOfBothClocks(t *testing.T) {
	huge := lease.EpochFloor(noon) + 1<<21
	with := func(c lease.Content, change func(*lease.Content)) lease.Content { change(&c); return c }
	tests := map[string]struct {
		seen []seen
		// last is the last instant after noon at which both clocks permit; never, if negative.
		last time.Duration
		// step is that of the wall clock after the last observation.
		step time.Duration
	}{
		"a Lease that names this cluster": {
			seen: []seen{observe(at(0), leaseAt(0, here, 7))}, last: term - 1,
		},
		"from its renewTime, not from its arrival": {
			seen: []seen{observe(at(4*time.Second), leaseAt(0, here, 7))}, last: term - 1,
		},
		"a Lease that has expired on its way": {
			seen: []seen{observe(at(term), leaseAt(0, here, 7))}, last: -1,
		},
		"a Lease that names another cluster": {
			seen: []seen{observe(at(0), leaseAt(0, there, 7))}, last: -1,
		},
		"a Lease that names nobody": {
			seen: []seen{observe(at(0), leaseAt(0, "", 7))}, last: -1,
		},
		"a Lease that names nobody, in a cluster without a name": {
			seen: []seen{observe(at(0), with(leaseAt(0, "", 7), func(c *lease.Content) { c.Cluster = "" }))}, last: -1,
		},
		"a renewTime that the Lease's ε refuses, though the reader's own does not": {
			seen: []seen{observe(at(0), with(leaseAt(skew, here, 7), func(c *lease.Content) { c.Skew = skew / 2 }))}, last: -1,
		},
		"a renewTime that the Lease's ε allows, though the reader's own does not": {
			seen: []seen{observe(at(0), with(leaseAt(2*skew, here, 7), func(c *lease.Content) { c.Skew = 3 * skew }))}, last: -1,
		},
		"a renewTime that both allow": {
			seen: []seen{observe(at(0), with(leaseAt(skew/2, here, 7), func(c *lease.Content) { c.Skew = skew / 2 }))}, last: skew/2 + term - 1,
		},
		"nothing seen yet": {last: -1},
		"a renewal": {
			seen: []seen{observe(at(0), leaseAt(0, here, 7)), observe(at(5*time.Second), leaseAt(5*time.Second, here, 7))},
			last: 5*time.Second + term - 1,
		},
		"an older Lease after its renewal: the later deadline was an edit": {
			seen: []seen{observe(at(6*time.Second), leaseAt(5*time.Second, here, 7)), observe(at(7*time.Second), leaseAt(0, here, 7))},
			last: term - 1,
		},
		"an edit that promises an hour, and is put right": {
			seen: []seen{observe(at(0), leaseAt(0, here, 7)), observe(at(time.Second), hour(leaseAt(0, here, 7))), observe(at(2*time.Second), leaseAt(0, here, 7))},
			last: term - 1,
		},
		"an edit that promises an hour, is put right, and is renewed": {
			seen: []seen{
				observe(at(0), leaseAt(0, here, 7)), observe(at(time.Second), hour(leaseAt(0, here, 7))),
				observe(at(2*time.Second), leaseAt(0, here, 7)), observe(at(5*time.Second), leaseAt(5*time.Second, here, 7)),
			},
			last: 5*time.Second + term - 1,
		},
		"an edit that is put right while the wall clock is behind": {
			seen: []seen{
				observe(at(0), leaseAt(0, here, 7)), observe(at(time.Second), hour(leaseAt(0, here, 7))),
				observe(stepped(2*time.Second, -2*time.Second-skew), leaseAt(0, here, 7)),
			},
			step: -2*time.Second - skew, last: term - 1,
		},
		"an edit that is seen by a clock that is behind, and put right by one that is right": {
			seen: []seen{
				observe(stepped(time.Second, -time.Minute), hour(leaseAt(-time.Minute, here, 7))), observe(at(2*time.Second), leaseAt(0, here, 7)),
			},
			last: term - 1,
		},
		"the Lease again, after the wall clock was stepped back": {
			seen: []seen{observe(at(0), leaseAt(0, here, 7)), observe(stepped(5*time.Second, -5*time.Second), leaseAt(0, here, 7))},
			step: -5 * time.Second, last: term - 1,
		},
		"an older Lease again, after the wall clock was stepped back": {
			seen: []seen{
				observe(at(0), leaseAt(0, here, 7)), observe(at(5*time.Second), leaseAt(5*time.Second, here, 7)),
				observe(stepped(6*time.Second, -3*time.Second), leaseAt(0, here, 7)),
			},
			step: -3 * time.Second, last: term - 1,
		},
		"the Lease again, after the wall clock was stepped back by more than the age of the renewTime": {
			seen: []seen{observe(at(0), leaseAt(0, here, 7)), observe(stepped(5*time.Second, -time.Minute), leaseAt(0, here, 7))},
			step: -time.Minute, last: term - 1,
		},
		"the wall clock is stepped back afterwards": {
			seen: []seen{observe(at(0), leaseAt(0, here, 7))}, step: -time.Hour, last: term - 1,
		},
		"the wall clock is stepped forward afterwards": {
			seen: []seen{observe(at(0), leaseAt(0, here, 7))}, step: 10 * time.Second, last: term - 10*time.Second - 1,
		},
		"the wall clock is late when the Lease arrives, and is put right": {
			seen: []seen{observe(stepped(0, -500*time.Millisecond), leaseAt(0, here, 7))}, last: term - 1,
		},
		"the wall clock jumps back by more than ε: renewals are not believed, and the term ends when it would have": {
			seen: []seen{observe(at(0), leaseAt(0, here, 7)), observe(stepped(5*time.Second, -skew-1), leaseAt(5*time.Second, here, 7))},
			step: -skew - 1, last: term - 1,
		},
		"a reader that begins with a wall clock so late": {
			seen: []seen{observe(stepped(0, -skew-1), leaseAt(0, here, 7))}, last: -1,
		},
		"the wall clock stays late by less: the term lasts as much longer, and no more": {
			seen: []seen{observe(stepped(0, -skew/2), leaseAt(0, here, 7))}, step: -skew / 2, last: term + skew/2 - 1,
		},
		"the wall clock jumps forward: renewals look old, and permit as much less": {
			seen: []seen{observe(at(0), leaseAt(0, here, 7)), observe(stepped(5*time.Second, 10*time.Second), leaseAt(5*time.Second, here, 7))},
			step: 10 * time.Second, last: 10*time.Second - 1,
		},
		"and are not made up for when it is put right": {
			seen: []seen{
				observe(at(0), leaseAt(0, here, 7)), observe(stepped(5*time.Second, 10*time.Second), leaseAt(5*time.Second, here, 7)),
				observe(at(6*time.Second), leaseAt(5*time.Second, here, 7)),
			},
			last: 10*time.Second - 1,
		},
		"the wall clock jumps forward by more than D: renewals permit nothing": {
			seen: []seen{observe(at(0), leaseAt(0, here, 7)), observe(stepped(5*time.Second, term), leaseAt(5*time.Second, here, 7))},
			step: term, last: -1,
		},
		"the Lease vanishes": {
			seen: []seen{observe(at(0), leaseAt(0, here, 7)), missing()}, last: -1,
		},
		"the Lease vanishes and comes back": {
			seen: []seen{observe(at(0), leaseAt(0, here, 7)), missing(), observe(stepped(5*time.Second, -5*time.Second), leaseAt(0, here, 7))},
			step: -5 * time.Second, last: term - 1,
		},
		"the Lease vanishes and an older one comes back, of a lower epoch": {
			seen: []seen{observe(at(0), leaseAt(0, here, 7)), missing(), observe(at(time.Second), leaseAt(0, here, 6))}, last: -1,
		},
		"another cluster takes over": {
			seen: []seen{observe(at(0), leaseAt(0, here, 7)), observe(at(time.Second), leaseAt(time.Second, there, 8))}, last: -1,
		},
		"nobody takes over": {
			seen: []seen{observe(at(0), leaseAt(0, here, 7)), observe(at(time.Second), leaseAt(time.Second, "", 8))}, last: -1,
		},
		"another cluster has taken over, and the old Lease is seen again": {
			seen: []seen{
				observe(at(0), leaseAt(0, here, 7)), observe(at(time.Second), leaseAt(time.Second, there, 8)),
				observe(at(2*time.Second), leaseAt(0, here, 7)),
			},
			last: -1,
		},
		"a lower epoch does not end a term": {
			seen: []seen{observe(at(0), leaseAt(0, here, 7)), observe(at(time.Second), leaseAt(time.Second, there, 6))}, last: term - 1,
		},
		"a lower epoch does not extend a term": {
			seen: []seen{observe(at(0), leaseAt(0, here, 7)), observe(at(5*time.Second), leaseAt(5*time.Second, here, 6))}, last: term - 1,
		},
		"a term here again, in a higher epoch": {
			seen: []seen{
				observe(at(0), leaseAt(0, here, 7)), observe(at(time.Second), leaseAt(time.Second, there, 8)),
				observe(at(5*time.Second), leaseAt(5*time.Second, here, 9)),
			},
			last: 5*time.Second + term - 1,
		},
		"a new term that ends before the old one would have": {
			seen: []seen{
				observe(at(0), leaseAt(0, here, 7)),
				observe(at(time.Second), with(leaseAt(time.Second, here, 8), func(c *lease.Content) { c.Duration = 2 * time.Second })),
			},
			last: 3*time.Second - 1,
		},
		"a negative epoch": {
			seen: []seen{observe(at(0), leaseAt(0, here, -1))}, last: -1,
		},
		"the very first epoch": {
			seen: []seen{observe(at(0), leaseAt(0, here, 0))}, last: term - 1,
		},
		"a poisoned epoch does not lead": {
			seen: []seen{observe(at(0), leaseAt(0, here, huge))}, last: -1,
		},
		"a poisoned epoch does not fence honest terms": {
			seen: []seen{observe(at(0), leaseAt(0, there, huge)), observe(at(time.Second), leaseAt(0, here, 7))}, last: term - 1,
		},
		"a renewTime ε in the future": {
			seen: []seen{observe(at(0), leaseAt(skew, here, 7))}, last: skew + term - 1,
		},
		"a renewTime more than ε in the future": {
			seen: []seen{observe(at(0), leaseAt(skew+1, here, 7))}, last: -1,
		},
		"a renewTime more than ε in the future does not end a term": {
			seen: []seen{observe(at(0), leaseAt(0, here, 7)), observe(at(1), leaseAt(time.Hour, there, 8))}, last: term - 1,
		},
		"a renewTime more than ε in the future does not raise the epoch": {
			seen: []seen{observe(at(0), leaseAt(time.Hour, there, 8)), observe(at(1), leaseAt(0, here, 7))}, last: term - 1,
		},
		"a Lease that promises nothing": {
			seen: []seen{observe(at(0), with(leaseAt(0, here, 7), func(c *lease.Content) { c.Duration = 0 }))}, last: -1,
		},
		"a Lease without a renewTime": {
			seen: []seen{observe(at(0), with(leaseAt(0, here, 7), func(c *lease.Content) { c.RenewTime = time.Time{} }))}, last: -1,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := after(test.seen...)
			begin := at(0)
			if n := len(test.seen); n > 0 && !test.seen[n-1].gone {
				begin = lease.Reading{Wall: noon.Add(test.seen[n-1].at.Boot - time.Hour), Boot: test.seen[n-1].at.Boot}
			}
			if test.last < 0 {
				begin.Wall = begin.Wall.Add(test.step)
				if p.Holds(begin) || p.Remaining(begin) != 0 {
					t.Fatalf("permitted at once, for %v", p.Remaining(begin))
				}
				return
			}
			if now := stepped(test.last, test.step); !p.Holds(now) || p.Remaining(now) != 1 {
				t.Errorf("Holds %v after noon = %v with %v left, want true with 1ns", test.last, p.Holds(now), p.Remaining(now))
			}
			if now := stepped(test.last+1, test.step); p.Holds(now) || p.Remaining(now) != 0 {
				t.Errorf("Holds %v after noon = %v with %v left, want false with 0s", test.last+1, p.Holds(now), p.Remaining(now))
			}
		})
	}
}

func TestPermitNamesTheEpochOfItsTerm(t *testing.T) {
	if got := after(observe(at(0), leaseAt(0, here, 7)), observe(at(1), leaseAt(1, here, 9))).Epoch; got != 9 {
		t.Errorf("Epoch = %d, want 9", got)
	}
	if got := after(observe(at(0), leaseAt(0, here, 7)), observe(at(1), leaseAt(1, there, 9))); got != (lease.Permit{}) {
		t.Errorf("permit %+v for a term elsewhere, want none", got)
	}
}

func TestSuspendEndsAPermitThoughTheWallClockStoodStill(t *testing.T) {
	p := after(observe(at(0), leaseAt(0, here, 7)))
	asleep := at(0)
	asleep.Boot += term
	if p.Holds(asleep) || p.Remaining(asleep) != 0 {
		t.Error("permitted after a suspend as long as the term")
	}
}

func TestRemainingIsWhatTheEarlierClockLeaves(t *testing.T) {
	p := after(observe(at(0), leaseAt(0, here, 7)))
	tests := map[string]struct {
		now  lease.Reading
		want time.Duration
	}{
		"at first":                       {at(0), term},
		"later":                          {at(10 * time.Second), 5 * time.Second},
		"the wall clock is ahead":        {stepped(10*time.Second, 2*time.Second), 3 * time.Second},
		"the wall clock is behind":       {stepped(10*time.Second, -2*time.Second), 5 * time.Second},
		"after the end":                  {at(time.Hour), 0},
		"after the end by one clock":     {stepped(time.Hour, -time.Hour), 0},
		"after the end by the other one": {stepped(0, time.Hour), 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := p.Remaining(test.now); got != test.want {
				t.Errorf("Remaining = %v, want %v", got, test.want)
			}
		})
	}
	if got := (lease.Permit{}).Remaining(lease.Reading{}); got != 0 {
		t.Errorf("the zero Permit leaves %v", got)
	}
	if (lease.Permit{}).Holds(lease.Reading{}) {
		t.Error("the zero Permit permits something")
	}
}
