package main

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/e2e/harness"
)

// ages follows how old the leaders' Leases in one member become before they are renewed, as a reader there sees it.
type ages struct {
	limit time.Duration // a renewal that takes longer is missed
	last  map[string]standing
	all   []time.Duration // of every renewal, the age of what it replaced at the instant at which it was seen
	// missed counts the renewals whose stamp came later than limit after the one before, and the terms that ended.
	missed int
}

// standing is the last Lease of a leader, stamped on the boot clock.
type standing struct {
	stamped time.Duration
	epoch   int64
}

func newAges(limit time.Duration) *ages { return &ages{limit: limit, last: map[string]standing{}} }

// add adds the sightings since the last call.
func (a *ages) add(seen []harness.Sighting[*coordinationv1.Lease]) {
	for _, s := range seen {
		c, _ := wire.Read(s.Object)
		if s.Gone || !c.LeadsHere() {
			a.end(c.Namespace)
			continue
		}
		a.renewed(c.Namespace, standing{harness.BootOf(c.RenewTime, s.At), c.Epoch}, s.At.Boot)
	}
}

// stampGrain is more than the error of a renewTime that is put on the boot clock, and less than any interval between two.
const stampGrain = 10 * time.Millisecond

// renewed adds a sighting at an instant of a Lease that names its member.
func (a *ages) renewed(namespace string, now standing, at time.Duration) {
	before, known := a.last[namespace]
	if known && before.epoch != now.epoch {
		a.end(namespace)
		known = false
	}
	if known && now.stamped-before.stamped < stampGrain {
		return // something else than the renewTime has changed
	}
	a.last[namespace] = now
	if !known {
		return
	}
	a.all = append(a.all, at-before.stamped)
	if now.stamped-before.stamped > a.limit {
		a.missed++
	}
}

// end counts the end of a term.
func (a *ages) end(namespace string) {
	if _, known := a.last[namespace]; known {
		delete(a.last, namespace)
		a.missed++
	}
}

// finish counts the Leases that were not renewed before the end.
func (a *ages) finish(at time.Duration) {
	for _, s := range a.last {
		if at-s.stamped > a.limit {
			a.all = append(a.all, at-s.stamped)
			a.missed++
		}
	}
}
