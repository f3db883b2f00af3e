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
