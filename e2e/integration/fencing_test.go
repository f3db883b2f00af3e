package integration

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// fencing fences what the account "checkout" of a namespace writes, and the Jobs with a label.
var fencing = v1alpha1.Fencing{
	Writes: []v1alpha1.WriteFence{{
		ServiceAccounts: []v1alpha1.FencedServiceAccount{{Name: "checkout"}},
		Resources:       []v1alpha1.FencedResources{{Names: []string{"configmaps"}}},
	}},
	Schedules: &metav1.LabelSelector{MatchLabels: map[string]string{"run": "once"}},
}

// act is one that an API server has let through: when, by its own clock.
type act struct {
	by string
	at time.Time
}

// unaware runs a program in each member that knows nothing of Leases: it creates ConfigMaps all the time. What was let
// through is reported in order.
func (w *world) unaware(namespace string, members ...string) (acts func() []act) {
	ctx, cancel := context.WithCancel(w.T.Context())
	var group sync.WaitGroup
	w.T.Cleanup(func() { cancel(); group.Wait() })
	var mu sync.Mutex
	var done []act
	for _, m := range members {
		all := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}}}
		cfg := musttest.Get(w.Servers.Member(m).ServiceAccountConfig(w.T.Context(), namespace, "checkout", all))(w.T)
		c := musttest.Get(client.New(cfg, client.Options{}))(w.T)
		group.Go(func() {
			wait.UntilWithContext(ctx, func(ctx context.Context) {
				o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "act-"}}
				if c.Create(ctx, o) == nil {
					mu.Lock()
					done = append(done, act{m, o.CreationTimestamp.Time})
					mu.Unlock()
				}
			}, 50*time.Millisecond)
		})
	}
	return func() []act {
		mu.Lock()
		defer mu.Unlock()
		return append([]act(nil), done...)
	}
}

// actsIn waits until the latest acts are those of a member.
func (w *world) actsIn(member string, acts func() []act) {
	seen := len(acts())
	w.Eventually("what is fenced acts in "+member, soon, func() error {
		all := acts()
		return must.ErrorIf(len(all) == seen || all[len(all)-1].by != member, "%d acts more", len(all)-seen)
	})
}

// fenced is a world in which east leads namespace a of all members. Programs that know nothing of Leases act in all of
// them.
func fenced(t *testing.T, timings v1alpha1.Timings) (w *world, a string, acts func() []act) {
	w = newWorld(t, timings, three)
	w.allow("fencing", all...)
	a = w.namespace("a", all...)
	p := w.NewPolicy("p", a)
	p.Spec.Fencing = fencing.DeepCopy()
	w.Must(w.Hub.Create(t.Context(), p))
	w.startHub()
	w.Leads("east", a, firstElection, all...)
	w.awaitPolicy("p", v1alpha1.ConditionFencesInForce, metav1.ConditionTrue, "InForce")
	acts = w.unaware(a, all...)
	w.actsIn("east", acts)
	return w, a, acts
}

func TestProgramsThatKnowNothingOfLeasesActInTheLeaderOnly(t *testing.T) {
	t.Parallel()
	w, a, acts := fenced(t, brief)

	// The hub loses the leader, whose programs go on and are not stopped by anybody.
	w.Servers.Member("east").Proxy().BlackHole()
	w.Leads("west", a, w.lost(), "west", "south")
	w.actsIn("west", acts)
	w.Servers.Member("east").Proxy().Heal()
	w.awaitEligible("east", a)
	w.setPriority("east", "1000")
	w.Leads("east", a, w.ordered(), all...)
	w.actsIn("east", acts)

	var last act
	changes := 0
	for i, x := range acts() {
		if i > 0 && x.by != last.by {
			changes++
			if !x.at.After(last.at) {
				t.Errorf("%s acted at %v, and %s at %v", last.by, last.at, x.by, x.at)
			}
		}
		last = x
	}
	if changes != 2 {
		t.Errorf("there were %d changes of who acts, want 2: %v", changes, acts())
	}
}

// What is fenced before and after an edit is fenced at every moment in between. Programs in followers try all the time.
func TestAnEditOfAFenceLetsNothingThrough(t *testing.T) {
	t.Parallel()
	w, a, acts := fenced(t, steady)
	b := w.namespace("b", all...)
	for _, m := range all[1:] {
		w.Servers.Member(m).Proxy().Delay(50 * time.Millisecond) // so that two writes there are some time apart
	}
	for _, m := range all {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a}}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"`+a+`"}}}`))
		w.Must(w.Members[m].Patch(t.Context(), ns, patch))
	}
	team := &metav1.LabelSelector{MatchLabels: map[string]string{"team": a}}
	both := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "team", Operator: metav1.LabelSelectorOpIn, Values: []string{a, b}},
	}}
	type spec = v1alpha1.LeadershipPolicySpec
	for _, edit := range []struct {
		what string
		of   func(s *spec)
	}{
		{
			what: "a namespace is selected instead of named",
			of:   func(s *spec) { s.Namespaces = v1alpha1.NamespaceSelection{Selector: team} },
		},
		{"it is selected by other labels", func(s *spec) { s.Namespaces.Selector = both }},
		{"it is named as well", func(s *spec) { s.Namespaces.Names = []string{a, b} }},
		{"it is named only", func(s *spec) { s.Namespaces.Selector = nil }},
		{"another account is fenced, too", func(s *spec) {
			fence := &s.Fencing.Writes[0]
			fence.ServiceAccounts = append(fence.ServiceAccounts, v1alpha1.FencedServiceAccount{Name: "till"})
		}},
		{"no Jobs are fenced any more", func(s *spec) { s.Fencing.Schedules = nil }},
	} {
		before, begin := len(acts()), time.Now()
		w.editPolicy("p", edit.of)
		w.Eventually("the edit is in force", time.Minute, func() error {
			p := &v1alpha1.LeadershipPolicy{}
			must.Do(w.Hub.Get(t.Context(), types.NamespacedName{Namespace: w.Fleet, Name: "p"}, p))
			cond := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionFencesInForce)
			return must.ErrorIf(cond == nil || cond.ObservedGeneration != p.Generation || cond.Reason != "InForce",
				"the condition is %+v", cond)
		})
		w.Eventually("the leader has acted for some seconds", time.Minute, func() error {
			n := len(acts()) - before
			return must.ErrorIf(n < 100, "%d acts", n)
		})
		inFollowers, last, longest := 0, begin, time.Duration(0)
		for _, x := range acts()[before:] {
			if x.by != "east" {
				inFollowers++
			} else {
				last, longest = x.at, max(longest, x.at.Sub(last))
			}
		}
		t.Logf("%s: in force after %v; the leader could not act for %v",
			edit.what, time.Since(begin).Round(time.Millisecond), longest)
		if inFollowers > 0 {
			t.Errorf("%s: %d acts in followers", edit.what, inFollowers)
		}
	}
}
