package seal_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/leasecast/leasecast/hub/seal"
)

var (
	own    = seal.Mark("9b2d", "leasecast-system")
	beside = seal.Mark("9b2d", "platform")
	moved  = seal.Mark("77aa", "platform")
)

// Rule 8: another installation is one on the same management cluster, in another namespace.
func TestOtherInstallation(t *testing.T) {
	for mark, want := range map[string]string{
		own: "", beside: "platform", moved: "", seal.Mark("77aa", "leasecast-system"): "", "": "", "9b2d": "",
		seal.Mark("9b2d0", "platform"): "", own + "-2": "leasecast-system-2", "9b2d/leasecast": "leasecast",
	} {
		if namespace, ok := seal.OtherInstallation(own, mark); ok != (want != "") || ok && namespace != want {
			t.Errorf("%q: %t, in %q", mark, ok, namespace)
		}
	}
}

// serve fails the test unless the store gets the seal of the fleet, which then has the mark.
func (s *server) serve(store *seal.Store, mark string) seal.Seal {
	s.t.Helper()
	got, err := store.Serve(s.t.Context(), fleet, mark, false)
	if err != nil {
		s.t.Fatal(err)
	}
	s.hasKey(got.Key)
	if now := seal.MarkOf(s.secret()); now != mark {
		s.t.Errorf("the mark is %q, want %q", now, mark)
	}
	return got
}

// doesNotServe fails the test unless Serve fails with the error, and writes nothing.
func (s *server) doesNotServe(store *seal.Store, moving bool, want error) {
	s.t.Helper()
	before := s.writes
	got, err := store.Serve(s.t.Context(), fleet, own, moving)
	if !errors.Is(err, want) || !strings.Contains(err.Error(), theName) || got.Key != nil {
		s.t.Errorf("%v, with a key: %t; want %v", err, got.Key != nil, want)
	}
	s.wrote(before)
}

