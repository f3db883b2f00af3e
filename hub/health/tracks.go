package health

import (
	"slices"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// Tracks are the facts about one member, apart for each request timeout that a policy judges by: what is silence for one
// policy may be an answer in time for another. They are ordered by their timeouts. No method changes them in place.
type Tracks []Timed

// Timed are the facts under one timeout.
type Timed struct {
	Timeout time.Duration
	Track   Track
}

// Under returns the facts under other timeouts, of which there is at least one. What is new begins with the facts
// under the next longer timeout, or else the next shorter one, so that the edit of a policy makes nobody unknown.
func (ts Tracks) Under(timeouts []time.Duration) Tracks {
	sorted := slices.Compact(slices.Sorted(slices.Values(timeouts)))
	next := make(Tracks, 0, len(sorted))
	for _, timeout := range sorted {
		next = append(next, Timed{Timeout: timeout, Track: ts.Of(timeout)})
	}
	return next
}

// Of returns the facts under a timeout, or else under the next longer one, or else under the next shorter one.
func (ts Tracks) Of(timeout time.Duration) Track {
	for _, t := range ts {
		if t.Timeout >= timeout {
			return t.Track
		}
	}
	return ts.MostPatient()
}

// MostPatient returns the facts under the longest timeout. What it calls a failure is one for every policy.
func (ts Tracks) MostPatient() Track {
	if len(ts) == 0 {
		return Track{}
	}
	return ts[len(ts)-1].Track
}

// Observe returns the facts after one more request. Neither an answer that came later than a timeout nor silence that
// lasted less says anything under it: somebody else has waited longer, or less long. Probes ask under each timeout.
func (ts Tracks) Observe(o Observation) Tracks {
	return ts.each(func(timeout time.Duration, t *Track) {
		if late, early := o.OK && o.Took > timeout, o.Silent && o.Took < timeout; !late && !early {
			t.Observe(o)
		}
	})
}

// Excuse returns the facts without the time in which the hub did not ask: see [Track.Excuse].
func (ts Tracks) Excuse(k Kind, from, to lease.Reading) Tracks {
	return ts.each(func(_ time.Duration, t *Track) { t.Excuse(k, from, to) })
}

// Forgotten returns tracks under the same timeouts that have seen nothing.
func (ts Tracks) Forgotten() Tracks {
	return ts.each(func(_ time.Duration, t *Track) { *t = Track{} })
}

func (ts Tracks) each(change func(timeout time.Duration, t *Track)) Tracks {
	next := slices.Clone(ts)
	for i := range next {
		for k := range next[i].Track.facts { // a Lease shares nothing that is written to
			f := &next[i].Track.facts[k]
			f.lapses = slices.Clone(f.lapses)
		}
		change(next[i].Timeout, &next[i].Track)
	}
	return next
}
