package guard_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

// shopAndBank are two namespaces. The shop has its Lease, so the gate is there, and the wall is in the bank.
var shopAndBank = map[string]bool{"shop": true, "bank": false}

// What Keep finds of a fence that was settled, and where it asks.
func TestWhatKeepFindsOfAFence(t *testing.T) {
	type binding = admissionv1.ValidatingAdmissionPolicyBinding
	f := guard.Fences("hub", asks("shops", checkoutWrites, "shop", "bank", "cafe"), nil)[0]
	gate, wall := f.Names()[0], f.Names()[1]
	requires := func(key string, o metav1.LabelSelectorOperator) func(*binding) {
		return func(b *binding) {
			s := b.Spec.MatchResources.NamespaceSelector
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: o, Values: []string{"bank"}})
		}
	}
	both := map[string]bool{"shop": true, "bank": true}
	for name, test := range map[string]struct {
		happens func(t *testing.T, s *simulated)
		active  map[string]bool // nil: those of before
		due     bool
		want    guard.FenceState
		asked   []string
	}{
		"nothing has happened": {want: guard.FenceState{InForce: both, Settled: true}, asked: []string{"wall bank"}},
		"it is due":            {due: true, want: guard.FenceState{InForce: both, Settled: true}, asked: []string{"gate shop", "wall bank"}},
		"the gate is gone": {
			happens: func(t *testing.T, s *simulated) { s.loses(t, policies, gate) },
			want:    guard.FenceState{InForce: both, Settled: true, Mended: true}, asked: []string{"gate shop", "wall bank"},
		},
		"the gate was edited": {
			happens: func(t *testing.T, s *simulated) { s.edits(t, gate, toAudit) },
			want:    guard.FenceState{InForce: both, Settled: true, Mended: true}, asked: []string{"gate shop", "wall bank"},
		},
		"the gate covers all that it can": {
			happens: func(t *testing.T, s *simulated) { s.edits(t, gate, func(b *binding) { b.Spec.MatchResources = nil }) },
			want:    guard.FenceState{InForce: both, Settled: true, Mended: true}, asked: []string{"gate shop", "wall bank"},
		},
		"the gate covers all namespaces": {
			happens: func(t *testing.T, s *simulated) {
				s.edits(t, gate, func(b *binding) { b.Spec.MatchResources.NamespaceSelector = nil })
			},
			want: guard.FenceState{InForce: both, Settled: true, Mended: true}, asked: []string{"gate shop", "wall bank"},
		},
		"the gate asks for another label": {
			happens: func(t *testing.T, s *simulated) { s.edits(t, gate, requires("team", metav1.LabelSelectorOpIn)) },
			want:    guard.FenceState{InForce: both, Settled: true, Mended: true}, asked: []string{"gate shop", "wall bank"},
		},
		"the gate leaves a namespace out": {
			happens: func(t *testing.T, s *simulated) {
				s.edits(t, gate, requires(corev1.LabelMetadataName, metav1.LabelSelectorOpNotIn))
			},
			want: guard.FenceState{InForce: both, Settled: true, Mended: true}, asked: []string{"gate shop", "wall bank"},
		},
		"the wall is gone": {
			happens: func(t *testing.T, s *simulated) { s.loses(t, bindings, wall) },
			want:    guard.FenceState{InForce: both, Settled: true, Mended: true}, asked: []string{"gate shop", "wall bank"},
		},
		"the wall was edited": {
			happens: func(t *testing.T, s *simulated) { s.edits(t, wall, toAudit) },
			want:    guard.FenceState{InForce: both, Settled: true, Mended: true}, asked: []string{"wall bank"},
		},
		"the gate does not refuse any more": {
			happens: func(_ *testing.T, s *simulated) { s.open = []string{"gate shop"} },
			due:     true, want: guard.FenceState{InForce: both}, asked: []string{"gate shop", "wall bank", "wall shop"},
		},
		"the gate does not refuse any more, and nobody asks": {
			happens: func(_ *testing.T, s *simulated) { s.open = []string{"gate shop"} },
			want:    guard.FenceState{InForce: both, Settled: true}, asked: []string{"wall bank"},
		},
		"the wall does not refuse any more": {
			happens: func(_ *testing.T, s *simulated) { s.open = []string{"wall bank"} },
			want:    guard.FenceState{InForce: map[string]bool{"shop": true}}, asked: []string{"wall bank"},
		},
		"the wall refuses in one of two namespaces": {
			happens: func(_ *testing.T, s *simulated) { s.open = []string{"wall bank"} },
			active:  map[string]bool{"bank": false, "cafe": false},
			want:    guard.FenceState{InForce: map[string]bool{"cafe": true}}, asked: []string{"wall bank", "wall cafe"},
		},
		"a namespace gets its Lease": {active: both, want: guard.FenceState{InForce: both, Settled: true}, asked: []string{"gate bank", "gate shop"}},
		"a namespace gets its Lease, and the gate is slow there": {
			happens: func(t *testing.T, s *simulated) {
				s.open = []string{"gate bank"}
				if state, err := f.Keep(t.Context(), s, both, nil, false); err != nil || state.Settled {
					t.Errorf("at first the state is %+v, %v", state, err)
				}
				s.asked = nil
			},
			active: both, want: guard.FenceState{InForce: both}, asked: []string{"gate bank", "wall bank"},
		},
		"a namespace loses its Lease": {
			active: map[string]bool{"shop": false, "bank": false}, want: guard.FenceState{InForce: both, Settled: true}, asked: []string{"wall bank"},
		},
		"a namespace goes": {
			active: map[string]bool{"bank": false}, want: guard.FenceState{InForce: map[string]bool{"bank": true}, Settled: true}, asked: []string{"wall bank"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := simulate()
			s.settles(t, f, shopAndBank)
			if test.happens != nil {
				test.happens(t, s)
			}
			active := test.active
			if active == nil {
				active = shopAndBank
			}
			state, err := f.Keep(t.Context(), s, active, nil, test.due)
			if err != nil {
				t.Fatal(err)
			}
			maps.DeleteFunc(state.InForce, func(_ string, is bool) bool { return !is })
			if !maps.Equal(state.InForce, test.want.InForce) || state.Settled != test.want.Settled {
				t.Errorf("the state is %+v, want %+v", state, test.want)
			}
			if test.active == nil && state.Mended != test.want.Mended {
				t.Errorf("it was mended: %v", state.Mended)
			}
			if asked := inOrder(s.asked); !slices.Equal(asked, test.asked) {
				t.Errorf("asked %q, want %q", asked, test.asked)
			}
		})
	}
}