// Rule 8: of two installations on one management cluster, the one whose mark is on the seal serves the fleet.
func TestServe(t *testing.T) {
	run(t, map[string]func(*server, *seal.Store){
		"no Secret: creates it with the mark": func(s *server, store *seal.Store) {
			s.remove()
			s.serve(store, own)
		},
		"no Secret, the fleet is moving here: creates it": func(s *server, store *seal.Store) {
			s.remove()
			if _, err := store.Serve(s.t.Context(), fleet, own, true); err != nil || seal.MarkOf(s.secret()) != own {
				s.t.Error(err)
			}
		},
		"no mark: adds it, and leaves the rest": func(s *server, store *seal.Store) {
			s.edit(func(o *corev1.Secret) { o.Annotations = map[string]string{"team": "platform"} })
			if got := s.serve(store, own); got.Largest() != usual || s.secret().Annotations["team"] != "platform" {
				s.t.Errorf("%v, annotations %v", got.Largest(), s.secret().Annotations)
			}
		},
		"the own mark: reads once, and writes nothing": func(s *server, store *seal.Store) {
			s.edit(marked(own))
			before, requests := s.writes, 0
			s.onRequest(func(string) error { requests++; return nil })
			if _, err := store.Serve(s.t.Context(), fleet, own, false); err != nil || requests != 1 {
				s.t.Errorf("%v, %d requests", err, requests)
			}
			s.wrote(before)
		},
		"the mark of another management cluster: replaces it": func(s *server, store *seal.Store) {
			s.edit(marked(moved))
			s.serve(store, own)
		},
		"the mark of another installation: does not serve, and names it": func(s *server, store *seal.Store) {
			s.edit(marked(beside))
			s.doesNotServe(store, false, seal.ErrServed)
			if _, err := store.Serve(s.t.Context(), fleet, own, false); !strings.Contains(err.Error(), "in namespace platform") {
				s.t.Error(err)
			}
		},
		"the mark of another installation has come since: does not serve": func(s *server, store *seal.Store) {
			s.serve(store, own)
			s.edit(marked(beside))
			s.doesNotServe(store, false, seal.ErrServed)
			s.doesNotServe(store, true, seal.ErrServed)
		},
		"no usable key: no mark": func(s *server, store *seal.Store) {
			s.edit(drop("key"))
			s.doesNotServe(store, false, seal.ErrBroken)
		},
		"refused or not answered: one request": func(s *server, store *seal.Store) {
			s.load(store)
			requests := 0
			s.onRequest(func(string) error { requests++; return errSay })
			if s.doesNotServe(store, false, errSay); requests != 1 {
				s.t.Errorf("%d requests", requests)
			}
		},
		"the API server does not answer in time": func(s *server, _ *seal.Store) {
			s.remove()
			for _, verb := range []string{"get", "create"} {
				s.fails(context.DeadlineExceeded, verb)
				if got, err := s.store().Serve(s.t.Context(), fleet, own, false); !errors.Is(err, context.DeadlineExceeded) ||
					got.Key != nil {
					s.t.Errorf("%s: %v", verb, err)
				}
			}
		},
		"three conflicts: gives up": func(s *server, store *seal.Store) {
			s.fails(conflict, "update")
			if _, err := store.Serve(s.t.Context(), fleet, own, false); !apierrors.IsConflict(err) {
				s.t.Error(err)
			}
			s.wrote(3)
		},
		"another key came by a move: uses that": func(s *server, store *seal.Store) {
			s.raise(store, larger)
			s.edit(anotherKey, bounds("20s", "1s", "0s"))
			want := seal.Bounds{Duration: 20 * second, Skew: second}
			if got := s.serve(store, own); got.Largest() != want {
				s.t.Errorf("%v", got.Largest())
			}
			s.knows(store, want)
		},
		"deleted: creates it from the seal in use": func(s *server, store *seal.Store) {
			key := s.load(store).Key
			s.remove()
			s.serve(store, own)
			s.hasKey(key)
			s.knows(store, usual)
		},
		"deleted while the fleet moves to another hub: does not create it": func(s *server, store *seal.Store) {
			key := s.load(store).Key
			s.remove()
			got, err := store.Serve(s.t.Context(), fleet, own, true)
			if err != nil || !bytes.Equal(got.Key, key) {
				s.t.Errorf("%v, or another key", err)
			}
			s.wrote(0)
		},
	})
	for name, verb := range map[string]string{"no Secret": "create", "no mark": "update"} {
		begin := func(s *server) {
			if verb == "create" {
				s.remove()
			}
		}
		run(t, map[string]func(*server, *seal.Store){
			name + ", two installations at once: one serves": func(s *server, store *seal.Store) {
				begin(s)
				s.once(verb, func() error { s.serve(s.store(), beside); return nil })
				if _, err := store.Serve(s.t.Context(), fleet, own, false); !errors.Is(err, seal.ErrServed) {
					s.t.Error(err)
				}
			},
			name + ", two members join at once: one seal": func(s *server, store *seal.Store) {
				begin(s)
				s.once(verb, func() error { s.serve(store, own); return nil })
				s.serve(store, own)
				s.wrote(2)
			},
		})
	}
	for how, moving := range map[string]bool{"moving: not created": true, "not moving: created": false} {
		t.Run("deleted between a read and a write, "+how, func(t *testing.T) {
			s := newServer(t, theSecret())
			store := s.store()
			key := s.load(store).Key
			s.once("update", func() error { s.remove(); return conflict })
			got, err := store.Serve(t.Context(), fleet, own, moving)
			if err != nil || !bytes.Equal(got.Key, key) {
				t.Errorf("%v, or another key", err)
			}
			err = s.Get(s.context(), name, &corev1.Secret{})
			if apierrors.IsNotFound(err) != moving {
				t.Errorf("%v", err)
			}
		})
	}
}
