package controller

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/ledger"
	"github.com/leasecast/leasecast/hub/seal"
)

// Rule 17: the record of shop names the policy shops.
func TestPolicyLosesNamespacesThatAnotherOneOwns(t *testing.T) {
	for name, test := range map[string]struct {
		policies []string // by age
		loses    string
	}{
		"the recorded owner loses nothing, and an older policy does": {[]string{"older", "shops"}, "older"},
		"so does a younger one":                               {[]string{"shops", "younger"}, "younger"},
		"the namespaces of a policy that is gone are unowned": {[]string{"older", "younger"}, ""},
		"one that was never valid":                            {[]string{"older!", "shops"}, "older!"},
	} {
		c, _, _ := newTestHub(t)
		ps := claims(test.policies...)
		for _, p := range ps {
			lost, loses := c.policies.lostNames(t.Context(), p, ps), p.Object.Name == test.loses
			if (len(lost) > 0) != loses || c.policies.lostItsNamespace(t.Context(), p, ps) != (loses && !p.Unknown) {
				t.Errorf("%s: %s has lost %q", name, p.Object.Name, lost)
			}
		}
	}
}

// Rule 17: a policy without effect has no fence in any member, also not where the owner's selector does not match.
func TestPolicyFencesNothingInAnyMemberWhileAnotherOneOwnsTheNamespace(t *testing.T) {
	type shown = map[string]map[string]corev1.Namespace // by member
	in := func(team string) map[string]corev1.Namespace {
		return map[string]corev1.Namespace{"shop": namespaceOf("shop", team)}
	}
	for name, test := range map[string]struct {
		shown   shown
		selects string // the team whose namespaces the other policy selects, if it does not name shop
		read    error  // of other members
		lost    []string
	}{
		"the owner selects it in another member only": {
			shown{"east": in("shop"), "west": in("")}, "", nil, []string{"shop"},
		},
		"the owner selects it in one that takes no part": {shown{"south": in("shop"), "west": in("")}, "", nil, nil},
		"another member is not read":                     {shown{"west": in("")}, "", errDisengaged, []string{"shop"}},
		"another member does not have it":                {shown{"west": in("")}, "", nil, nil},
		"only another member has it":                     {shown{"east": in("shop")}, "", nil, []string{"shop"}},
		"in no member any more: it is about to lose it":  {shown{"east": in(""), "west": in("")}, "", nil, nil},
		"both select it": {
			shown{"east": in("shop"), "west": in("shop")}, "shop", nil, []string{"shop"},
		},
		"the other selects it in another member": {shown{"east": in("shop"), "west": in("desk")}, "shop", nil, nil},
		"the other selects what is not there":    {shown{"east": in("shop")}, "shop", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c, s, _ := newTestHub(t)
			east, west := fleet.Member{Key: eastKey, Connected: true}, fleet.Member{Key: westKey, Connected: true}
			south := fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: "south"}, PriorityReason: reason.NoPriority}
			s.shown, s.space, s.spaces, s.refuses = []fleet.Member{east, west, south}, nil, test.shown, test.read
			owner, other := policyOf("fleet", "shops", "none"), policyOf("fleet", "younger", "shop")
			owner.Spec.Namespaces.Names = nil
			owner.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}}
			if test.selects != "" {
				other.Spec.Namespaces.Names = nil
				other.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": test.selects}}
			}
			ps := []*decide.Policy{decide.ParsePolicy(owner), decide.ParsePolicy(other)}
			if fenced := c.policies.lostItsNamespace(t.Context(), ps[1], ps); fenced != (test.selects == "") {
				t.Errorf("its lock is lost: %v, where any owner that selects by labels may own its namespace", fenced)
			}
			lost, err := c.policies.lostIn(t.Context(), ps[1], ps, west)
			if err != nil || !slices.Equal(lost, test.lost) {
				t.Errorf("in west it has lost %v, want %v (%v)", lost, test.lost, err)
			}
		})
	}
}