// inOrder sorts what is asked at a time: one policy in several namespaces.
func inOrder(asked []string) (all []string) {
	for len(asked) > 0 {
		which, _, _ := strings.Cut(asked[0], " ")
		n := slices.IndexFunc(asked, func(a string) bool { return !strings.HasPrefix(a, which+" ") })
		if n < 0 {
			n = len(asked)
		}
		all, asked = append(all, slices.Sorted(slices.Values(asked[:n]))...), asked[n:]
	}
	return all
}

// Nobody has taken anything away: where there is no Lease, there is no gate.
func TestAFenceWithoutAGateIsNotMended(t *testing.T) {
	f, s := guard.Fences("hub", asks("shops", checkoutWrites, "shop", "bank"), nil)[0], simulate()
	bank := map[string]bool{"bank": false}
	s.settles(t, f, bank)
	state, err := f.Keep(t.Context(), s, bank, nil, true)
	if err != nil || state.Mended || !state.Settled || !state.InForce["bank"] || !slices.Equal(s.asked, []string{"wall bank"}) {
		t.Errorf("the state is %+v, %v; asked %q", state, err, s.asked)
	}
}

// It refuses nothing, so there is nothing to ask for.
func TestKeepPutsAFenceInPlaceThatWarnsAndAsksNothing(t *testing.T) {
	warning := checkoutWrites
	warning.Enforcement = v1alpha1.EnforcementWarn
	f, s := guard.Fences("hub", asks("shops", warning, "shop", "bank"), nil)[0], simulate()
	for range 2 {
		state, err := f.Keep(t.Context(), s, shopAndBank, nil, true)
		if err != nil || !state.Settled || len(state.InForce) > 0 || len(s.asked) > 0 {
			t.Errorf("the state is %+v, %v; asked %q", state, err, s.asked)
		}
	}
}

