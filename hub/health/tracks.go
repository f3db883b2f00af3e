package health

import (
	"slices"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// Tracks are the facts about one member, separate for each request timeout of a policy. An answer too late for one
// policy may be in time for another. They are ordered by their timeouts. No method changes them in place.
type Tracks []Timed

// Timed are the facts under one timeout.
type Timed struct {
	Timeout time.Duration
	Track   Track
}

// Under returns the facts under other timeouts, the shortest one first, each once. There must be at least one. A new
// timeout begins with the facts under the next longer timeout, or else the longest one. So an edit of a policy makes no
// member unknown.
func (ts Tracks) Under(timeouts []time.Duration) Tracks {
	next := make(Tracks, 0, len(timeouts))
	for _, timeout := range timeouts {
		next = append(next, Timed{Timeout: timeout, Track: ts.Of(timeout)})
	}
	return next
}

// Of returns the facts under the shortest timeout that is not below this one, or else under the longest one.
func (ts Tracks) Of(timeout time.Duration) Track {
	for _, t := range ts {
		if t.Timeout >= timeout {
			return t.Track
		}
	}
	return ts.MostPatient()
}

// MostPatient returns the facts under the longest timeout. A failure under it is a failure for every policy.
func (ts Tracks) MostPatient() Track {
	if len(ts) == 0 {
		return Track{}
	}
	return ts[len(ts)-1].Track
}

// Observe returns the facts after one more request. Under a given timeout it ignores an answer that came later, and
// silence that lasted less: another request waited for a different time. Probes are sent under each timeout.
func (ts Tracks) Observe(o Observation) Tracks {
	return ts.each(func(timeout time.Duration, t *Track) {
		if late, early := o.OK && o.Took > timeout, o.Silent && o.Took < timeout; !late && !early {
			t.Observe(o)
		}
	})
}

// Excuse returns the facts without the time in which the hub sent no requests: see [Track.Excuse].
func (ts Tracks) Excuse(k Kind, from, to lease.Reading) Tracks {
	return ts.each(func(_ time.Duration, t *Track) { t.Excuse(k, from, to) })
}

// Forgotten returns empty tracks under the same timeouts.
func (ts Tracks) Forgotten() Tracks {
	return ts.each(func(_ time.Duration, t *Track) { *t = Track{} })
}

func (ts Tracks) each(change func(timeout time.Duration, t *Track)) Tracks {
	next := slices.Clone(ts)
	for i := range next {
		for k := range next[i].Track.facts { // copied, because Observe and Excuse write to lapses
			f := &next[i].Track.facts[k]
			f.lapses = slices.Clone(f.lapses)
		}
		change(next[i].Timeout, &next[i].Track)
	}
	return next
}
