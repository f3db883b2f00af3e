package member

import (
	"math/rand/v2"
	"time"
)

// leastPatience is the shortest timeout of a request in a hurried turn, however little is left of a term.
const leastPatience = 250 * time.Millisecond

// hurry schedules a watch's early turns for overdue renewals: one for each overdue renewal, however many terms there
// are. While lists are answered without a renewal, the hub is silent, and early turns become rarer.
type hurry struct {
	on       bool             // the turn under way is hurried
	failures int              // turns that failed since the last successful one
	due      <-chan time.Time // fires when the next hurried turn is due; nil: no turn is scheduled
	until    time.Duration    // no hurried turn begins earlier, as in Reading.Boot
	gap      time.Duration    // between the last hurried turn and the next
}

// delay returns how long to wait before a hurried turn: the gap to the previous one, and a random part of the term's
// remaining time. The random part keeps all readers of a silent hub from listing at once.
func (w *watched) delay() time.Duration {
	now := w.now()
	if now > w.hurry.until+w.member.stale {
		w.hurry.gap = 0 // the last hurried turn was long ago
	}
	left, _, _ := w.member.terms.scarce(w.namespace)
	return max(0, w.hurry.until-now) + rand.N(left/4+1)
}

// wanted reports whether a renewal is still overdue.
func (w *watched) wanted() bool {
	_, _, scarce := w.member.terms.scarce(w.namespace)
	return scarce || w.alarm.unheard()
}

// requestTimeout returns how long to wait for the answer to a request. In a hurried turn two requests fit into the
// term's remaining time. After a failure the next one may take longer.
func (w *watched) requestTimeout() time.Duration {
	most := w.member.stale / 4
	if !w.hurry.on {
		return most
	}
	left, _, _ := w.member.terms.scarce(w.namespace)
	return min(most, max(left/2, leastPatience<<min(w.hurry.failures, 10)))
}

// calm records a turn that has succeeded.
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