func TestWhatKeepFindsOfAFencedLock(t *testing.T) {
	lock, warning := lockIn("locks"), lockIn("locks")
	warning.Enforcement = v1alpha1.EnforcementWarn
	f := guard.Fences("hub", asks("locks", lock, "shop"), nil)[0]
	in := map[string]bool{"shop": true}
	for name, test := range map[string]struct {
		fence   guard.Fence
		happens func(t *testing.T, s *simulated)
		want    guard.FenceState
		asked   []string
	}{
		"nothing has happened":     {f, func(*testing.T, *simulated) {}, guard.FenceState{InForce: in, Settled: true}, []string{"gate locks"}},
		"its policy is gone":       {f, func(t *testing.T, s *simulated) { s.loses(t, policies, f.Name()) }, guard.FenceState{InForce: in, Settled: true, Mended: true}, []string{"gate locks"}},
		"its binding was edited":   {f, func(t *testing.T, s *simulated) { s.edits(t, f.Name(), toAudit) }, guard.FenceState{InForce: in, Settled: true, Mended: true}, []string{"gate locks"}},
		"it refuses nothing":       {f, func(_ *testing.T, s *simulated) { s.open = []string{"gate locks"} }, guard.FenceState{}, []string{"gate locks"}},
		"one that warns is placed": {guard.Fences("hub", asks("locks", warning, "shop"), nil)[0], func(*testing.T, *simulated) {}, guard.FenceState{Settled: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := simulate()
			s.settles(t, test.fence, in)
			test.happens(t, s)
			state, err := test.fence.Keep(t.Context(), s, in, nil, false)
			maps.DeleteFunc(state.InForce, func(_ string, is bool) bool { return !is })
			if err != nil || !maps.Equal(state.InForce, test.want.InForce) || state.Settled != test.want.Settled || state.Mended != test.want.Mended {
				t.Errorf("the state is %+v, %v, want %+v", state, err, test.want)
			}
			if asked := inOrder(s.asked); !slices.Equal(asked, test.asked) {
				t.Errorf("asked %q, want %q", asked, test.asked)
			}
		})
	}
}

// A lock in another namespace can be held where the policy's namespace is missing. A lock in the policy's namespace
// cannot.
func TestWhatKeepFindsOfAFencedLockWhereThePolicyHasNoNamespace(t *testing.T) {
	for name, test := range map[string]struct {
		lock  string // its namespace
		open  []string
		want  guard.FenceState
		asked []string
	}{
		"a lock elsewhere that is refused":     {"locks", nil, guard.FenceState{InForce: map[string]bool{"shop": true}, Settled: true}, []string{"gate locks"}},
		"a lock elsewhere that is not refused": {"locks", []string{"gate locks"}, guard.FenceState{InForce: map[string]bool{"shop": false}}, []string{"gate locks"}},
		"its own lock":                         {"shop", nil, guard.FenceState{Settled: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f, s := guard.Fences("hub", asks("locks", lockIn(test.lock), "shop"), nil)[0], simulate()
			s.settles(t, f, nil)
			s.open = test.open
			state, err := f.Keep(t.Context(), s, nil, nil, false)
			if err != nil || !maps.Equal(state.InForce, test.want.InForce) || state.Settled != test.want.Settled || state.Mended {
				t.Errorf("the state is %+v, %v, want %+v", state, err, test.want)
			}
			if !slices.Equal(s.asked, test.asked) {
				t.Errorf("asked %q, want %q", s.asked, test.asked)
			}
		})
	}
}

