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

// slowLock is a lock behind a fence: it is granted some times, and released at any time. The API server decides at
// once, and every answer takes as long as it may.
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

// A stop time is no guess: an elector of client-go, whose API server is as slow as it may be, works no longer. It works
// as long as that, but for what the row names.
func TestElectorWorksNoLongerThanItsStopTime(t *testing.T) {
	const moment = time.Millisecond // an answer comes just before the renew deadline
	runtime := Elector{15 * time.Second, 10 * time.Second, 2 * time.Second, 5 * time.Second, 0}
	runtimeReleases, example, exampleReleases := runtime, runtime, runtime
	runtimeReleases.Release = runtime.Renew
	example.Request = time.Minute
	exampleReleases.Request, exampleReleases.Release = time.Minute, runtime.Renew
	certManager := Elector{60 * time.Second, 40 * time.Second, 15 * time.Second, 60 * time.Second, 40 * time.Second}
	for name, test := range map[string]struct {
		elector Elector
		answer  time.Duration
		grants  int
		works   time.Duration // after the last one
	}{
		"a client with half of the renew deadline renews":                     {runtime, 5 * time.Second, 4, 17 * time.Second},
		"it has just taken its lock: no retry period":                         {runtime, 5 * time.Second, 1, 15 * time.Second},
		"it renews, and releases its lock":                                    {runtimeReleases, 5 * time.Second, 4, 27 * time.Second},
		"a client without a timeout renews: the renew deadline bounds that":   {example, 10*time.Second - moment, 4, 22*time.Second - moment},
		"a client without a timeout takes its lock: no retry period":          {example, 60 * time.Second, 1, 70 * time.Second},
		"a client without a timeout takes its lock, and releases it":          {exampleReleases, 60 * time.Second, 1, 80 * time.Second},
		"cert-manager's takes its lock, and releases it: no retry period":     {certManager, 60 * time.Second, 1, 140 * time.Second},
		"cert-manager's renews, and releases: the renew deadline bounds that": {certManager, 40*time.Second - moment, 4, 135*time.Second - moment},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := test.elector
				lock := &slowLock{grants: test.grants, answer: test.answer, stored: &resourcelock.LeaderElectionRecord{}}
				var stopped time.Time
				elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
					Lock: lock, LeaseDuration: e.Lease, RenewDeadline: e.Renew, RetryPeriod: e.Retry, ReleaseOnCancel: e.Release > 0,
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
