package guard_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

// An administrator of the member labels the namespaces in which policies may fence although they are not theirs.
func TestWhatAPolicyFencesElsewhereHasToBeAllowed(t *testing.T) {
	accountsOf := func(namespaces ...string) v1alpha1.Fencing {
		var as []v1alpha1.FencedServiceAccount
		for _, ns := range namespaces {
			as = append(as, v1alpha1.FencedServiceAccount{Namespace: ns, Name: fencedAccount})
		}
		return v1alpha1.Fencing{Writes: []v1alpha1.WriteFence{{ServiceAccounts: as, Resources: checkoutWrites.Writes[0].Resources}}}
	}
	labelled := func(value string, labels ...string) map[string]map[string]string {
		all := map[string]map[string]string{"shop": {"team": "a"}, "ci": {v1alpha1.FencingLabel: value}, "cd": nil}
		for _, ns := range labels {
			all[ns] = map[string]string{v1alpha1.FencingLabel: value}
		}
		return all
	}
	byLabel := asks("selected", accountsOf("shop"))
	byLabel.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	for name, test := range map[string]struct {
		policy     *v1alpha1.LeadershipPolicy
		namespaces map[string]map[string]string
		lost       []string
		want       [][]string // for each fence
	}{
		"its own lock":                             {asks("p", lockIn("shop"), "shop"), labelled(""), nil, [][]string{nil}},
		"a lock elsewhere":                         {asks("p", lockIn("ci"), "shop"), labelled(v1alpha1.FencingAllowed), nil, [][]string{nil}},
		"a lock elsewhere, without the label":      {asks("p", lockIn("cd"), "shop"), labelled(v1alpha1.FencingAllowed), nil, [][]string{{"cd"}}},
		"a lock elsewhere, with another label":     {asks("p", lockIn("ci"), "shop"), labelled("true"), nil, [][]string{{"ci"}}},
		"a lock in a namespace that is not there":  {asks("p", lockIn("bank"), "shop"), labelled(v1alpha1.FencingAllowed), nil, [][]string{{"bank"}}},
		"the accounts of the namespace":            {asks("p", checkoutWrites, "shop"), labelled(""), nil, [][]string{nil}},
		"an account of a named namespace":          {asks("p", accountsOf("shop"), "shop"), labelled(""), nil, [][]string{nil}},
		"an account of a selected namespace":       {byLabel, labelled(""), nil, [][]string{nil}},
		"of one that another policy owns":          {byLabel, labelled(""), []string{"shop"}, [][]string{{"shop"}}},
		"an account elsewhere":                     {asks("p", accountsOf("ci"), "shop"), labelled(v1alpha1.FencingAllowed), nil, [][]string{nil}},
		"accounts elsewhere, without labels":       {asks("p", accountsOf("cd", "ci", "cd"), "shop"), labelled(""), nil, [][]string{{"cd", "ci"}}},
		"accounts here and there, without labels":  {asks("p", accountsOf("shop", "ci", ""), "shop"), labelled(""), nil, [][]string{nil, {"ci"}}},
		"accounts here and there, one is labelled": {asks("p", accountsOf("cd", "ci"), "shop"), labelled(v1alpha1.FencingAllowed), nil, [][]string{{"cd"}}},
	} {
		t.Run(name, func(t *testing.T) {
			var namespaces []corev1.Namespace
			for ns, labels := range test.namespaces {
				namespaces = append(namespaces, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: labels}})
			}
			var got [][]string
			for _, f := range guard.Fences("hub", test.policy, test.lost) {
				denied := guard.DeniedIn(f.Denied(namespaces))
				slices.Sort(denied)
				got = append(got, denied)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A member that forbids the fence of accounts elsewhere keeps the one of the namespace's own.
func TestWritesHereAndThereAreFencedApart(t *testing.T) {
	o := asks("p", v1alpha1.Fencing{Writes: []v1alpha1.WriteFence{
		{ServiceAccounts: []v1alpha1.FencedServiceAccount{{Name: "a"}, {Namespace: "shop", Name: "b"}, {Namespace: "ci", Name: "c"}}},
		{ObjectLabels: map[string]string{"led": "shop"}},
	}}, "shop")
	var got [][]v1alpha1.FencedServiceAccount
	for _, f := range guard.Fences("hub", o, nil) {
		got = append(got, f.Accounts())
	}
	want := [][]v1alpha1.FencedServiceAccount{{{Name: "a"}, {Namespace: "shop", Name: "b"}}, {{Namespace: "ci", Name: "c"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsNotAllowedSaysHowItIs(t *testing.T) {
	err := guard.Fences("hub", asks("p", lockIn("kube-system"), "shop"), nil)[0].Denied(nil)
	want := "an administrator of the cluster has to allow what is fenced outside the policy's namespaces: " +
		"kubectl label namespace kube-system leasecast.dev/fencing=allowed"
	if err == nil || err.Error() != want {
		t.Errorf("it says %v", err)
	}
}