// A step rests on the one before it: without the gate, the wall must not go.
func TestKeepDoesNothingAfterAStepThatFails(t *testing.T) {
	f, lock := guard.Fences("hub", asks("shops", checkoutWrites, "shop", "bank"), nil)[0], guard.Fences("hub", asks("locks", lockIn("locks"), "shop"), nil)[0]
	gate, wall := f.Names()[0], f.Names()[1]
	for name, test := range map[string]struct {
		fence  guard.Fence
		active map[string]bool
		fails  string
	}{
		"where the gate is":               {f, shopAndBank, "get " + bindings + " " + gate},
		"where the wall is":               {f, shopAndBank, "get " + bindings + " " + wall},
		"the gate":                        {f, shopAndBank, "get " + policies + " " + gate},
		"to take the gate out":            {f, map[string]bool{"bank": false}, "delete " + bindings + " " + gate},
		"whether the gate refuses":        {f, shopAndBank, "create leases leasecast-gate-"},
		"the wall":                        {f, shopAndBank, "get " + policies + " " + wall},
		"whether the wall refuses":        {f, shopAndBank, "create leases leasecast-wall-"},
		"the gate of a lock":              {lock, map[string]bool{"shop": true}, "get " + policies + " " + lock.Name()},
		"whether a lock's policy refuses": {lock, map[string]bool{"shop": true}, "create leases leasecast-gate-"},
	} {
		t.Run(name, func(t *testing.T) {
			s := simulate()
			s.settles(t, test.fence, map[string]bool{"shop": true})
			failed := false
			s.fails = func(verb, resource, name string) error {
				if failed || !strings.HasPrefix(verb+" "+resource+" "+name, test.fails) {
					return nil
				}
				failed = true // once only: what comes after it would succeed
				if resource == "leases" {
					return apierrors.NewServiceUnavailable("later")
				}
				return forbids(resource)
			}
			_, err := test.fence.Keep(t.Context(), s, test.active, nil, true)
			if err == nil || errors.Is(err, guard.ErrForbidden) == strings.Contains(test.fails, " leases ") {
				t.Errorf("the error is %v", err)
			}
			if last := s.last(); !strings.HasPrefix(last, test.fails) {
				t.Errorf("afterwards it went on: %s", last)
			}
		})
	}
}

func TestRemoveFencesDoesNothingAfterAStepThatFails(t *testing.T) {
	f := guard.Fences("hub", asks("shops", checkoutWrites, "shop"), nil)[0]
	for _, fails := range []string{"list " + bindings + " ", "delete " + bindings + " " + f.Names()[0], "list " + policies + " ", "delete " + policies + " " + f.Names()[1]} {
		t.Run(fails, func(t *testing.T) {
			s := simulate()
			s.settles(t, f, map[string]bool{"shop": true})
			failed := false
			s.fails = func(verb, resource, name string) error {
				if failed || verb+" "+resource+" "+name != fails {
					return nil
				}
				failed = true
				return forbids(resource)
			}
			if err := guard.RemoveFences(t.Context(), s, "hub", "fleet", guard.Kept{}); !errors.Is(err, guard.ErrForbidden) {
				t.Errorf("the error is %v", err)
			}
			if s.last() != fails {
				t.Errorf("afterwards it went on: %s", s.last())
			}
		})
	}
}

// It has none, and never will.
func TestNoFencesAreRemovedFromAMemberThatDoesNotKnowTheKind(t *testing.T) {
	s := simulate()
	s.fails = func(_, resource, _ string) error {
		return apierrors.NewNotFound(admissionv1.Resource(resource), "")
	}
	if err := guard.RemoveFences(t.Context(), s, "hub", "fleet", guard.Kept{}); err != nil {
		t.Error(err)
	}
}
