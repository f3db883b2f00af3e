package seal_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/leasecast/leasecast/hub/seal"
)

// An empty Secret is filled with the seal in use, or a first one, unless only its mark is left.
func TestEmptySecret(t *testing.T) {
	for name, test := range map[string]func(s *server, store *seal.Store, empty func(*corev1.Secret)){
		"served, no seal is known: filled with a first seal": func(s *server, store *seal.Store, empty func(*corev1.Secret)) {
			s.edit(reset, empty)
			s.serve(store, own)
			if _, ok := s.secret().Labels["clusterctl.cluster.x-k8s.io/move"]; !ok {
				s.t.Error("a move does not bring it along")
			}
		},
		"loaded, no seal is known: filled with a first seal": func(s *server, store *seal.Store, empty func(*corev1.Secret)) {
			s.edit(reset, empty)
			s.hasKey(s.load(store).Key)
		},
		"only found: not filled": func(s *server, store *seal.Store, empty func(*corev1.Secret)) {
			s.edit(reset, empty)
			before := s.writes
			if got, err := store.Find(s.t.Context(), fleet); err != nil || len(got.Key) > 0 {
				s.t.Errorf("%v, a key of %d bytes", err, len(got.Key))
			}
			s.wrote(before)
		},
		"two replicas fill it at once: both get one key": func(s *server, store *seal.Store, empty func(*corev1.Secret)) {
			s.edit(reset, empty)
			var first seal.Seal
			s.once("update", func() error { first = s.load(s.store()); return nil })
			if second := s.load(store); !bytes.Equal(first.Key, second.Key) {
				s.t.Error("two keys")
			}
		},
		"served, a seal is known: filled with that": func(s *server, store *seal.Store, empty func(*corev1.Secret)) {
			key := s.load(store).Key
			s.edit(reset, empty)
			s.serve(store, own)
			s.hasKey(key)
			s.knows(store, usual)
			s.edit(empty) // the mark stays
			s.serve(store, own)
			s.hasKey(key)
		},
		"raised, a seal is known: filled with that and the larger bounds": func(s *server, store *seal.Store,
			empty func(*corev1.Secret)) {
			key := s.load(store).Key
			s.edit(reset, empty)
			s.raise(store, larger)
			s.hasKey(key)
			s.knows(store, larger)
		},
		"raised, and not filled: does not count": func(s *server, store *seal.Store, empty func(*corev1.Secret)) {
			s.load(store)
			s.edit(reset, empty)
			s.fails(errSay, "update")
			s.failsToRaise(store, errSay)
		},
		"three conflicts: no key": func(s *server, store *seal.Store, empty func(*corev1.Secret)) {
			s.edit(reset, empty)
			s.fails(conflict, "update")
			if got, err := store.Serve(s.t.Context(), fleet, own, false); !apierrors.IsConflict(err) || len(got.Key) > 0 {
				s.t.Errorf("%v, a key of %d bytes", err, len(got.Key))
			}
		},
		"another installation's mark: not filled": func(s *server, store *seal.Store, empty func(*corev1.Secret)) {
			s.edit(marked(beside), empty)
			s.doesNotServe(store, false, seal.ErrServed)
		},
		"the own mark, and no seal is known: the error says what to do": func(s *server, store *seal.Store,
			empty func(*corev1.Secret)) {
			s.edit(marked(own), empty)
			_, found := store.Find(s.t.Context(), fleet)
			_, loaded := store.Load(s.t.Context(), fleet)
			_, served := store.Serve(s.t.Context(), fleet, own, false)
			for how, err := range map[string]error{"Find": found, "Load": loaded, "Serve": served} {
				if !errors.Is(err, seal.ErrBroken) || !strings.Contains(err.Error(), "restore it") ||
					!strings.HasSuffix(err.Error(), "kubectl -n fleet annotate secret leasecast-seal leasecast.dev/hub-") {
					s.t.Errorf("%s: %v", how, err)
				}
			}
			s.wrote(1)                                                                              // the edit's
			s.edit(func(secret *corev1.Secret) { delete(secret.Annotations, "leasecast.dev/hub") }) // as the command does
			s.serve(store, own)
		},
	} {
		for how, empty := range map[string]func(*corev1.Secret){
			"no data":      func(s *corev1.Secret) { s.Data = nil },
			"empty values": func(s *corev1.Secret) { s.Data = map[string][]byte{"key": {}, "policies": nil} },
		} {
			run(t, map[string]func(*server, *seal.Store){
				name + ": " + how: func(s *server, store *seal.Store) { test(s, store, empty) },
			})
		}
	}
}

// reset is what a program does that replaces the Secret by the one of its manifests.
func reset(s *corev1.Secret) { s.Labels, s.Annotations = nil, nil }
