package locks

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

var errRefused = errors.New("refused")

// slowLock is a lock behind a fence: it is granted some times, and released at any time. The API server decides at once,
// and every answer takes as long as a request may.
type slowLock struct {
	resourcelock.Interface
	grants int // that are left
	answer time.Duration
	stored *resourcelock.LeaderElectionRecord
	last   time.Time // when it was granted last
}

func (l *slowLock) Identity() string   { return "a" }
func (l *slowLock) Describe() string   { return "lock" }
func (l *slowLock) RecordEvent(string) {}

func (l *slowLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err := l.answers(ctx); err != nil {
		return nil, nil, err
	}
	return l.stored, []byte(l.stored.RenewTime.String()), nil
}

func (l *slowLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	released, granted := r.HolderIdentity == "", l.grants > 0
	if granted && !released {
		l.grants, l.last = l.grants-1, time.Now()
	}
	if granted || released {
		l.stored = &r
	}
	if err := l.answers(ctx); err != nil || granted || released {
		return err
	}
	return errRefused
}

func (l *slowLock) answers(ctx context.Context) error {
	select {
	case <-time.After(l.answer):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// The stop time is no guess: an elector of client-go, whose API server is as slow as it may be, works that long.
func TestAnElectorWorksNoLongerThanItsStopTime(t *testing.T) {
	unbounded, releasing := Elector{Lease: 60 * time.Second, Renew: 40 * time.Second, Retry: 15 * time.Second, Request: 60 * time.Second}, usual
	releasing.Releases = true
	for name, test := range map[string]struct {
		elector Elector
		grants  int
		works   time.Duration // after the last one
	}{
		"one that renews":                             {usual, 4, 17 * time.Second},
		"one that has just taken its lock":            {usual, 1, 15 * time.Second},
		"one that renews, and releases its lock":      {releasing, 4, 27 * time.Second},
		"a client without a timeout takes its lock":   {unbounded, 1, 100 * time.Second},
		"one of Flux renews, and releases its lock":   {flux, 4, 80 * time.Second},
		"cert-manager's takes its lock, and releases": {wellKnown["cert-manager"].Elector, 1, 140 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := test.elector
				lock := &slowLock{grants: test.grants, answer: e.Renew / 2, stored: &resourcelock.LeaderElectionRecord{}}
				if e.Request > 0 {
					lock.answer = e.Request
				}
				var stopped time.Time
				elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
					Lock: lock, LeaseDuration: e.Lease, RenewDeadline: e.Renew, RetryPeriod: e.Retry, ReleaseOnCancel: e.Releases,
					Callbacks: leaderelection.LeaderCallbacks{
						OnStartedLeading: func(ctx context.Context) { <-ctx.Done(); stopped = time.Now() }, OnStoppedLeading: func() {},
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				elector.Run(klog.NewContext(t.Context(), logr.Discard()))
				synctest.Wait()
				if works := stopped.Sub(lock.last); works != test.works || works > e.StopTime() {
					t.Errorf("it works for %v, want %v, and its stop time is %v", works, test.works, e.StopTime())
				}
			})
		})
	}
}
