package seal_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/leasecast/leasecast/hub/seal"
)

func TestFind(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"Find makes none: a move may be bringing it": func(t *testing.T) {
			s := newServer(t)
			got, err := s.store().Find(t.Context(), fleet)
			if err != nil || len(got.Key) != 0 || s.writes > 0 {
				t.Errorf("a key of %d bytes, %d writes, %v", len(got.Key), s.writes, err)
			}
		},
		"Find does not remember that there was none": func(t *testing.T) {
			s := newServer(t)
			store := s.store()
			_, err := store.Find(t.Context(), fleet)
			made := s.loads(s.store())
			found, again := store.Find(t.Context(), fleet)
			if err != nil || again != nil || !bytes.Equal(found.Key, made.Key) {
				t.Errorf("found a key of %d bytes, %v, %v", len(found.Key), err, again)
			}
		},
		"Find asks nothing for what is known": func(t *testing.T) {
			s := newServer(t, theSecret())
			store := s.store()
			s.loads(store)
			s.hears(func(string) error { return errSay })
			if got, err := store.Find(t.Context(), fleet); err != nil || got.Largest().Duration != 15*second {
				t.Errorf("D %v, %v", got.Largest().Duration, err)
			}
		},
		"Serve says that it could not ask": func(t *testing.T) {
			s := newServer(t, theSecret())
			store := s.store()
			s.loads(store)
			s.hears(func(string) error { return errSay })
			if got, err := store.Serve(t.Context(), fleet, seal.Mark("uid", "leasecast-system"), false); !errors.Is(err, errSay) {
				t.Errorf("D %v, %v", got.Largest().Duration, err)
			}
		},
	} {
		t.Run(name, test)
	}
}

func TestASecretThatCannotBeMadeAgainRemembersNothing(t *testing.T) {
	s := newServer(t, theSecret())
	store := s.store()
	s.loads(store)
	s.remove()
	s.hears(func(verb string) error {
		if verb == "create" {
			return errSay
		}
		return nil
	})
	if err := store.Raise(t.Context(), fleet, "shops", seal.Bounds{Duration: 60 * second, Skew: second}); !errors.Is(err, errSay) {
		t.Errorf("error: %v", err)
	}
	if got := s.loads(store); got.Largest().Duration != 15*second {
		t.Errorf("D %v", got.Largest().Duration)
	}
}

// What D + ε is counted from must not overflow, whoever has edited the Secret.
func TestTheLargestDAndEpsilonOfAnyPolicyAreRead(t *testing.T) {
	for name, tc := range map[string]struct {
		seconds, skew string
		broken        bool
	}{
		"an hour each":               {"3600", "1h", false},
		"a second more of D":         {"3601", "1h", true},
		"a nanosecond more of ε":     {"3600", "1h0m0.000000001s", true},
		"as much as fits into int64": {"3600", "2562047h47m16.854775807s", true},
		"68 years of D":              {"2147483647", "1s", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, theSecret(put("largest-lease-duration-seconds", tc.seconds), put("largest-max-clock-skew", tc.skew)))
			got, err := s.store().Load(t.Context(), fleet)
			if errors.Is(err, seal.ErrBroken) != tc.broken {
				t.Errorf("D %v, ε %v, %v", got.Largest().Duration, got.Largest().Skew, err)
			}
		})
	}
}

func TestALargerSkewThatWasDoneInTheMeantimeIsNotForgotten(t *testing.T) {
	s := newServer(t, theSecret())
	store := s.store()
	raise := func(skew time.Duration) {
		if err := store.Raise(t.Context(), fleet, "shops", seal.Bounds{Duration: second, Skew: skew}); err != nil {
			t.Error(err)
		}
	}
	s.answer = func() {
		s.mu.Lock()
		s.answer = nil
		s.mu.Unlock()
		raise(3 * second) // before the other hears that it is done
	}
	raise(2 * second)
	if got := s.loads(store); got.Largest().Skew != 3*second {
		t.Errorf("ε %v", got.Largest().Skew)
	}
}
