package controller

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/skew"
)

// bounded answers while its caller waits for an answer, and only where there is an end to that.
type bounded struct{ client.Client }

func (b bounded) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	if _, ends := ctx.Deadline(); !ends {
		return errRefused
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return b.Client.List(ctx, l, opts...)
}

func (b bounded) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, ends := ctx.Deadline(); !ends {
		return errRefused
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return b.Client.Get(ctx, key, o, opts...)
}

// A member is probed as often as its policy wants it, and its clock is judged under the ε of the policy.
func TestAPolicyHasItsMembersProbed(t *testing.T) {
	asked := &outpost{spaces: []corev1.Namespace{spaceOf("shop", "")}}
	kubeconfig := asked.reached(t, "east")
	synctest.Test(t, func(t *testing.T) {
		p := policyOf("fleet", "shops", "shop")
		p.Spec.Timings.RenewIntervalMilliseconds, p.Spec.Timings.RequestTimeoutMilliseconds = 2000, 500
		m := newMusterBy(t, clocktest.NewBubble(musterStart), kubeconfig, pinned("east"), p)
		pass(3 * time.Second)
		m.status()
		pass(5 * time.Second)
		before := asked.read()
		pass(20 * time.Second)
		if n := asked.read() - before; n < 10 || n > 20 {
			t.Errorf("probed %d times in 20 s, want at least every 2 s, and not each second", n)
		}
		s, _ := m.status()
		if got := judged(s, v1alpha1.ConditionClocksAgree); got != "False ClockSkewed" {
			t.Errorf("a clock that is months off: %s (%s)", got,
				meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionClocksAgree).Message)
		}
		east := m.member("east")
		if m.source.clock(m.now(), east, time.Second).State != skew.Beyond ||
			m.source.clock(m.now(), east, time.Minute).State != skew.Unknown {
			t.Errorf("judged under 1 s: %v, under a minute: %v", m.source.clock(m.now(), east, time.Second),
				m.source.clock(m.now(), east, time.Minute))
		}
	})
}

// What cannot be listed is not known, and what was known stays.
func TestProbingStaysAsItIsWhenPoliciesCannotBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuster(t, policyOf("fleet", "shops", "shop"), clusterOf("fleet", "east", "5"))
		m.Client = failing{Client: m.api, list: errRefused}
		if err := m.policies.setProbing(t.Context(), "fleet"); err == nil {
			t.Error("no error")
		}
	})
}

// What the policies said last counts for the hub's clock, as long as they cannot be listed.
func TestTheLimitsOfTheHubsClockStayWhenPoliciesCannotBeListed(t *testing.T) {
	c := watching(t, aheadBy(3*time.Second), timings("p", 15, 5*time.Second))
	api := c.Client
	c.Client = bounded{api}
	if err := c.hubClock.learn(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Client = failing{Client: api, list: errRefused}
	if err := c.hubClock.learn(t.Context()); err == nil {
		t.Error("no error")
	}
	if l := c.hubClock.limits.Load(); l.skew != 5*time.Second || l.duration != 15*time.Second {
		t.Errorf("%+v", l)
	}
}

// An elected replica goes when two looks in a row have found its clock wrong, one second apart.
func TestWhenAReplicaWhoseClockIsWrongGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, test := range map[string]struct {
			wrong []bool // at each look
			goes  time.Duration
		}{
			"wrong from the start":   {[]bool{true, true, true, true}, time.Second},
			"wrong later":            {[]bool{false, true, true, true}, 2 * time.Second},
			"wrong, right and wrong": {[]bool{true, false, true, false, true, true}, 5 * time.Second},
		} {
			looks := &looks{start: time.Now(), wrong: test.wrong}
			c := watching(t, aheadBy(0), timings("p", 15, time.Second))
			c.source, c.Tenure = looks, succeeding(t, musterStart, 6*time.Second, -time.Hour)
			if c.hubClock.NeedLeaderElection() {
				t.Error("a standby does not look")
			}
			start := time.Now()
			if err := c.hubClock.Start(t.Context()); err == nil || time.Since(start) != test.goes {
				t.Errorf("%s: it goes after %v (%v), want %v", name, time.Since(start), err, test.goes)
			}
		}
	})
}

// looks are clocks that are right or wrong, look by look.
type looks struct {
	memberSource
	start time.Time
	wrong []bool
}

func (l *looks) offsets() map[fleet.Key]skew.Interval {
	by := time.Duration(0)
	if l.wrong[min(int(time.Since(l.start)/time.Second), len(l.wrong)-1)] {
		by = time.Hour
	}
	return map[fleet.Key]skew.Interval{eastKey: {Lo: by, Hi: by}, {Fleet: "fleet", Name: "west"}: {Lo: by, Hi: by}}
}
