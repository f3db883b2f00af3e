package controller

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

type fixedClock lease.Reading

func (c fixedClock) Now() lease.Reading { return lease.Reading(c) }

// The worlds of the simulation begin without the election's Lease.
func TestNothingIsDecidedBesideAnEarlierTenure(t *testing.T) {
	var crew crew
	defer crew.end()
	const step = 10 * time.Millisecond
	for seed := uint64(1); seed <= 50; seed++ {
		w := newWorld(seed, nil, &crew)
		w.outage = 0
		var elected *replica
		for elected == nil && w.now < time.Minute {
			w.run(w.now + step)
			for _, r := range w.replicas {
				if r.working {
					elected = r
				}
			}
		}
		if elected == nil {
			t.Fatalf("seed %d: nobody is elected", seed)
		}
		started, _ := elected.tenure.Started()
		for elected.host.read(w.now).Boot < started.Boot+w.h-step {
			if len(w.hub.records) > 0 {
				t.Fatalf("seed %d: %d records within %v of the start", seed, len(w.hub.records),
					elected.host.read(w.now).Boot-started.Boot)
			}
			w.run(w.now + step)
		}
		w.heal() // only then is anything promised for a time
		w.run(w.now + w.settle())
		if len(w.hub.records) == 0 {
			t.Errorf("seed %d: nothing is decided after that", seed)
		}
		w.end()
	}
}
