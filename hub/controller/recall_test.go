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
			c := &Controller{Options: Options{Tenure: tenure.New(fixedClock(start), h)}}
			lock := c.Tenure.Lock(oneLease{said: resourcelock.LeaderElectionRecord{
				HolderIdentity: "other", LeaseDurationSeconds: int(h / time.Second), LeaderTransitions: 1,
				AcquireTime: metav1.NewTime(start.Wall.Add(-2 * time.Hour)), RenewTime: metav1.NewTime(start.Wall.Add(tc.renewed)),
			}})
			if _, _, err := lock.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := lock.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me", RenewTime: metav1.NewTime(start.Wall)}); err != nil {
				t.Fatal(err)
			}
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
