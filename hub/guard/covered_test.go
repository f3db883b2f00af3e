package guard_test

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

// covers is a policy that names these namespaces, and selects those of a team unless that is empty.
func covers(team string, namespaces ...string) *v1alpha1.LeadershipPolicy {
	o := asks("shops", checkoutWrites, namespaces...)
	if team != "" {
		o.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": team}}
	}
	return o
}

// Whoever edits which namespaces are covered does not disturb the leaders of the others. A namespace has its gate all the
// time, however it is covered, and each wall stays until the next one is seen.
func TestAnEditOfWhatIsCoveredKeepsTheGate(t *testing.T) {
	for name, test := range map[string]struct {
		before, after *v1alpha1.LeadershipPolicy
		walls         int // of those before that stay walls
	}{
		"another namespace is named":          {covers("", "shop"), covers("", "shop", "bank"), 0},
		"namespaces are selected, too":        {covers("", "shop"), covers("a", "shop"), 1},
		"namespaces are selected instead":     {covers("", "shop"), covers("a"), 0},
		"namespaces are named instead":        {covers("a"), covers("", "shop"), 0},
		"it is not named any more":            {covers("a", "shop", "bank"), covers("a", "bank"), 1},
		"it is named, too":                    {covers("a", "bank"), covers("a", "shop", "bank"), 1},
		"it is not selected any more":         {covers("a", "shop"), covers("", "shop"), 1},
		"other labels are selected":           {covers("a", "bank"), covers("b", "bank"), 1},
		"the same are named in another order": {covers("", "shop", "bank"), covers("", "bank", "shop"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, before, after := simulate(), guard.Fences("hub", test.before, nil)[0], guard.Fences("hub", test.after, nil)[0]
			shop := map[string]bool{"shop": true}
			s.settles(t, before, shop)
			if before.Name() != after.Name() {
				t.Errorf("the gate is %s, and was %s", after.Name(), before.Name())
			}
			if state, err := after.Keep(t.Context(), s, shop, nil, false); err != nil || !state.Settled {
				t.Errorf("the state is %+v, %v", state, err)
			}
			stay := 0
			for _, wall := range before.Names()[1:] {
				if slices.Contains(after.Names(), wall) {
					stay++
				}
				if _, is := s.boundTo(t, wall, metav1.LabelSelectorOpNotIn); !is {
					t.Errorf("%s is gone", wall)
				}
			}
			if stay != test.walls {
				t.Errorf("%d walls stay, want %d", stay, test.walls)
			}
			for _, wall := range after.Names()[1:] {
				if out, _ := s.boundTo(t, wall, metav1.LabelSelectorOpNotIn); !slices.Equal(out, []string{"shop"}) {
					t.Errorf("the leader is refused by %s, which leaves out %q", wall, out)
				}
			}
			if gated, _ := s.boundTo(t, after.Name(), metav1.LabelSelectorOpIn); !slices.Equal(gated, []string{"shop"}) {
				t.Errorf("the gate is in %q", gated)
			}
		})
	}
}

// Another policy takes a namespace over. Until that one's fence is in force there, the earlier one goes on.
func TestANamespaceThatIsLostIsFencedUntilTheNextFenceIsInForce(t *testing.T) {
	for name, test := range map[string]struct {
		leased      bool            // before
		open        map[string]bool // where another fence is not in force yet
		gated, lost bool            // the namespace has the gate, or no wall
	}{
		"it has its Lease, and another fence is not in force yet": {true, map[string]bool{"shop": true}, true, true},
		"it has no Lease, and another fence is not in force yet":  {false, map[string]bool{"shop": false}, false, false},
		"its Lease is gone, and another fence is not in force":    {true, map[string]bool{"shop": false}, false, false},
		"it has its Lease, and another fence is in force":         {true, nil, false, true},
		"it has no Lease, and another fence is in force":          {false, nil, false, true},
		"another fence is not in force in another namespace":      {true, map[string]bool{"bank": true}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := simulate()
			s.settles(t, guard.Fences("hub", covers("a", "shop"), nil)[0], map[string]bool{"shop": test.leased})
			f := guard.Fences("hub", covers("a", "shop"), []string{"shop"})[0]
			for range 2 {
				if state, err := f.Keep(t.Context(), s, nil, test.open, false); err != nil || !state.Settled {
					t.Errorf("the state is %+v, %v", state, err)
				}
			}
			if _, gated := s.boundTo(t, f.Name(), metav1.LabelSelectorOpIn); gated != test.gated {
				t.Errorf("it has the gate: %v, want %v", gated, test.gated)
			}
			for _, wall := range f.Names()[1:] {
				if out, _ := s.boundTo(t, wall, metav1.LabelSelectorOpNotIn); slices.Contains(out, "shop") != test.lost {
					t.Errorf("the wall %s leaves out %q", wall, out)
				}
			}
			if state, err := f.Keep(t.Context(), s, nil, nil, false); err != nil || !state.Settled {
				t.Errorf("then the state is %+v, %v", state, err)
			}
			for _, wall := range f.Names()[1:] {
				if out, _ := s.boundTo(t, wall, metav1.LabelSelectorOpNotIn); !slices.Equal(out, []string{"shop"}) {
					t.Errorf("in the end the wall %s leaves out %q", wall, out)
				}
			}
		})
	}
}

// A policy that becomes invalid fences on. Another policy's namespaces stay out of that.
func TestAnEarlierFenceLeavesOutWhatWasLost(t *testing.T) {
	s, f := simulate(), guard.Fences("hub", covers("", "shop", "bank"), []string{"bank"})[0]
	s.settles(t, f, map[string]bool{"shop": true})
	if err := guard.RemoveFences(t.Context(), s, "hub", "fleet", guard.Kept{Policies: []string{"shops"}}); err != nil {
		t.Fatal(err)
	}
	if out, is := s.boundTo(t, f.Names()[1], metav1.LabelSelectorOpNotIn); !is || !slices.Equal(out, []string{"bank"}) {
		t.Errorf("the wall leaves out %q", out)
	}
}
