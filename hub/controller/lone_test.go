package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/fairqueue"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/ledger"
)

// makes has a member show a namespace that was made so many seconds after the first one.
func (f *fakeMembers) makes(member, name, team string, second int) *corev1.Namespace {
	ns := namespaceOf(name, team)
	ns.CreationTimestamp = metav1.NewTime(testStart.Wall.Add(time.Duration(second) * time.Second))
	f.spaces[member][name] = ns
	return &ns
}

// showing is a Controller with two policies, shops and desks, which select namespaces by the label team, and with the
// members east, west and far. A fourth one, aside, takes no part.
func showing(t *testing.T, clock lease.Clock) (*Controller, *fakeMembers) {
	t.Helper()
	c, f, api := newTestHub(t)
	c.Clock = clock
	musttest.Do(t, api.Delete(t.Context(), ledger.NewRecord(shop)))
	changeStored(t, api, sealOf("fleet"), func(s *corev1.Secret) { // as the policies
		s.Data["policies"] = boundsOf("15s", "1s", "0s", "shops", "desks")
	})
	for _, name := range []string{"shops", "desks"} {
		p := policyOf("fleet", name, "named-in-"+name)
		p.UID = types.UID(name)
		p.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": name}}
		_ = api.Delete(t.Context(), policyOf("fleet", name, ""))
		musttest.Do(t, api.Create(t.Context(), p))
	}
	f.shown, f.space, f.spaces, f.offset = nil, nil, map[string]map[string]corev1.Namespace{}, agrees
	for i, name := range []string{"aside", "east", "far", "west"} {
		m := fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: name}, Connected: true, Priority: int32(i),
			Labels: map[string]string{v1alpha1.PriorityLabel: "5"}}
		if name == "aside" {
			m.PriorityReason = reason.NoPriority
		}
		f.shown, f.spaces[name] = append(f.shown, m), map[string]corev1.Namespace{}
		c.members.of[m.Key] = atWork(publisherThatRead(t, testStart.Wall, testKey, eastLease(0)))
	}
	for _, q := range []*queue{&c.recordQueue, &c.policyQueue} {
		q.q = fairqueue.New(c.lone.laneOf)("", workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
		t.Cleanup(q.q.ShutDown)
	}
	return c, f
}

// stores stores the record of a namespace for policy shops, and has the watch show it.
func stores(t *testing.T, c *Controller, name string) {
	t.Helper()
	o := ledger.NewRecord(types.NamespacedName{Namespace: "fleet", Name: name})
	o.Spec.Policy, o.Spec.State = "shops", v1alpha1.StateVacant
	musttest.Do(t, c.Client.Create(t.Context(), o))
	c.ledger.Show(o, false)
}

// managedAll are the namespaces of the fleet that are decided on.
func managedAll(t *testing.T, c *Controller) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, key := range c.sources.namespacesOf(t.Context(), "fleet") {
		names[key.Name] = true
	}
	return names
}

func conditionOf(t *testing.T, c *Controller) (metav1.Condition, time.Duration) {
	t.Helper()
	policies, err := c.policies.valid(t.Context(), "fleet", c.source.Members("fleet"))
	musttest.Do(t, err)
	i := slices.IndexFunc(policies, func(p *decide.Policy) bool { return p.Object.Name == "shops" })
	return c.lone.allManaged(t.Context(), policies[i])
}

