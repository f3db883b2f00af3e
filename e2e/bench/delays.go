package main

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/e2e/harness"
)

// renewal is a Lease of a leader, when it was seen and when it was stamped, on the boot clock.
type renewal struct{ seen, stamped time.Duration }

// renewals sorts the sightings in one member by namespace. Only Leases that name the member are renewed.
func renewals(seen []harness.Sighting[*coordinationv1.Lease]) map[string][]renewal {
	all := map[string][]renewal{}
	for _, s := range seen {
		if c, _ := wire.Read(s.Object); !s.Gone && c.LeadsHere() {
			all[c.Namespace] = append(all[c.Namespace], renewal{s.At.Boot, harness.BootOf(c.RenewTime, s.At)})
		}
	}
	return all
}

// delays tells of each renewal of one Lease that was due between two instants how much later it was seen than it was due,
// which is every r after the last stamp. One that is still missing when the time is over counts as seen then.
// One that came early counts as punctual.
func delays(copies []renewal, r, from, to time.Duration) []time.Duration {
	var all []time.Duration
	for i, last := range copies {
		due, seen := last.stamped+r, to
		if i+1 < len(copies) {
			seen = min(copies[i+1].seen, to)
		}
		if due >= from && due < to {
			all = append(all, max(0, seen-due))
		}
	}
	return all
}