func TestBoundsInTheSealFallWhenNothingNeedsThem(t *testing.T) {
	slow := seal.Bounds{Duration: 60 * time.Second, Skew: 5 * time.Second, Stop: 155 * time.Second}
	now := seal.Bounds{Duration: 15 * time.Second, Skew: time.Second}
	var again time.Duration
	start := func(t *testing.T) (*Controller, func(after time.Duration) map[string]seal.Bounds) {
		t.Helper()
		c, _, _ := newTestHub(t)
		for _, name := range []string{"shops", "deleted"} {
			musttest.Do(t, c.Seals.Raise(t.Context(), "fleet", name, slow))
		}
		alone := c.Tenure.EarlierEndIn(testStart, slow.Skew)
		return c, func(after time.Duration) map[string]seal.Bounds {
			t.Helper()
			at := testStart
			at.Boot += alone + after
			c.Clock = fixedClock(at)
			policies, err := c.policies.valid(t.Context(), "fleet", c.source.Members("fleet"))
			if err == nil {
				again, err = c.seals.lower(t.Context(), "fleet", policies)
			}
			musttest.Do(t, err)
			s, err := c.Seals.Find(t.Context(), "fleet")
			musttest.Do(t, err)
			return s.Policies
		}
	}
	fallen := map[string]seal.Bounds{"shops": now}
	t.Run("not before what was promised has passed", func(t *testing.T) {
		c, at := start(t)
		at(0)
		if got := at(slow.Total() - 1); got["shops"] != slow || got["deleted"] != slow || again != 1 {
			t.Errorf("%v, again in %v", got, again)
		}
		api := c.Client.(testAPI)
		c.Client = failing(api, "list")
		if _, err := c.seals.lower(t.Context(), "fleet", nil); !errors.Is(err, errRefused) {
			t.Errorf("the records cannot be listed: %v", err)
		}
		c.Client = api
		if got := at(slow.Total()); !maps.Equal(got, fallen) {
			t.Errorf("then %v", got)
		}
	})
	t.Run("not before decisions that began with an older policy have ended", func(t *testing.T) {
		c, at := start(t)
		at(0)
		at(slow.Total())
		short := seal.Bounds{Duration: 20 * time.Second, Skew: time.Second}
		musttest.Do(t, c.Seals.Raise(t.Context(), "fleet", "shops", short))
		at(time.Hour)
		if got := at(time.Hour + 3*decideTimeout - 1); got["shops"] != short || again != 1 {
			t.Errorf("%v, again in %v", got, again)
		}
		if got := at(time.Hour + 3*decideTimeout); !maps.Equal(got, fallen) {
			t.Errorf("then %v", got)
		}
	})
	t.Run("not before what was promised before another edit has passed", func(t *testing.T) {
		c, at := start(t)
		at(0)
		changeStored(t, c.Client, policyOf("fleet", "shops", ""), func(p *v1alpha1.LeadershipPolicy) {
			p.Spec.Timings.LeaseDurationMilliseconds, p.Generation = 30_000, 2
		})
		if got := at(slow.Total()); got["shops"] != slow || again != slow.Total() {
			t.Errorf("%v, again in %v", got, again)
		}
	})
	t.Run("not before earlier tenures have ended", func(t *testing.T) {
		_, at := start(t)
		if at(-time.Second); again != time.Second {
			t.Errorf("again in %v", again)
		}
		if got := at(slow.Total() - time.Second); got["shops"] != slow || got["deleted"] != slow {
			t.Errorf("%v", got)
		}
	})
	t.Run("after a write that failed, too", func(t *testing.T) {
		c, at := start(t)
		api, refusal := c.Client.(testAPI), errRefused
		c.Seals = seal.NewStore(api, refusing(api, &refusal, "update"))
		at(0)
		at(slow.Total() - 1)
		later := c.Clock.Now()
		later.Boot++
		c.Clock = fixedClock(later)
		policies, err := c.policies.valid(t.Context(), "fleet", c.source.Members("fleet"))
		musttest.Do(t, err)
		if _, err := c.seals.lower(t.Context(), "fleet", policies); !errors.Is(err, errRefused) {
			t.Fatalf("the write did not fail: %v", err)
		}
		refusal = nil
		at(slow.Total())
		if s, err := seal.NewStore(api, api).Find(t.Context(), "fleet"); err != nil || !maps.Equal(s.Policies, fallen) {
			t.Errorf("the Secret holds %v (%v)", s.Policies, err)
		}
	})
	t.Run("not after a write that failed if they are needed again", func(t *testing.T) {
		c, at := start(t)
		at(0)
		api, refusal := c.Client.(testAPI), errRefused
		c.Seals = seal.NewStore(api, refusing(api, &refusal, "update"))
		policies, err := c.policies.valid(t.Context(), "fleet", c.source.Members("fleet"))
		musttest.Do(t, err)
		later := c.Clock.Now()
		later.Boot += slow.Total()
		c.Clock = fixedClock(later)
		if _, err := c.seals.lower(t.Context(), "fleet", policies); !errors.Is(err, errRefused) {
			t.Fatalf("the write did not fail: %v", err)
		}
		refusal = nil
		for _, name := range []string{"shops", "deleted"} {
			musttest.Do(t, c.Seals.Raise(t.Context(), "fleet", name, slow))
		}
		if got := at(slow.Total()); got["shops"] != slow || got["deleted"] != slow || again != slow.Total() {
			t.Errorf("%v, again in %v", got, again)
		}
	})
	t.Run("not while no valid version of a policy is known", func(t *testing.T) {
		c, at := start(t)
		invalid := policyOf("fleet", "deleted", "other")
		invalid.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "no value"}}
		musttest.Do(t, c.Client.Create(t.Context(), invalid))
		at(0)
		if got := at(time.Hour); got["shops"] != slow || got["deleted"] != slow {
			t.Errorf("%v", got)
		}
	})
	t.Run("counted anew when they were needed in between", func(t *testing.T) {
		c, at := start(t)
		at(0)
		musttest.Do(t, c.Seals.Raise(t.Context(), "fleet", "shops", seal.Bounds{Duration: 70 * time.Second}))
		raised := slow.Max(seal.Bounds{Duration: 70 * time.Second})
		if got := at(slow.Total()); got["shops"] != raised || again != raised.Total() {
			t.Errorf("%v, again in %v", got, again)
		}
	})
	t.Run("counted anew when records needed them in between", func(t *testing.T) {
		c, at := start(t)
		at(0)
		other := ledger.NewRecord(types.NamespacedName{Namespace: "fleet", Name: "other"})
		other.Spec.Policy = "deleted"
		musttest.Do(t, c.Client.Create(t.Context(), other))
		for _, promises := range []seal.Bounds{slow, {}} {
			for _, name := range []string{"shop", "other"} {
				changeStored(t, c.Client, recordOf("fleet", name), func(o *v1alpha1.NamespaceLeader) {
					o.Spec.LeaseDurationSeconds = int32(promises.Duration.Seconds())
					o.Spec.MaxClockSkewMilliseconds = int32(promises.Skew.Milliseconds())
					o.Spec.StopTimeSeconds = int32(promises.Stop.Seconds())
				})
			}
			if got := at(time.Hour); got["shops"] != slow || got["deleted"] != slow {
				t.Errorf("records promise %+v: %v", promises, got)
			}
		}
		if again != slow.Total() {
			t.Errorf("again in %v", again)
		}
	})
}

