package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
)

const (
	// failoverLimit is the longest that a failover or a handover may take, counted from when the fault is complete: what
	// is promised for the default timings, 16 s, and the write, the event and the machine's business besides.
	failoverLimit = 20 * time.Second
	// silence is how long a leader's guestbook may pause between two acts, of which it makes four a second.
	silence = 4 * time.Second
)

// round is the result of one fault.
type round struct {
	Fault    string  `json:"fault"`
	Expected outcome `json:"expected"`
	// Leader led before the fault, Next after all was well again.
	Leader string `json:"leader"`
	Next   string `json:"next"`
	// Seconds is the time from when the fault was complete to the next leader's first act; in an outage, from when the
	// hub's node was started again. It is zero if nothing was to move.
	Seconds float64 `json:"seconds"`
	// Gap is the longest time in which nobody acted.
	Gap float64 `json:"gapSeconds"`
	// Wrong is why the outcome is not as expected.
	Wrong string `json:"wrong,omitempty"`
}

// String describes the round.
func (r round) String() string {
	who := r.Leader + " goes on"
	if r.Next != r.Leader {
		who = r.Leader + ", then " + r.Next
	}
	if r.Seconds > 0 {
		who += fmt.Sprintf(" after %.1f s", r.Seconds)
	}
	said := fmt.Sprintf("%s: %s; nobody acted for %.1f s", r.Fault, who, r.Gap)
	if r.Wrong != "" {
		said += "; WRONG: " + r.Wrong
	}
	return said
}

// result is out/kind-drill.json.
type result struct {
	// Rounds counts the faults with the expected outcome, Failovers those of them that cost a leader its lead.
	Rounds    int `json:"rounds"`
	Failovers int `json:"failovers"`
	// Overlaps counts all that harness.Judge finds wrong.
	Overlaps int `json:"overlaps"`
	// WorstGap is the longest time in which nobody acted while there was a hub, WorstOutage while its node was gone too.
	WorstGap    float64 `json:"worstGapSeconds"`
	WorstOutage float64 `json:"worstOutageSeconds"`
	// LeastFailover and WorstFailover are the extremes of the time from a leader's loss to its successor's first act.
	LeastFailover float64 `json:"leastFailoverSeconds"`
	WorstFailover float64 `json:"worstFailoverSeconds"`
	Acts          int     `json:"acts"`
	History       []round `json:"history"`

	breaches []harness.Breach
}

func report(rounds []round, verdicts []harness.Verdict) result {
	r := result{History: rounds, breaches: harness.Breaches(verdicts)}
	r.Overlaps = len(r.breaches)
	for _, v := range verdicts {
		r.Acts += v.Acts
	}
	for i := range rounds {
		d := &rounds[i]
		d.Seconds, d.Gap = rounded(d.Seconds), rounded(d.Gap)
		if d.Next == "" {
			continue
		}
		if d.Wrong == "" {
			r.Rounds++
		}
		if d.Expected == outage {
			r.WorstOutage = max(r.WorstOutage, d.Gap)
			continue
		}
		r.WorstGap = max(r.WorstGap, d.Gap)
		if d.Expected == failover && d.Seconds > 0 {
			r.Failovers++
			if r.WorstFailover = max(r.WorstFailover, d.Seconds); r.LeastFailover == 0 || d.Seconds < r.LeastFailover {
				r.LeastFailover = d.Seconds
			}
		}
	}
	return r
}

func rounded(s float64) float64 { return math.Round(s*1000) / 1000 }

// flaws is why the drill fails, beside a round that was not finished.
func (r result) flaws() error {
	var errs []error
	for _, b := range r.breaches {
		errs = append(errs, errors.New(b.String()))
	}
	for _, d := range r.History {
		if d.Wrong != "" {
			errs = append(errs, fmt.Errorf("%s: %s", d.Fault, d.Wrong))
		}
	}
	if r.Failovers == 0 && slices.ContainsFunc(r.History, func(d round) bool { return d.Expected == failover }) {
		errs = append(errs, errors.New("no failover was seen"))
	}
	if r.Acts == 0 {
		errs = append(errs, errors.New("nobody has acted: nothing was seen"))
	}
	return errors.Join(errs...)
}

// longestGap is the longest time between from and to in which nobody acted.
func longestGap(acts []harness.Act, from, to time.Duration) (longest time.Duration) {
	acts = slices.Clone(acts)
	slices.SortFunc(acts, func(a, b harness.Act) int { return cmp.Compare(a.Begin, b.Begin) })
	last := from
	for _, a := range acts {
		if a.End < from || a.Begin > to {
			continue
		}
		longest = max(longest, a.Begin-last)
		last = max(last, min(a.End, to))
	}
	return max(longest, to-last)
}

// moved judges the first act of another cluster than the leader, after a fault that was complete at an instant.
func moved(expect outcome, leader cluster, first harness.Act, complete time.Duration) error {
	took := first.Begin - complete
	switch {
	case expect == handover && first.Cluster != successor(leader).name:
		return fmt.Errorf("%s acted, and %s was given the highest priority", first.Cluster, successor(leader).name)
	case expect == failover && took <= 0: // it has another reason
		return fmt.Errorf("%s acted %v before the fault was complete", first.Cluster, -took)
	case took > failoverLimit:
		return fmt.Errorf("that is more than %v", failoverLimit)
	}
	return nil
}

// silent returns an error unless all acts ended by an instant.
func silent(acts []harness.Act, by time.Duration) error {
	for _, a := range acts {
		switch {
		case a.End == harness.Unfinished:
			return fmt.Errorf("%s began an act in epoch %d that goes on", a.Cluster, a.Epoch)
		case a.End > by:
			return fmt.Errorf("%s acted in epoch %d, %v after the term was to end", a.Cluster, a.Epoch, a.End-by)
		}
	}
	return nil
}

// later returns an error unless an act belongs to a later term than all before.
func later(before []harness.Act, first harness.Act) error {
	for _, a := range before {
		if first.Epoch <= a.Epoch {
			return fmt.Errorf("%s acted in epoch %d again, and that had ended: %s acted in epoch %d", first.Cluster,
				first.Epoch, a.Cluster, a.Epoch)
		}
	}
	return nil
}

// unbroken returns an error unless a cluster acted alone, in one epoch, without a pause, from at on.
func unbroken(acts []harness.Act, leader string, at, now time.Duration) error {
	last, epoch := at, int64(0)
	for _, a := range acts {
		switch {
		case a.Begin < at:
			continue
		case a.Cluster != leader:
			return fmt.Errorf("%s acted in epoch %d", a.Cluster, a.Epoch)
		case epoch != 0 && a.Epoch != epoch:
			return fmt.Errorf("its epoch became %d, was %d", a.Epoch, epoch)
		}
		epoch, last = a.Epoch, max(last, a.Begin)
	}
	if gap := max(longestGap(acts, at, now), now-last); gap > silence {
		return fmt.Errorf("it did nothing for %v", gap)
	}
	return nil
}
