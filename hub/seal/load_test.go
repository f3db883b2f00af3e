package seal_test

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/leasecast/leasecast/hub/seal"
)

func TestLoad(t *testing.T) {
	run(t, map[string]func(*server, *seal.Store){
		"no Secret: creates one that clusterctl move takes along": func(s *server, store *seal.Store) {
			s.remove()
			s.hasKey(s.load(store).Key)
			if _, ok := s.secret().Labels["clusterctl.cluster.x-k8s.io/move"]; !ok {
				s.t.Errorf("labels: %v", s.secret().Labels)
			}
			s.knows(store, seal.Bounds{})
		},
		"no Secret: each fleet gets its own key": func(s *server, store *seal.Store) {
			s.remove()
			other, err := store.Load(s.t.Context(), "another")
			if err != nil || bytes.Equal(other.Key, s.load(store).Key) {
				s.t.Errorf("%v, or one key for two fleets", err)
			}
		},
		"no Secret, two replicas create it at once: both get one key": func(s *server, store *seal.Store) {
			s.remove()
			var first seal.Seal
			s.once("create", func() error { first = s.load(s.store()); return nil })
			if second := s.load(store); !bytes.Equal(first.Key, second.Key) {
				s.t.Error("two keys")
			}
		},
		"no Secret, many callers in one process: all get one key": func(s *server, store *seal.Store) {
			s.remove()
			seals := make([]seal.Seal, 20)
			var wg sync.WaitGroup
			for i := range seals {
				wg.Go(func() { seals[i], _ = store.Load(s.t.Context(), fleet) })
			}
			wg.Wait()
			for _, got := range seals {
				s.hasKey(got.Key)
			}
		},
		"a Secret: read once": func(s *server, store *seal.Store) {
			s.hasKey(s.load(store).Key)
			s.knows(store, usual)
			s.fails(errSay)
			s.load(store)
			s.wrote(0)
		},
		"refused: the error names the Secret": func(s *server, store *seal.Store) {
			s.fails(apierrors.NewForbidden(corev1.Resource("secrets"), seal.SecretName, errSay))
			_, err := store.Load(s.t.Context(), fleet)
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), theName) {
				s.t.Errorf("error: %v", err)
			}
		},
	})
}

// Find creates no Secret, because a move may bring it.
func TestFind(t *testing.T) {
	run(t, map[string]func(*server, *seal.Store){
		"no Secret: returns no key, until there is one": func(s *server, store *seal.Store) {
			s.remove()
			if got, err := store.Find(s.t.Context(), fleet); err != nil || len(got.Key) != 0 {
				s.t.Errorf("a key of %d bytes, %v", len(got.Key), err)
			}
			s.wrote(0)
			made := s.load(s.store())
			if got, err := store.Find(s.t.Context(), fleet); err != nil || !bytes.Equal(got.Key, made.Key) {
				s.t.Errorf("a key of %d bytes, %v", len(got.Key), err)
			}
		},
		"a known seal: reads nothing": func(s *server, store *seal.Store) {
			s.load(store)
			s.fails(errSay)
			if got, err := store.Find(s.t.Context(), fleet); err != nil || got.Largest() != usual {
				s.t.Errorf("%v, %v", got.Largest(), err)
			}
		},
		"the API server is not available: an error": func(s *server, store *seal.Store) {
			s.fails(apierrors.NewServiceUnavailable("later"), "get")
			if _, err := store.Find(s.t.Context(), fleet); !apierrors.IsServiceUnavailable(err) {
				s.t.Errorf("error: %v", err)
			}
		},
	})
}

