package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/tenure"
)

// timedPolicy is a policy with a D in seconds and an ε.
func timedPolicy(name string, d int32, skew time.Duration) client.Object {
	p := policyOf("fleet", name, "shop")
	p.Spec.Timings.LeaseDurationMilliseconds, p.Spec.Timings.RenewIntervalMilliseconds = 1000*d, 250
	p.Spec.Timings.RequestTimeoutMilliseconds = 250
	p.Spec.Timings.MaxClockSkewMilliseconds = int32(skew / time.Millisecond)
	return p
}

// newClockedHub returns a Controller with policies. The clocks of its members are ahead of the hub's.
func newClockedHub(t *testing.T, ahead func() time.Duration, policies ...client.Object) *Controller {
	t.Helper()
	c := New(Options{Tenure: tenure.New(fixedClock{}, 6*time.Second)})
	c.Client = fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(policies...).Build()
	c.source = &fakeMembers{ahead: ahead}
	return c
}

func aheadBy(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

func TestTheLargestOfAllPoliciesCountsForTheHubsClock(t *testing.T) {
	policies := []client.Object{
		timedPolicy("a-long", 15, 250*time.Millisecond), timedPolicy("b-lax", 3, 2*time.Second),
		timedPolicy("c-short", 3, 250*time.Millisecond),
	}
	for name, test := range map[string]struct {
		policies []client.Object
		by       time.Duration
		want     bool
	}{
		"behind by the largest D":          {policies, 15 * time.Second, true},
		"behind by less":                   {policies, 15*time.Second - 1, false},
		"ahead by more than the largest ε": {policies, -2*time.Second - 1, true},
		"ahead by the largest ε":           {policies, -2 * time.Second, false},
		"there is no policy":               {nil, time.Hour, false},
	} {
		c := newClockedHub(t, aheadBy(test.by), test.policies...)
		if err := c.hubClock.contradicted(); err != nil {
			t.Errorf("%s, before any policy was seen: %v", name, err)
		}
		api := c.Client.(testAPI)
		c.Client = bounded(api)
		musttest.Do(t, c.hubClock.learn(t.Context()))
		c.Client = failing(api, "list")
		if err := c.hubClock.learn(t.Context()); err == nil { // what is known stays
			t.Errorf("%s: no error", name)
		}
		err := c.hubClock.contradicted()
		if (err != nil) != test.want || test.want && !strings.Contains(err.Error(), "set the clock of this machine right") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An elected replica gives up when two checks in a row, a second apart, have found its clock wrong. A standby stays.
func TestReplicaWhoseClockIsContradictedGivesUp(t *testing.T) {
	for name, test := range map[string]struct {
		elected bool
		wrong   []bool // at each check; the last one stays
		after   time.Duration
	}{
		"wrong from the start":   {true, []bool{true}, time.Second},
		"wrong later":            {true, []bool{false, true}, 2 * time.Second},
		"wrong, right and wrong": {true, []bool{true, false, true, false, true}, 5 * time.Second},
		"put right at once":      {true, []bool{false, true, false}, 0},
		"a standby":              {false, []bool{true}, 0},
	} {
		inBubble(t, name, func(t *testing.T) {
			start := time.Now()
			c := newClockedHub(t, func() time.Duration {
				if test.wrong[min(int(time.Since(start)/time.Second), len(test.wrong)-1)] {
					return time.Hour
				}
				return 0
			}, timedPolicy("p", 15, time.Second))
			if test.elected {
				c.Tenure = succeeding(t, testStart, 6*time.Second, -time.Hour)
			}
			if c.hubClock.NeedLeaderElection() {
				t.Error("a standby does not check its clock")
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := c.hubClock.Start(ctx)
			if test.after == 0 {
				if err != nil || ctx.Err() == nil {
					t.Errorf("it gives up: %v", err)
				}
				return
			}
			if took := time.Since(start); took != test.after || errors.Is(err, context.Canceled) ||
				!strings.Contains(err.Error(), "gives up its election: the clock of this hub is at least 1h0m0s behind") {
				t.Errorf("it gives up after %v, want %v: %v", took, test.after, err)
			}
		})
	}
}

// No cluster could lead by such a clock: another replica has to take the election.
func TestReplicaWithAWrongClockDoesNotCampaign(t *testing.T) {
	for by, takes := range map[time.Duration]bool{0: true, time.Hour: false} {
		c := newClockedHub(t, aheadBy(by), timedPolicy("p", 15, time.Second))
		c.Fleet = fleet.New(fleet.Options{})
		members, api := c.source, c.Client
		musttest.Do(t, c.SetupWithManager(&fakeManager{local: newFakeLocalManager(api)}))
		c.source = members
		musttest.Do(t, c.hubClock.learn(t.Context()))
		lock := c.Tenure.Lock(oneElection{})
		_, _, _ = lock.Get(t.Context())
		err := lock.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me",
			RenewTime: metav1.NewTime(testStart.Wall)})
		if (err == nil) != takes {
			t.Errorf("a clock that is %v behind: %v", by, err)
		}
	}
}
