package controller

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/tenure"
)

// oneLease is an election's Lease that says what it was made with, and takes every update.
type oneLease struct {
	resourcelock.Interface
	said resourcelock.LeaderElectionRecord
}

func (o oneLease) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &o.said, nil, nil
}

func (oneLease) Update(context.Context, resourcelock.LeaderElectionRecord) error { return nil }

type fixedClock lease.Reading

func (c fixedClock) Now() lease.Reading { return lease.Reading(c) }

// succeeding is a controller whose tenure of h begins at start, after one whose Lease says when it was renewed, from
// the start of this one, and for how long.
func succeeding(t *testing.T, start lease.Reading, h, renewed, lasts time.Duration) *Controller {
	t.Helper()
	c := &Controller{Options: Options{Tenure: tenure.New(fixedClock(start), h)}}
	lock := c.Tenure.Lock(oneLease{said: resourcelock.LeaderElectionRecord{
		HolderIdentity: "other", LeaseDurationSeconds: int(lasts / time.Second), LeaderTransitions: 1,
		AcquireTime: metav1.NewTime(start.Wall.Add(-2 * time.Hour)), RenewTime: metav1.NewTime(start.Wall.Add(renewed)),
	}})
	if _, _, err := lock.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := lock.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me", RenewTime: metav1.NewTime(start.Wall)}); err != nil {
		t.Fatal(err)
	}
	return c
}

// What a hub remembers of a record is what makes an edit an edit: it looks once more at the very
// instant at which no earlier tenure can write any more, not at some time after it.
func TestEarlierTenuresEndHAfterTheStartOrWhenTheirTimeIsOver(t *testing.T) {
	const h = 6 * time.Second
	start := lease.Reading{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Boot: time.Hour}
	for name, tc := range map[string]struct {
		renewed time.Duration // of the predecessor, from the start of this tenure
		want    time.Duration
	}{
		"the predecessor was lost long ago": {-time.Hour, h},
		"it was lost just now":              {0, h + 1},
		"its stamp is ahead of this clock":  {time.Second, h + 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := succeeding(t, start, h, tc.renewed, h)
			for after, want := range map[time.Duration]time.Duration{
				0: tc.want, tc.want - 1: 1, tc.want: 0, tc.want + time.Hour: 0,
			} {
				at := lease.Reading{Wall: start.Wall.Add(after), Boot: start.Boot + after}
				if got := c.settlesIn(at); got != want {
					t.Errorf("%v after the start: %v, want %v", after, got, want)
				}
			}
		})
	}
}

// Two tenures are never at work at once: where the election's Lease does not tell when an earlier one ends, a new one
// waits until it must have. What somebody wrote into that Lease does not hold it up for longer.
func TestATenureWaitsForTheEndOfEarlierOnes(t *testing.T) {
	const h = 6 * time.Second
	start := lease.Reading{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Boot: time.Hour}
	for name, tc := range map[string]struct {
		renewed time.Duration // of the predecessor, from the start of this tenure
		lasts   time.Duration
		want    time.Duration
	}{
		"the predecessor's time is over":           {-h, h, 0},
		"it was over long ago":                     {-time.Hour, h, 0},
		"it has a second left, by its clock":       {-h + time.Second, h, time.Second},
		"its stamp is ahead of this clock":         {time.Second, h, h},
		"somebody gave it a year":                  {-time.Hour, 365 * 24 * time.Hour, h},
		"somebody gave it no time, and h is right": {-time.Second, time.Second, h - time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			c := succeeding(t, start, h, tc.renewed, tc.lasts)
			// The wall clock may be stepped since: time passes by the other one.
			for after, want := range map[time.Duration]time.Duration{0: tc.want, tc.want: 0, time.Hour: 0} {
				if got := c.overlapsFor(lease.Reading{Wall: start.Wall.Add(-time.Hour), Boot: start.Boot + after}); got != want {
					t.Errorf("%v after the start: %v, want %v", after, got, want)
				}
			}
		})
	}
}

// The worlds of the simulation begin without the election's Lease.
func TestNothingIsDecidedBesideAnEarlierTenure(t *testing.T) {
	var crew crew
	defer crew.end()
	const step = 10 * time.Millisecond
	for seed := uint64(1); seed <= 50; seed++ {
		w := newWorld(seed, nil, &crew)
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
				t.Fatalf("seed %d: %d records within %v of the start", seed, len(w.hub.records), elected.host.read(w.now).Boot-started.Boot)
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