// A tenant with policies in one namespace of the hub reaches no Cluster of another one, whatever the policies say.
func TestPolicyNeverTouchesTheClustersOfAnotherNamespace(t *testing.T) {
	for of, leads := range map[string]bool{"fleet": true, "fleet2": false} { // the policy's namespace
		c, f, api := newTestHub(t)
		f.shown[0].Priority, f.verdict.Answering = 5, true
		east := c.members.of[eastKey].worker.Publisher()
		before := east.Queue.Len() // what was read there
		musttest.Do(t, api.Create(t.Context(), policyOf(of, "greedy", "till")))
		for range 3 {
			for _, key := range []types.NamespacedName{{Namespace: "fleet", Name: "till"}, {Namespace: "fleet2", Name: "till"}} {
				_ = musttest.Get(c.reconcileNamespace(t.Context(), requestOf(key)))(t)
			}
		}
		record, other := recordOf("fleet", "till"), recordOf("fleet2", "till")
		err := api.Get(t.Context(), client.ObjectKeyFromObject(record), record)
		if got := err == nil && record.Spec.Leader == "east"; got != leads {
			t.Errorf("of %s: east leads: %v (%+v, %v)", of, got, record.Spec, err)
		}
		if assigned := east.Queue.Len() > before; assigned != leads {
			t.Errorf("of %s: something is to be written into east: %v", of, assigned)
		}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(other), other); !apierrors.IsNotFound(err) {
			t.Errorf("of %s: a namespace without Clusters has a record: %+v, %v", of, other.Spec, err)
		}
		if c.ledger.Knows(client.ObjectKeyFromObject(other)) {
			t.Errorf("of %s: a namespace without Clusters is remembered", of)
		}
	}
}
