package publish

import (
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
)

// failed takes in that a copy could not be written. It returns how long to wait before the next try:
// a link that heals is to be noticed at once, but what has failed for long does not heal in a moment.
func (l *lane) failed(why reason.Reason, words string, pause time.Duration) time.Duration {
	l.facts.Failing, l.facts.Failure = why, words
	if l.vain++; l.vain > impatience {
		return max(pause, pauseRefused)
	}
	return pause
}

// wrote takes in that a copy was written.
func (l *lane) wrote() { l.vain, l.facts.Failing, l.facts.Failure = 0, "", "" }

// impatience is how many writes in a row may fail before the pauses become longer.
const impatience = 10

// lost says that the leader's term cannot go on. Who is next depends on whether the member can be
// written at all. So where the last write failed that is tried first, by one that changes nothing and
// promises nothing: it may have failed in an outage that is over.
func (l *lane) lost(now lease.Reading) step {
	if l.facts.Failing == "" || l.known.lease == nil || !l.known.ours {
		l.facts.Lost = true
		return step{}
	}
	if !l.tried {
		l.tried = true
		return step{action: update, lease: l.known.lease.DeepCopy()}
	}
	l.tried, l.facts.Lost = false, true
	l.lookAgain = now.Boot + recheck
	return step{after: recheck}
}
