package seal_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/leasecast/leasecast/hub/seal"
)

// The bounds of one policy must not delay the namespaces of another one.
func TestEachPolicyHasItsOwnBounds(t *testing.T) {
	fast := seal.Bounds{Duration: 3 * second, Skew: second / 4}
	slow := seal.Bounds{Duration: 15 * second, Skew: second, Stop: 155 * second}
	raised := func(t *testing.T) (*server, *seal.Store) {
		t.Helper()
		s := newServer(t, theSecret(put("largest-lease-duration-seconds", "0"), put("largest-max-clock-skew", "0s")))
		store := s.store()
		for name, b := range map[string]seal.Bounds{"fast": fast, "slow": slow} {
			if err := store.Raise(t.Context(), fleet, name, b); err != nil {
				t.Fatal(err)
			}
		}
		return s, store
	}
	check := func(t *testing.T, s *server, store *seal.Store, policy string, want seal.Bounds) {
		t.Helper()
		for who, got := range map[string]seal.Seal{"this replica": s.loads(store), "the next replica": s.loads(s.store())} {
			if got.Of(policy) != want {
				t.Errorf("%s counts %q with %v, want %v", who, policy, got.Of(policy), want)
			}
		}
	}
	lower := func(t *testing.T, store *seal.Store, before, after map[string]seal.Bounds) {
		t.Helper()
		if err := store.Lower(t.Context(), fleet, before, after); err != nil {
			t.Fatal(err)
		}
	}
	both := map[string]seal.Bounds{"fast": fast, "slow": slow}
	for name, test := range map[string]func(*testing.T){
		"a slow policy does not delay a fast one": func(t *testing.T) {
			s, store := raised(t)
			check(t, s, store, "fast", fast)
			check(t, s, store, "slow", slow)
		},
		"a policy that is not in the Secret has no bounds": func(t *testing.T) {
			s, store := raised(t)
			check(t, s, store, "new", seal.Bounds{})
		},
		"what a hub wrote that knew no policies bounds all": func(t *testing.T) {
			s, _ := raised(t)
			s.edit(put("largest-lease-duration-seconds", "60"))
			check(t, s, s.store(), "fast", seal.Bounds{Duration: 60 * second, Skew: second, Stop: 155 * second})
		},
		"the largest bounds that a policy can have are read": func(t *testing.T) {
			s, _ := raised(t)
			s.edit(put("policies", `{"slow":{"leaseDuration":"1h","maxClockSkew":"1h","stopTime":"5h"}}`))
			check(t, s, s.store(), "slow", seal.Bounds{Duration: 3600 * second, Skew: 3600 * second, Stop: 5 * 3600 * second})
		},
		"larger ones are an edit": func(t *testing.T) {
			for _, name := range []string{"leaseDuration", "maxClockSkew", "stopTime"} {
				s, _ := raised(t)
				s.edit(put("policies", `{"slow":{"`+name+`":"5h0m0.000000001s"}}`))
				if _, err := s.store().Load(t.Context(), fleet); !errors.Is(err, seal.ErrBroken) {
					t.Errorf("%s: %v", name, err)
				}
			}
		},
		"bounds fall": func(t *testing.T) {
			s, store := raised(t)
			lower(t, store, both, map[string]seal.Bounds{"fast": fast, "slow": fast})
			check(t, s, store, "slow", fast)
		},
		"a policy that is gone is dropped": func(t *testing.T) {
			s, store := raised(t)
			lower(t, store, both, map[string]seal.Bounds{"fast": fast})
			check(t, s, store, "slow", seal.Bounds{})
			if got := s.loads(s.store()); got.Largest() != fast {
				t.Errorf("the largest bounds are %v", got.Largest())
			}
		},
		"bounds that were raised since they were looked at do not fall": func(t *testing.T) {
			s, store := raised(t)
			before := maps.Clone(both)
			if err := store.Raise(t.Context(), fleet, "fast", slow); err != nil {
				t.Fatal(err)
			}
			lower(t, store, before, map[string]seal.Bounds{"fast": fast})
			check(t, s, store, "fast", slow)
		},
		"bounds that another replica has raised do not fall": func(t *testing.T) {
			s, store := raised(t)
			if err := s.store().Raise(t.Context(), fleet, "fast", slow); err != nil {
				t.Fatal(err)
			}
			lower(t, store, both, map[string]seal.Bounds{"fast": fast})
			check(t, s, s.store(), "fast", slow)
		},
		"bounds that fell can be raised again": func(t *testing.T) {
			s, store := raised(t)
			lower(t, store, both, map[string]seal.Bounds{"fast": fast})
			if err := store.Raise(t.Context(), fleet, "slow", slow); err != nil {
				t.Fatal(err)
			}
			check(t, s, store, "slow", slow)
		},
	} {
		t.Run(name, test)
	}
}