// A standby reads what the other replica has raised. Nothing lowers what it has.
func TestRefresh(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*server)
		want   seal.Bounds
		err    error
	}{
		"raised":            {func(s *server) { s.edit(bounds("60s", "2s", "17s")) }, larger, nil},
		"lowered":           {func(s *server) { s.edit(bounds("5s", "500ms", "0s")) }, usual, nil},
		"of another key":    {func(s *server) { s.edit(bounds("60s", "2s", "17s"), anotherKey) }, usual, nil},
		"broken":            {func(s *server) { s.edit(bounds("many", "2s", "17s")) }, usual, nil},
		"deleted":           {(*server).remove, usual, nil},
		"could not be read": {func(s *server) { s.fails(errSay) }, seal.Bounds{}, errSay},
		"as it was":         {func(*server) {}, usual, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, theSecret())
			store := s.store()
			s.load(store)
			test.change(s)
			got, err := store.Refresh(t.Context(), fleet)
			if !errors.Is(err, test.err) || got.Largest() != test.want {
				t.Errorf("got %v, %v, want %v, %v", got.Largest(), err, test.want, test.err)
			}
		})
	}
	run(t, map[string]func(*server, *seal.Store){
		"not read before": func(s *server, store *seal.Store) {
			if got, err := store.Refresh(s.t.Context(), fleet); err != nil || len(got.Key) != 32 || got.Largest() != usual {
				s.t.Errorf("a key of %d bytes, %v, %v", len(got.Key), got.Largest(), err)
			}
		},
		"not read before, and no Secret": func(s *server, store *seal.Store) {
			s.remove()
			if got, err := store.Refresh(s.t.Context(), fleet); err != nil || got.Key != nil {
				s.t.Errorf("a key of %d bytes, %v", len(got.Key), err)
			}
			s.wrote(0)
		},
	})
}

// A Secret without a usable seal is never replaced: Leases are sealed with its key. What counts with D + ε must not
// overflow, whatever was edited.
func TestBrokenSecret(t *testing.T) {
	check := func(t *testing.T, err error) {
		t.Helper()
		if !errors.Is(err, seal.ErrBroken) || !strings.Contains(err.Error(), theName) ||
			!strings.Contains(err.Error(), "must ") {
			t.Errorf("error: %v", err)
		}
		for _, secret := range []string{"only for tests", "-15", "15s", "9999"} {
			if err != nil && strings.Contains(strings.ReplaceAll(err.Error(), "such as 15s", ""), secret) {
				t.Errorf("the error shows the content of the Secret: %v", err)
			}
		}
	}
	for name, breaks := range map[string]func(*corev1.Secret){
		"no key":                      drop("key"),
		"a short key":                 put("key", "only for tests, and too short"),
		"a long key":                  put("key", "only for tests, and longer than 32 B"),
		"no policies":                 drop("policies"),
		"policies that are not JSON":  put("policies", "{"),
		"policies that are null":      put("policies", "null"),
		"a policy without bounds":     put("policies", `{"a":{}}`),
		"no D":                        bounds("", "1s", "0s"),
		"a D without a unit":          bounds("15", "1s", "0s"),
		"a negative D":                bounds("-15s", "1s", "0s"),
		"a huge D":                    bounds("99999999999999999999s", "1s", "0s"),
		"a D of an hour and a second": bounds("3601s", "1s", "0s"),
		"no ε":                        bounds("15s", "", "0s"),
		"an ε without a unit":         bounds("15s", "1", "0s"),
		"a negative ε":                bounds("15s", "-1s", "0s"),
		"an ε of an hour and 1 ns":    bounds("15s", "1h0m0.000000001s", "0s"),
		"no stop time":                bounds("15s", "1s", ""),
		"a stop time without a unit":  bounds("15s", "1s", "17"),
		"a negative stop time":        bounds("15s", "1s", "-1ns"),
		"a stop time of 5 h and 1 ns": bounds("15s", "1s", "5h0m0.000000001s"),
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, theSecret(breaks))
			started, running := s.store(), s.store()
			_, err := started.Load(t.Context(), fleet)
			check(t, err)
			check(t, started.Raise(t.Context(), fleet, "shops", larger))
			s.edit(func(secret *corev1.Secret) { secret.Data = theSecret().Data })
			s.load(running)
			s.edit(breaks)
			before := s.secret().ResourceVersion
			check(t, running.Raise(t.Context(), fleet, "shops", larger))
			if got := s.load(running).Largest(); got != usual || s.secret().ResourceVersion != before {
				t.Errorf("it was written, or %v counts, which was not written", got)
			}
			s.edit(func(secret *corev1.Secret) { secret.Data = theSecret().Data })
			s.knows(started, usual)
		})
	}
	t.Run("the largest bounds are read", func(t *testing.T) {
		s := newServer(t, theSecret(bounds("1h", "1h", "5h")))
		s.knows(s.store(), seal.Bounds{Duration: 3600 * second, Skew: 3600 * second, Stop: seal.MaxStop})
	})
}
