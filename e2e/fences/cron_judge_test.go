package main

import (
	"slices"
	"testing"
	"time"
)

// noon is the tick that is judged, and the first one of its CronJob.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// leads is a term of a cluster, in seconds from noon.
func leads(member string, from, to float64) term {
	at := func(s float64) time.Time { return noon.Add(time.Duration(s * float64(time.Second))) }
	return term{member, at(from), at(to)}
}

// ran is the Job of a tick, created that many seconds after noon.
func ran(member string, minute, created int) run {
	return run{tick{"bill", noon.Add(time.Duration(minute) * time.Minute)}, member,
		noon.Add(time.Duration(created) * time.Second)}
}

func TestWhatBecameOfTicks(t *testing.T) {
	one := []tick{{"bill", noon}}
	two := append(slices.Clone(one), tick{"bill", noon.Add(time.Minute)})
	led := []term{leads("east", -100, 200)}
	for name, test := range map[string]struct {
		ticks []tick
		runs  []run
		terms []term
		want  tickVerdict
	}{
		"it ran where its cluster led": {one, []run{ran("east", 0, 0)}, led, tickVerdict{Ticks: 1}},
		"it ran elsewhere": {one, []run{ran("west", 0, 0)}, led,
			tickVerdict{Ticks: 1, RanInFollower: 1, WorstFirstTickSeconds: 200}},
		"it ran after the term": {one, []run{ran("east", 0, 200)}, led,
			tickVerdict{Ticks: 1, RanInFollower: 1, WorstFirstTickSeconds: 200}},
		"it ran in a term that began after it": {one, []run{ran("east", 0, 5)}, []term{leads("east", 0.5, 200)},
			tickVerdict{Ticks: 1, RanInFollower: 1}},
		"it ran in two clusters, one after another": {one, []run{ran("east", 0, 0), ran("west", 0, 30)},
			[]term{leads("east", -100, 10), leads("west", 20, 50)}, tickVerdict{Ticks: 1, RanTwice: 1, RanInFollower: 1}},
		"it ran in two clusters that led both": {one, []run{ran("east", 0, 0), ran("west", 0, 1)},
			[]term{leads("east", -100, 10), leads("west", -5, 50)}, tickVerdict{Ticks: 1, RanTwice: 1,
				WorstFirstTickSeconds: 1}},
		"nobody ran it, and nobody led": {one, nil, []term{leads("east", -100, -1), leads("west", 2, 200)},
			tickVerdict{Ticks: 1, Lost: 1}},
		"nobody ran it, and its cluster led": {one, nil, led,
			tickVerdict{Ticks: 1, Lost: 1, LostWhileLed: 1, WorstFirstTickSeconds: 200}},
		"nobody ran it, and its cluster lost soon": {one, nil, []term{leads("east", -100, 2)},
			tickVerdict{Ticks: 1, Lost: 1, WorstFirstTickSeconds: 2}},
		"the first was late": {one, []run{ran("east", 0, 45)}, led,
			tickVerdict{Ticks: 1, WorstFirstTickSeconds: 45}},
		"the first was lost, and the second in time": {two, []run{ran("east", 1, 60)}, led,
			tickVerdict{Ticks: 2, Lost: 1, LostWhileLed: 1, WorstFirstTickSeconds: 60}},
	} {
		t.Run(name, func(t *testing.T) {
			got := judgeTicks(test.ticks, test.runs, test.terms)
			if breaches := got.RanTwice + got.RanInFollower; len(got.Breaches) != breaches {
				t.Errorf("breaches %q of %d", got.Breaches, breaches)
			}
			got.Breaches = nil
			if got.Ticks != test.want.Ticks || got.RanTwice != test.want.RanTwice ||
				got.RanInFollower != test.want.RanInFollower ||
				got.Lost != test.want.Lost || got.LostWhileLed != test.want.LostWhileLed ||
				got.WorstFirstTickSeconds != test.want.WorstFirstTickSeconds {
				t.Errorf("judged %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestADrillFailsIfATickRanWhereItMustNot(t *testing.T) {
	for name, test := range map[string]struct {
		v     tickVerdict
		fails bool
	}{
		"all ran":        {tickVerdict{Ticks: 3}, false},
		"some were lost": {tickVerdict{Ticks: 3, Lost: 2}, false},
		"nothing ran":    {tickVerdict{Ticks: 3, Lost: 3}, true},
		"one ran twice":  {tickVerdict{Ticks: 3, RanTwice: 1, Breaches: []string{"bill ran twice"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := (tickResult{tickVerdict: test.v}).failed(); (err != nil) != test.fails {
				t.Errorf("it fails with %v, want %v", err, test.fails)
			}
		})
	}
}
