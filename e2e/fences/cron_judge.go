package main

import (
	"fmt"
	"slices"
	"time"
)

// settling is how long a term has to last after a tick for that to be a tick that its cluster should have run.
const settling = 15 * time.Second

// term is one that was seen in the Leases of its cluster, by the hub's clock.
type term struct {
	member        string
	acquired, end time.Time // end is the latest deadline
}

// tick is one time of one CronJob.
type tick struct {
	cronJob string
	at      time.Time
}

// run is a Job that a CronJob controller has created.
type run struct {
	tick
	member  string
	created time.Time // by the API server's clock, in whole seconds
}

// tickVerdict is what became of the ticks.
type tickVerdict struct {
	Ticks         int `json:"ticks"`
	RanTwice      int `json:"ranTwice"`
	RanInFollower int `json:"ranInFollower"`
	Lost          int `json:"lost"`
	// LostWhileLed are those of the lost ticks whose cluster led for long enough.
	LostWhileLed int `json:"lostWhileLed"`
	// WorstFirstTickSeconds is how late a CronJob's first Job of a term came, after the first tick of the term. Where
	// none came at all it is the time that the term lasted after that tick.
	WorstFirstTickSeconds float64 `json:"worstFirstTickSeconds"`
	// Breaches tell of each tick that ran twice or in a follower.
	Breaches []string `json:"breaches,omitempty"`
}

// judgeTicks judges what was run of some ticks in these terms.
func judgeTicks(ticks []tick, runs []run, terms []term) tickVerdict {
	v := tickVerdict{Ticks: len(ticks)}
	of := map[tick][]run{}
	for _, r := range runs {
		of[r.tick] = append(of[r.tick], r)
		if !slices.ContainsFunc(terms, func(t term) bool { return t.covers(r) }) {
			v.RanInFollower++
			v.Breaches = append(v.Breaches, fmt.Sprintf("%s ran in %s at %s, which did not lead", r.tick, r.member,
				clockTime(r.created)))
		}
	}
	for _, k := range ticks {
		switch rs := of[k]; {
		case len(rs) > 1:
			v.RanTwice++
			v.Breaches = append(v.Breaches, fmt.Sprintf("%s ran in %s and in %s", k, rs[0].member, rs[1].member))
		case len(rs) == 0:
			v.Lost++
			if slices.ContainsFunc(terms, func(t term) bool { return !t.acquired.After(k.at) && t.end.Sub(k.at) >= settling }) {
				v.LostWhileLed++
			}
		}
	}
	for _, t := range terms {
		v.WorstFirstTickSeconds = max(v.WorstFirstTickSeconds, t.firstTickLate(ticks, runs).Seconds())
	}
	return v
}

// covers reports whether a Job belongs to the term: it is of a tick in the term, and was created before the end.
func (t term) covers(r run) bool {
	return t.member == r.member && !r.at.Before(t.acquired) && r.created.Before(t.end)
}

// firstTickLate is how long after the first tick of a term the last of the CronJobs ran for the first time in it.
func (t term) firstTickLate(ticks []tick, runs []run) (late time.Duration) {
	first := map[string]time.Time{}
	for _, k := range ticks {
		if at, ok := first[k.cronJob]; !k.at.Before(t.acquired) && k.at.Before(t.end) && (!ok || k.at.Before(at)) {
			first[k.cronJob] = k.at
		}
	}
	for cronJob, due := range first {
		ran := t.end
		for _, r := range runs {
			if r.cronJob == cronJob && t.covers(r) && r.created.Before(ran) {
				ran = r.created
			}
		}
		late = max(late, ran.Sub(due))
	}
	return late
}

func (k tick) String() string { return k.cronJob + " of " + clockTime(k.at) }

func clockTime(t time.Time) string { return t.UTC().Format(time.TimeOnly) }
