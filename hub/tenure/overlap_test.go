package tenure_test

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

// succeeding is a tenure of h that begins at start, after one whose Lease says this.
func succeeding(t *testing.T, start lease.Reading, h time.Duration, said resourcelock.LeaderElectionRecord) *tenure.Tenure {
	t.Helper()
	next := tenure.New(fixedClock(start), h)
	lock := next.Lock(oneLease{said: said})
	if _, _, err := lock.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := lock.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me", RenewTime: metav1.NewTime(start.Wall)}); err != nil {
		t.Fatal(err)
	}
	return next
}

// Two tenures are never at work at once: a new one waits until the earlier one has ended by its own clock, which may be
// behind, and where the election's Lease does not tell when that is, until it must have, by clocks of which one is fast
// and one is slow. What somebody wrote into that
// Lease does not hold it up for longer. A write of the earlier one may arrive until it can no longer have been elected.
func TestATenureWaitsForTheEndOfEarlierOnes(t *testing.T) {
	const h, skew, drift = 6 * time.Second, time.Second, 600 * time.Millisecond
	start := lease.Reading{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Boot: time.Hour}
	for name, tc := range map[string]struct {
		renewed time.Duration // of the predecessor, from the start of this tenure
		lasts   time.Duration
		release bool
		overlap time.Duration
		settles time.Duration
	}{
		"the predecessor's time is over by any clock":  {-h - skew, h, false, 0, h + drift},
		"it may not be over by its own clock":          {-h, h, false, skew, h + drift},
		"it was over long ago":                         {-time.Hour, h, false, 0, h + drift},
		"it has a second left, by its clock":           {-h + time.Second, h, false, time.Second + skew, h + drift},
		"it was renewed just now":                      {0, h, false, h + drift, h + drift},
		"its renewTime is ahead of this clock":         {time.Second, h, false, h + drift, h + drift},
		"somebody gave it a year":                      {-time.Hour, 365 * 24 * time.Hour, false, h + drift, h + drift},
		"somebody gave it no time, and h is right":     {-2 * time.Second, time.Second, false, h - time.Second, h + drift},
		"it was of a build with a longer election":     {-time.Second, 20 * time.Second, false, 20 * time.Second, 21 * time.Second},
		"it ended in order":                            {-time.Millisecond, time.Second, true, 0, h + drift},
		"it ended in order, by a clock that was ahead": {time.Second, time.Second, true, h + drift, h + drift},
	} {
		t.Run(name, func(t *testing.T) {
			said := resourcelock.LeaderElectionRecord{
				HolderIdentity: "other", LeaseDurationSeconds: int(tc.lasts / time.Second), LeaderTransitions: 1,
				AcquireTime: metav1.NewTime(start.Wall.Add(-2 * time.Hour)), RenewTime: metav1.NewTime(start.Wall.Add(tc.renewed)),
			}
			if tc.release {
				said.HolderIdentity, said.AcquireTime = "", metav1.NewTime(said.RenewTime.Add(time.Microsecond))
			}
			next := succeeding(t, start, h, said)
			reading := func(after time.Duration) lease.Reading {
				return lease.Reading{Wall: start.Wall.Add(after), Boot: start.Boot + after}
			}
			for after, want := range map[time.Duration]time.Duration{0: tc.overlap, tc.overlap: 0, time.Hour: 0} {
				if got := next.Overlap(reading(after), skew); got != want {
					t.Errorf("%v after the start they overlap for %v, want %v", after, got, want)
				}
			}
			// A wall clock that was stepped since ends no wait early, and makes none longer than an election.
			for step, want := range map[time.Duration]time.Duration{time.Hour: tc.overlap, -time.Hour: tc.settles} {
				at := lease.Reading{Wall: start.Wall.Add(step), Boot: start.Boot}
				if got := next.Overlap(at, skew); got != want {
					t.Errorf("with a wall clock that was stepped by %v they overlap for %v, want %v", step, got, want)
				}
			}
			for after, want := range map[time.Duration]time.Duration{0: tc.settles, tc.settles - 1: 1, tc.settles: 0, time.Hour: 0} {
				if got := next.EarlierEndIn(reading(after), skew); got != want {
					t.Errorf("%v after the start it settles in %v, want %v", after, got, want)
				}
			}
		})
	}
}
