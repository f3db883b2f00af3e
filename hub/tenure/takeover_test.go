package tenure_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"

	"github.com/leasecast/leasecast/hub/tenure"
)

// What is left between the last renewal of a Lease, which is up to r old when a hub is lost, and its deadline
// has to be enough for the successor's election and its first renewal: r + h + τ + ε ≤ D.
func TestALostHubIsFollowedWithinTheElectionAndASecond(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			s := &store{}
			a := start(t, s, "a", direct)
			until(t, 10*second, a.Holds, nil)
			b := start(t, s, "b", direct)
			<-time.After(10*second + time.Duration(rand.Int64N(int64(second))))
			a.cutOff()
			lost := s.get().RenewTime.Time
			until(t, 30*second, b.Holds, nil)
			if took := time.Since(lost); took > h+second+50*time.Millisecond {
				t.Errorf("b was elected %v after the last renewal of a", took)
			}
		})
	}
}

func TestPrompt(t *testing.T) {
	renewedAt := func(ago time.Duration, holder string) resourcelock.LeaderElectionRecord {
		r := claim(holder, 0)
		r.RenewTime.Time = time.Now().Add(-ago)
		return r
	}
	for name, test := range map[string]func(t *testing.T, s *store, look func(context.Context) (string, time.Duration)){
		"a tenure that goes on is shown at once": func(t *testing.T, s *store, look func(context.Context) (string, time.Duration)) {
			r := renewedAt(0, "a")
			s.put(&r)
			if holder, took := look(t.Context()); holder != "a" || took != 0 {
				t.Errorf("held by %q, after %v", holder, took)
			}
		},
		"its end is waited for when it is near": func(t *testing.T, s *store, look func(context.Context) (string, time.Duration)) {
			r := renewedAt(0, "a")
			s.put(&r)
			look(t.Context())
			<-time.After(h)
			if holder, took := look(t.Context()); holder != "" || took != second {
				t.Errorf("held by %q, after %v", holder, took)
			}
		},
		"a renewal that comes in the meantime is heeded": func(t *testing.T, s *store, look func(context.Context) (string, time.Duration)) {
			r := renewedAt(0, "a")
			s.put(&r)
			look(t.Context())
			<-time.After(h)
			go func() {
				<-time.After(second / 2)
				r := renewedAt(0, "a")
				s.put(&r)
			}()
			if holder, _ := look(t.Context()); holder != "a" {
				t.Errorf("held by %q", holder)
			}
		},
		"a hub that renews is not taken for lost because its clock is far behind": func(t *testing.T, s *store, look func(context.Context) (string, time.Duration)) {
			for range 20 {
				r := renewedAt(time.Hour, "a")
				s.put(&r)
				if holder, _ := look(t.Context()); holder != "a" {
					t.Fatalf("held by %q", holder)
				}
				<-time.After(second)
			}
		},
		"a renewal within the same second is one": func(t *testing.T, s *store, look func(context.Context) (string, time.Duration)) {
			r := renewedAt(time.Hour, "a")
			s.put(&r)
			look(t.Context())
			<-time.After(h/2 - second/10)
			r.RenewTime.Time = r.RenewTime.Add(second / 2)
			s.put(&r)
			if holder, took := look(t.Context()); holder != "a" || took != 0 {
				t.Errorf("held by %q, after %v", holder, took)
			}
		},
		"nobody waits longer than the caller": func(t *testing.T, s *store, look func(context.Context) (string, time.Duration)) {
			r := renewedAt(0, "a")
			s.put(&r)
			look(t.Context())
			<-time.After(h)
			ctx, cancel := context.WithTimeout(t.Context(), second/2)
			defer cancel()
			if holder, took := look(ctx); holder != "a" || took != second/2 {
				t.Errorf("held by %q, after %v", holder, took)
			}
		},
		"one's own tenure is shown as it is, even when it is over": func(t *testing.T, s *store, look func(context.Context) (string, time.Duration)) {
			r := renewedAt(time.Hour, "b")
			s.put(&r)
			if holder, took := look(t.Context()); holder != "b" || took != 0 {
				t.Errorf("held by %q, after %v", holder, took)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &store{}
				p := tenure.TakeOverPromptly(s.lock("b"), clock.RealClock{})
				test(t, s, func(ctx context.Context) (string, time.Duration) {
					began := time.Now()
					r, _, err := p.Get(ctx)
					if err != nil {
						t.Fatal(err)
					}
					return r.HolderIdentity, time.Since(began)
				})
			})
		})
	}
}
