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

	"github.com/leasecast/leasecast/e2e/must/musttest"
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

// An elector of client-go, whose API server is as slow as it may be, works no longer than its stop time. A renew
// deadline bounds a renewal. An elector that has just taken its lock renews at once, and not after a retry period.
func TestElectorWorksNoLongerThanItsStopTime(t *testing.T) {
	const second, moment = time.Second, time.Millisecond // an answer comes just before the renew deadline
	runtime := Elector{15 * second, 10 * second, 2 * second, 5 * second, 0}
	runtimeReleases, example, exampleReleases := runtime, runtime, runtime
	runtimeReleases.Release = runtime.Renew
	example.Request = time.Minute
	exampleReleases.Request, exampleReleases.Release = time.Minute, runtime.Renew
	certManager := Elector{60 * second, 40 * second, 15 * second, 60 * second, 40 * second}
	for name, test := range map[string]struct {
		elector Elector
		answer  time.Duration
		grants  int
		works   time.Duration // after the last one
	}{
		"controller-runtime renews":                {runtime, 5 * second, 4, 17 * second},
		"controller-runtime has just taken it":     {runtime, 5 * second, 1, 15 * second},
		"controller-runtime renews and releases":   {runtimeReleases, 5 * second, 4, 27 * second},
		"without a timeout: renews":                {example, 10*second - moment, 4, 22*second - moment},
		"without a timeout: has just taken it":     {example, 60 * second, 1, 70 * second},
		"without a timeout: has taken, releases":   {exampleReleases, 60 * second, 1, 80 * second},
		"cert-manager has just taken it, releases": {certManager, 60 * second, 1, 140 * second},
		"cert-manager renews and releases":         {certManager, 40*second - moment, 4, 135*second - moment},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := test.elector
				lock := &slowLock{grants: test.grants, answer: test.answer, stored: &resourcelock.LeaderElectionRecord{}}
				var stopped time.Time
				elector := musttest.Get(leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
					Lock: lock, LeaseDuration: e.Lease, RenewDeadline: e.Renew, RetryPeriod: e.Retry, ReleaseOnCancel: e.Release > 0,
					Callbacks: leaderelection.LeaderCallbacks{
						OnStartedLeading: func(ctx context.Context) { <-ctx.Done(); stopped = time.Now() }, OnStoppedLeading: func() {},
					},
				}))(t)
				elector.Run(klog.NewContext(t.Context(), logr.Discard()))
				synctest.Wait()
				if works := stopped.Sub(lock.last); works != test.works || works > e.StopTime() {
					t.Errorf("it works for %v, want %v, and its stop time is %v", works, test.works, e.StopTime())
				}
			})
		})
	}
}
