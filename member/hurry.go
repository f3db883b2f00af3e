package member

import (
	"math/rand/v2"
	"time"
)

// leastPatience is how long an answer may take at least in a hurried turn, however little is left of a term.
const leastPatience = 250 * time.Millisecond

// hurry is when a watch takes a turn early because news are missing: once for each renewal that is missing, however
// many terms there are, and ever less often while lists are answered and bring no news. The hub is silent then.
type hurry struct {
	on       bool             // the turn under way is hurried
	failures int              // of turns since one worked
	due      <-chan time.Time // the next one; nil: none is
	until    time.Duration    // there is none before, as in Reading.Boot
	gap      time.Duration    // between the last and the next
}

// delay is how long a hurried turn waits: for the time between two, and for a part of what is left of the term, so that
// all readers of a silent hub do not ask at once.
func (w *watched) delay() time.Duration {
	now := w.now()
	if now > w.hurry.until+w.member.stale {
		w.hurry.gap = 0 // the last one was long ago
	}
	left, _, _ := w.member.terms.scarce(w.namespace)
	return max(0, w.hurry.until-now) + rand.N(left/4+1)
}

// wanted reports whether news are still missing.
func (w *watched) wanted() bool {
	_, _, scarce := w.member.terms.scarce(w.namespace)
	return scarce || w.alarm.unheard()
}

// requestTimeout is how long the answer to a request may take. In a hurry two fit into what is left of the term. If
// that was too short the next may take longer.
func (w *watched) requestTimeout() time.Duration {
	most := w.member.stale / 4
	if !w.hurry.on {
		return most
	}
	left, _, _ := w.member.terms.scarce(w.namespace)
	return min(most, max(left/2, leastPatience<<min(w.hurry.failures, 10)))
}

// calm notes that a turn has worked.
func (w *watched) calm() {
	w.hurry.failures = 0
	if !w.hurry.on {
		return
	}
	w.hurry.on = false
	_, duration, scarce := w.member.terms.scarce(w.namespace)
	if !scarce {
		w.hurry.until, w.hurry.gap = 0, 0
		return
	}
	w.hurry.gap = min(max(duration/(2*scarcity), 2*w.hurry.gap), w.member.stale/4)
	w.hurry.until = w.now() + w.hurry.gap
}