func TestPolicyManagesABoundedNumberOfLoneNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := showing(t, clocktest.NewBubble(testStart))
		if cond, again := conditionOf(t, c); cond.Status != metav1.ConditionTrue || again != 0 {
			t.Errorf("nothing is left out: %+v, again after %v", cond, again)
		}
		for i := range maxLone + 100 {
			s.makes("far", fmt.Sprintf("lone-%03d", i), "shops", i/2) // two at a time
		}
		for _, name := range []string{"shared", "both"} {
			s.makes("far", name, "shops", 9999)
			s.makes("west", name, "shops", 9999)
		}
		s.makes("far", "named-in-shops", "shops", 9999)
		for _, name := range []string{"shared", "named-in-shops"} { // their records take no place
			stores(t, c, name)
		}
		s.makes("far", "other", "desks", 9999)
		s.makes("far", "nobodys", "", 9999)
		s.makes("aside", "aside", "shops", -1) // no policy speaks of that member
		s.makes("aside", "lone-599", "shops", -1)
		stores(t, c, "lone-590")
		claimed(t, c, "lone-591", "shops") // the cache does not show its record yet
		written := eastLease(20)
		written.Namespace = "lone-592" // its record may be lost
		c.members.of[eastKey] = atWork(publisherThatRead(t, testStart.Wall, testKey, written))

		claims := func(name string) bool {
			v, err := c.gather(t.Context(), types.NamespacedName{Namespace: "fleet", Name: name})
			musttest.Do(t, err)
			return v.Policy != nil
		}
		got := managedAll(t, c)
		for name, want := range map[string]bool{
			"lone-000": true, "lone-496": true, "lone-497": false, "lone-599": false, // the oldest
			"lone-590": true, "lone-591": true, "lone-592": true, // what the policy owns
			"shared": true, "both": true, "named-in-shops": true, "other": true, "nobodys": false, "aside": false,
		} {
			if got[name] != want {
				t.Errorf("%s is decided on: %v", name, got[name])
			}
			if claimed := claims(name); claimed != want {
				t.Errorf("%s is claimed: %v", name, claimed)
			}
		}
		cond, again := conditionOf(t, c)
		if cond.Status != metav1.ConditionFalse || cond.Reason != "TooManyNamespaces" ||
			!strings.Contains(cond.Message, "not managed: 100 in far; at most 500 ") {
			t.Errorf("the policy says %+v", cond)
		}

		s.makes("aside", "beside", "shops", 9999)
		s.makes("west", "twice", "shops", 9999)
		s.makes("far", "one-more", "shops", 9999)
		s.makes("west", "one-more", "", 9999) // there it does not match
		for _, test := range []struct {
			name, team, member string
			want               bool
		}{
			{"one-more-desk", "desks", "aside", false}, {"one-more-desk", "desks", "far", true},
			{"one-more", "shops", "far", false}, {"beside", "shops", "far", false}, {"twice", "shops", "far", true},
			{"named-in-shops", "", "far", true},
		} {
			key, in := types.NamespacedName{Namespace: "fleet", Name: test.name}, fleet.Key{Fleet: "fleet", Name: test.member}
			if got := c.sources.isManaged(t.Context(), key, map[string]string{"team": test.team}, in); got != test.want {
				t.Errorf("the new namespace %s in %s is managed: %v", test.name, test.member, got)
			}
		}
		ofGone := recordOf("fleet", "of-gone")
		ofGone.Spec.Policy = "gone"
		c.ledger.Show(ofGone, false)
		for name, want := range map[string]string{ // the fleet, the policy and the member; whether it has a record
			"fleet/lone-000": "{fleet shops far} false", "fleet2/lone-000": "{fleet2  } false",
			"fleet/one-more-desk": "{fleet desks far} false", "fleet/lone-590": "{fleet shops far} true",
			"fleet/shared": "{fleet shops } true", "fleet/of-gone": "{fleet gone } true",
		} {
			fleetName, namespace, _ := strings.Cut(name, "/")
			got := fmt.Sprint(c.lone.laneOf(types.NamespacedName{Namespace: fleetName, Name: namespace}))
			if got != want {
				t.Errorf("%s waits in %s, want %s", name, got, want)
			}
		}

		// Room goes to the oldest that was left out.
		asked(&c.recordQueue)
		for gone, next := range []string{"lone-497", "lone-498"} {
			delete(s.spaces["far"], fmt.Sprintf("lone-%03d", gone))
			conditionOf(t, c)
			if got := asked(&c.recordQueue); len(got) > 0 {
				t.Errorf("the namespaces are counted again within %v: %q", again, got)
			}
			pass(again)
			conditionOf(t, c)
			if got := asked(&c.recordQueue); !slices.Contains(got, "fleet/"+next) || slices.Contains(got, "fleet/lone-499") {
				t.Errorf("the room that is left is not given to the oldest, %s", next)
			}
		}
		delete(s.spaces["far"], "lone-002")
		if !claims("lone-003") || claims("lone-499") {
			t.Error("each decision counts the namespaces again")
		}
		if pass(again); !claims("lone-499") {
			t.Errorf("a decision counts on what was counted %v before", again)
		}
		if delete(s.spaces["west"], "shared"); !claims("shared") {
			t.Error("a namespace with a record that is in one cluster only now loses its policy")
		}
		c.members.of[eastKey] = &memberState{}
		if s.makes("east", "lone-598", "shops", 9999); claims("lone-598") {
			t.Error("a cluster that was not read yet counts")
		}
		// Where another cluster has it, too, it is none of those.
		if s.makes("east", "lone-599", "shops", 9999); !managedAll(t, c)["lone-599"] {
			t.Error("a namespace in two clusters is left out")
		}
	})
}

func TestPolicyWithAnotherSelectorHasRoomForNamespaces(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.LeadershipPolicy){
		"it was created again": func(p *v1alpha1.LeadershipPolicy) { p.UID = "again" },
		"it was edited":        func(p *v1alpha1.LeadershipPolicy) { p.Generation++ },
	} {
		inBubble(t, name, func(t *testing.T) {
			c, s := showing(t, clocktest.NewBubble(testStart))
			for i := range maxLone {
				s.makes("far", fmt.Sprintf("lone-%03d", i), "shops", i)
			}
			if got := managedAll(t, c); len(got) != maxLone+1 { // and shop, which has a Lease
				t.Errorf("%d of %d are managed", len(got), maxLone+1)
			}
			changeStored(t, c.Client, policyOf("fleet", "shops", ""), func(p *v1alpha1.LeadershipPolicy) {
				p.Spec.Namespaces.Selector.MatchLabels["team"] = "tills"
				change(p)
			})
			if s.makes("far", "till", "tills", 9999); !managedAll(t, c)["till"] {
				t.Error("the namespaces that the policy managed before leave no room")
			}
		})
	}
}

func TestConditionNamesTheFirstNamespaceThatIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := showing(t, clocktest.NewBubble(testStart))
		for i := range maxLone + 1 {
			s.makes("far", fmt.Sprintf("lone-%03d", i), "shops", i)
			if i < maxLone-2 {
				continue
			}
			managedAll(t, c)
			if got := asked(&c.policyQueue); len(got) > 0 {
				t.Errorf("policies are asked for at once: %q", got)
			}
			cond, _ := conditionOf(t, c)
			counted := len(asked(&c.recordQueue)) > 0
			pass(time.Second)
			policies := asked(&c.policyQueue)
			if fits := i < maxLone; (cond.Status == metav1.ConditionTrue) != fits || counted == fits ||
				slices.Equal(policies, []string{"fleet/shops"}) == fits {
				t.Errorf("of %d: %+v, counted again: %v, policies are asked for: %q", i+1, cond, counted, policies)
			}
		}
	})
}
