package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
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
		cfg := harness.Get(w.Servers.Member(m).ServiceAccountConfig(w.T.Context(), namespace, "checkout", []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}},
		}))(w.T)
		c := harness.Get(client.New(cfg, client.Options{}))(w.T)
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

// allowFences gives the accounts of hubs in these members the rights of config/fencing.
func (w *world) allowFences(members ...string) {
	for _, m := range members {
		role := &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "leasecast-hub-fencing"},
			Rules:      rules(w, "../../config/fencing/hub_role.yaml"),
		}
		w.Must(client.IgnoreAlreadyExists(w.Members[m].Create(w.T.Context(), role)))
	}
}

// fenced is a world in which east leads namespace a of all members. Programs that know nothing of Leases act in all of
// them.
func fenced(t *testing.T, timings v1alpha1.Timings) (w *world, a string, acts func() []act) {
	w = newWorld(t, timings, three)
	w.allowFences(all...)
	a = w.namespace("a", all...)
	p := w.NewPolicy("p", a)
	p.Spec.Fencing = fencing.DeepCopy()
	w.Must(w.Hub.Create(t.Context(), p))
	w.startHub()
	w.Leads("east", a, firstElection, all...)
	w.awaitPolicy("p", v1alpha1.ConditionFenced, metav1.ConditionTrue, "InForce")
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

func TestWhatAnAdministratorDeletesWhereAFenceIs(t *testing.T) {
	t.Parallel()
	w, a, acts := fenced(t, steady)
	t.Log("the fence is put back")
	ours := client.MatchingLabels{v1alpha1.FenceLabel: w.Fleet}
	w.Must(w.Members["west"].DeleteAllOf(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{}, ours))
	w.awaitEvent("west", reason.FenceMended, "restored it")
	if err := w.fences("west"); err == nil {
		t.Error("the fences are gone")
	}
	w.awaitPolicy("p", v1alpha1.ConditionFenced, metav1.ConditionTrue, "InForce")

	t.Log("the Lease is written again: without it everybody is refused what is fenced")
	for _, m := range []string{"west", "east"} {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: v1alpha1.DefaultLeaseName}}
		w.Must(w.Members[m].Delete(t.Context(), l))
		w.Eventually("the Lease is back in "+m, soon, func() error {
			return w.Members[m].Get(t.Context(), client.ObjectKeyFromObject(l), l)
		})
	}
	w.actsIn("east", acts)

	t.Log("the namespace goes")
	w.deleteNamespace(a, "south")
	w.namespaceGone(a, "south")
}

func TestFencesGoWithWhatAskedForThem(t *testing.T) {
	t.Parallel()
	w, _, _ := fenced(t, steady)
	gone := func(members ...string) {
		for _, m := range members {
			w.Eventually("the fences in "+m+" are gone", soon, func() error { return w.fences(m) })
		}
	}
	asks := func(fencing *v1alpha1.Fencing) {
		w.editPolicy("p", func(s *v1alpha1.LeadershipPolicySpec) { s.Fencing = fencing })
	}
	w.removePriority("south")
	gone("south")
	if err := w.fences("west"); err == nil {
		t.Error("they are gone where nothing has changed")
	}
	asks(nil)
	gone("east", "west")
	asks(fencing.DeepCopy())
	w.Eventually("the fences are back", soon, func() error {
		return must.ErrorIf(w.fences("east") == nil || w.fences("west") == nil, "they are not")
	})
	w.deletePolicy("p")
	gone("east", "west")
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
		p := &v1alpha1.LeadershipPolicy{}
		w.Must(w.Hub.Get(t.Context(), types.NamespacedName{Namespace: w.Fleet, Name: "p"}, p))
		old := p.DeepCopy()
		edit.of(&p.Spec)
		w.Must(w.Hub.Patch(t.Context(), p, client.MergeFrom(old)))
		w.Eventually("the edit is in force, and the earlier fences are gone", time.Minute, func() error {
			w.Must(w.Hub.Get(t.Context(), client.ObjectKeyFromObject(p), old))
			cond := meta.FindStatusCondition(old.Status.Conditions, v1alpha1.ConditionFenced)
			if cond == nil || cond.ObservedGeneration != p.Generation || cond.Reason != "InForce" {
				return fmt.Errorf("the condition is %+v", cond)
			}
			return w.storesFor(p.Spec)
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

// storesFor returns an error if a member stores more or less than the fences of one policy: a gate for each list, and a
// wall for each way to choose namespaces.
func (w *world) storesFor(p v1alpha1.LeadershipPolicySpec) error {
	lists, parts := 0, 1
	for _, is := range []bool{len(p.Fencing.Writes) > 0, p.Fencing.Schedules != nil} {
		if is {
			lists++
		}
	}
	for _, is := range []bool{len(p.Namespaces.Names) > 0, p.Namespaces.Selector != nil} {
		if is {
			parts++
		}
	}
	for _, m := range all {
		var list admissionv1.ValidatingAdmissionPolicyList
		if err := w.Members[m].List(w.T.Context(), &list, client.MatchingLabels{v1alpha1.FenceLabel: w.Fleet}); err != nil {
			return err
		}
		if len(list.Items) != lists*parts {
			return fmt.Errorf("%s stores %d policies", m, len(list.Items))
		}
	}
	return nil
}

// fences reports that there are some.
func (w *world) fences(member string) error {
	var policies admissionv1.ValidatingAdmissionPolicyList
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	ours := client.MatchingLabels{v1alpha1.FenceLabel: w.Fleet}
	err := errors.Join(
		w.Members[member].List(w.T.Context(), &policies, ours),
		w.Members[member].List(w.T.Context(), &bindings, ours))
	if n := len(policies.Items) + len(bindings.Items); n > 0 {
		return fmt.Errorf("there are %d", n)
	}
	return err
}

// Without the rights of config/fencing the hub cannot fence a member. The member must not lead, and the record reports
// the reason.
func TestAMemberThatCannotBeFencedIsNotChosen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brief, map[string]string{"east": "100"})
	w.allowFences("east")
	a := w.namespace("a", "east", "south")
	p := w.NewPolicy("p", a)
	p.Spec.Fencing, p.Spec.InitialDelaySeconds = fencing.DeepCopy(), ptr.To[int32](0) // south is not waited for
	w.Must(w.Hub.Create(t.Context(), p))
	w.addCluster("south", "1000", w.kubeconfigFor("south", w.account("south", "hub", w.memberRules())))
	w.startHub()
	w.Leads("east", a, firstElection, "east", "south")
	w.awaitUnfit("south", a, reason.Unfenced, "config/fencing")
	w.awaitPolicy("p", v1alpha1.ConditionFenced, metav1.ConditionFalse, string(reason.Unfenced), "south", "config/fencing")
	w.account("south", "hub", append(w.memberRules(), rules(w, "../../config/fencing/hub_role.yaml")...))
	w.awaitEligible("south", a)
	w.awaitPolicy("p", v1alpha1.ConditionFenced, metav1.ConditionTrue, "InForce")
}
