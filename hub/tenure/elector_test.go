package tenure_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/hub/tenure"
)

// hub is a process with client-go's elector.
type hub struct {
	*tenure.Tenure
	inner   *lock
	elector *leaderelection.LeaderElector
	stop    context.CancelFunc
	ended   chan struct{}

	mu     sync.Mutex
	silent bool
}

// start runs a hub. link is called before and after each request of its election.
func start(t *testing.T, s *store, identity string, link func(context.Context) error) *hub {
	t.Helper()
	x := &hub{Tenure: tenure.New(clocktest.NewBubble(lease.Reading{Wall: time.Now().Round(0)}), h),
		inner: s.lock(identity), ended: make(chan struct{})}
	x.inner.arrive = func(ctx context.Context) error {
		x.mu.Lock()
		silent := x.silent
		x.mu.Unlock()
		ctx, cancel := context.WithTimeout(ctx, 2*second)
		defer cancel()
		if silent {
			<-ctx.Done()
			return ctx.Err()
		}
		return link(ctx)
	}
	x.inner.leave = link
	var err error
	x.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: tenure.TakeOverPromptly(x.Lock(x.inner), clock.RealClock{}), LeaseDuration: h, RenewDeadline: 4 * second,
		RetryPeriod: second, ReleaseOnCancel: true, Name: "hub",
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
	x.stop = cancel
	go func() {
		defer close(x.ended)
		x.elector.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-x.ended
	})
	return x
}

func (x *hub) cutOff() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.silent = true
}

func direct(context.Context) error { return nil }

// until lets time pass until a condition holds, and calls see in the meantime.
func until(t *testing.T, limit time.Duration, is func() bool, see func()) {
	t.Helper()
	for end := time.Now().Add(limit); !is(); <-time.After(10 * time.Millisecond) {
		if see != nil {
			see()
		}
		if time.Now().After(end) {
			t.Fatalf("not within %v", limit)
		}
	}
}

func TestHubThatStopsIsFollowedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		a := start(t, s, "a", direct)
		until(t, 10*second, a.Holds, nil)
		b := start(t, s, "b", direct)
		<-time.After(h + second) // what was before a has ended
		stopped := time.Now()
		a.stop()
		until(t, 5*second, b.Holds, func() {
			if a.Holds() && time.Now().After(stopped) {
				t.Error("a may write after it was stopped")
			}
		})
		if _, inherited := b.Started(); inherited.Sub(stopped) > 10*time.Millisecond || inherited.Before(stopped) {
			t.Errorf("stopped at %v, inherited %v", stopped, inherited)
		}
	})
}

// Whatever happens to the requests of the election, a tenure inherits no less than the last instant at which an earlier
// one may have renewed, and no two hold at once. A seed draws the faults. The scheduler decides who is first at one
// instant, so a seed may have several histories.
func TestNoTwoTenuresAtOnce(t *testing.T) {
	const seeds = 40
	all := 0
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			var mu sync.Mutex
			roll := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return r.IntN(n)
			}
			link := func(ctx context.Context) error {
				wait := time.Duration(roll(300)) * time.Millisecond
				if roll(8) == 0 {
					wait = time.Minute
				}
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(wait):
					return nil
				}
			}
			s := &store{}
			hubs := []*hub{}
			add := func() {
				hubs = append(hubs, start(t, s, "hub-"+string(rune('a'+len(hubs))), link))
			}
			add()
			add()
			last := map[*hub]time.Time{}
			tenures := map[*hub]bool{}
			for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); <-time.After(20 * time.Millisecond) {
				holds := 0
				for _, x := range hubs {
					if !x.Holds() {
						continue
					}
					holds++
					last[x] = time.Now()
					if !tenures[x] {
						tenures[x] = true
						_, inherited := x.Started()
						for y, stamped := range last {
							if y != x && stamped.After(inherited) {
								t.Fatalf("seed %d: a tenure inherits %v, but an earlier one may have renewed at %v", seed, inherited, stamped)
							}
						}
					}
				}
				if holds > 1 {
					t.Fatalf("seed %d: %d hold at once", seed, holds)
				}
				switch roll(750) {
				case 0:
					hubs[roll(len(hubs))].stop()
					add()
				case 1:
					hubs[roll(len(hubs))].cutOff()
					add()
				}
			}
			all += len(tenures)
		})
	}
	if all < 3*seeds { // a seed may cut off all hubs early
		t.Errorf("only %d tenures in %d seeds", all, seeds)
	}
}
