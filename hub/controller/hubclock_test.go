package controller

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/skew"
	"github.com/leasecast/leasecast/hub/tenure"
)

// ahead are two clusters whose clocks are that far ahead of the hub's.
type ahead struct {
	memberSource
	by atomic.Int64
}

func aheadBy(by time.Duration) *ahead {
	a := &ahead{}
	a.by.Store(int64(by))
	return a
}

func (a *ahead) offsets() map[fleet.Key]skew.Interval {
	by := time.Duration(a.by.Load())
	return map[fleet.Key]skew.Interval{
		{Fleet: "fleet", Name: "east"}: {Lo: by, Hi: by}, {Fleet: "fleet", Name: "west"}: {Lo: by, Hi: by},
	}
}

func timings(name string, d int32, skew time.Duration) client.Object {
	return &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name},
		Spec: v1alpha1.LeadershipPolicySpec{
			Timings: v1alpha1.Timings{
				LeaseDurationMilliseconds: 1000 * d, RenewIntervalMilliseconds: 250,
				RequestTimeoutMilliseconds: 250, MaxClockSkewMilliseconds: int32(skew / time.Millisecond),
			},
		}}
}

// watching is a controller that sees such clocks, and these policies.
func watching(t *testing.T, clocks *ahead, policies ...client.Object) *Controller {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := New(Options{Tenure: tenure.New(fixedClock{}, 6*time.Second)})
	c.Client, c.source = fake.NewClientBuilder().WithScheme(scheme).WithObjects(policies...).Build(), clocks
	return c
}

func TestTheLargestOfAllPoliciesCountsForTheHubsClock(t *testing.T) {
	policies := []client.Object{
		timings("a-long", 15, 250*time.Millisecond), timings("b-lax", 3, 2*time.Second),
		timings("c-short", 3, 250*time.Millisecond),
		timings("d-invalid", 3, time.Hour),
	}
	for name, tc := range map[string]struct {
		policies []client.Object
		by       time.Duration
		want     bool
	}{
		"behind by the largest D":          {policies, 15 * time.Second, true},
		"behind by less":                   {policies, 15*time.Second - 1, false},
		"ahead by more than the largest ε": {policies, -2*time.Second - 1, true},
		"ahead by the largest ε":           {policies, -2 * time.Second, false},
		"no policy that is valid":          {policies[3:], time.Hour, false},
		"right":                            {policies, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := watching(t, aheadBy(tc.by), tc.policies...)
			if err := c.hubClock.contradicted(); err != nil {
				t.Errorf("before any policy was seen: %v", err)
			}
			if err := c.hubClock.learn(t.Context()); err != nil {
				t.Fatal(err)
			}
			err := c.hubClock.contradicted()
			if (err != nil) != tc.want || tc.want && !strings.Contains(err.Error(), "set the clock of this machine right") {
				t.Errorf("%v", err)
			}
		})
	}
}

// An elected replica with a wrong clock goes; one that never was elected stays, and so does one whose clock was put
// right at once.
func TestAReplicaWhoseClockIsContradictedGoes(t *testing.T) {
	for name, tc := range map[string]struct {
		elected bool
		wrong   time.Duration // for how long
		goes    bool
	}{
		"an elected one":                   {true, time.Hour, true},
		"one whose clock was put right":    {true, clockEvery / 2, false},
		"a standby":                        {false, time.Hour, false},
		"one whose clock was always right": {true, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clocks := aheadBy(0)
				c := watching(t, clocks, timings("p", 15, time.Second))
				if tc.elected {
					start := lease.Reading{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Boot: time.Hour}
					c.Tenure = succeeding(t, start, 6*time.Second, -time.Hour)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- c.hubClock.Start(ctx) }()
				<-time.After(10*clockEvery + clockEvery*3/4)
				synctest.Wait()
				if tc.wrong > 0 {
					clocks.by.Store(int64(time.Hour))
				}
				<-time.After(tc.wrong)
				synctest.Wait()
				clocks.by.Store(0)
				<-time.After(10 * clockEvery)
				cancel()
				err := <-ended
				if (err != nil) != tc.goes || errors.Is(err, context.Canceled) {
					t.Fatalf("it ended with %v", err)
				}
				if tc.goes && !strings.Contains(err.Error(), "gives up its election: the clock of this hub is at least 1h0m0s "+
					"behind") {
					t.Errorf("it does not say why: %v", err)
				}
			})
		})
	}
}
