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

// theMark is that of the hub that serves the fleet.
var theMark = seal.Mark("uid", "leasecast-system")

// empties are the ways in which a Secret is empty.
var empties = map[string]func(*corev1.Secret){
	"no data":      func(s *corev1.Secret) { s.Data = nil },
	"empty values": func(s *corev1.Secret) { s.Data = map[string][]byte{"key": {}, "largest-max-clock-skew": nil} },
}

// reset is what a program does that replaces the Secret by the one of its manifests.
func reset(empty func(*corev1.Secret)) func(*corev1.Secret) {
	return func(s *corev1.Secret) {
		s.Labels, s.Annotations = nil, nil
		empty(s)
	}
}

func TestAnEmptySecretIsFilledWithTheSealInUse(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, empty func(*corev1.Secret)){
		"one that came with the installation, by a first seal": func(t *testing.T, empty func(*corev1.Secret)) {
			s := newServer(t, theSecret(reset(empty)))
			got, err := s.store().Serve(t.Context(), fleet, theMark, false)
			if now := s.secret(); err != nil || len(got.Key) != 32 || !bytes.Equal(now.Data["key"], got.Key) || seal.MarkOf(now) != theMark {
				t.Fatalf("%v, a key of %d bytes, mark %q", err, len(got.Key), seal.MarkOf(now))
			}
			if _, ok := s.secret().Labels["clusterctl.cluster.x-k8s.io/move"]; !ok {
				t.Error("a move does not bring it along")
			}
		},
		"also before the fleet is served": func(t *testing.T, empty func(*corev1.Secret)) {
			s := newServer(t, theSecret(reset(empty)))
			if got := s.loads(s.store()); !bytes.Equal(s.secret().Data["key"], got.Key) {
				t.Error("another key than the Secret's")
			}
		},
		"but not by a mere look": func(t *testing.T, empty func(*corev1.Secret)) {
			s := newServer(t, theSecret(reset(empty)))
			if got, err := s.store().Find(t.Context(), fleet); err != nil || len(got.Key) > 0 || s.writes > 0 {
				t.Errorf("%v, a key of %d bytes, %d writes", err, len(got.Key), s.writes)
			}
		},
		"of two replicas that fill it at once, both end with one key": func(t *testing.T, empty func(*corev1.Secret)) {
			s := newServer(t, theSecret(reset(empty)))
			var first seal.Seal
			s.hears(func(verb string) error {
				if verb == "update" {
					s.hears(nil)
					first = s.loads(s.store())
				}
				return nil
			})
			if second := s.loads(s.store()); !bytes.Equal(first.Key, second.Key) {
				t.Error("two keys")
			}
		},
		"one that was reset while its seal is in use": func(t *testing.T, empty func(*corev1.Secret)) {
			for how, again := range map[string]func(s *server, store *seal.Store) error{
				"Serve": func(_ *server, store *seal.Store) error {
					_, err := store.Serve(t.Context(), fleet, theMark, false)
					return err
				},
				"Raise": func(_ *server, store *seal.Store) error {
					return store.Raise(t.Context(), fleet, "shops", seal.Bounds{Duration: 60 * second, Skew: second})
				},
			} {
				s := newServer(t, theSecret())
				store := s.store()
				key := s.loads(store).Key
				s.edit(reset(empty))
				if err := again(s, store); err != nil || !bytes.Equal(s.secret().Data["key"], key) {
					t.Errorf("%s: %v, or another key", how, err)
				}
				if got := s.loads(s.store()); got.Largest().Duration < 15*second || got.Largest().Skew != second {
					t.Errorf("%s: the next replica finds D %v, ε %v", how, got.Largest().Duration, got.Largest().Skew)
				}
			}
		},
		"one that was reset but kept the mark, by a replica that knows the seal": func(t *testing.T, empty func(*corev1.Secret)) {
			s := newServer(t, theSecret(marked(theMark)))
			store := s.store()
			key := s.loads(store).Key
			s.edit(empty)
			got, err := store.Serve(t.Context(), fleet, theMark, false)
			if err != nil || !bytes.Equal(got.Key, key) || !bytes.Equal(s.secret().Data["key"], key) {
				t.Errorf("%v, or another key", err)
			}
		},
		"but nothing counts as raised that could not be filled in": func(t *testing.T, empty func(*corev1.Secret)) {
			s := newServer(t, theSecret())
			store := s.store()
			s.loads(store)
			s.edit(reset(empty))
			s.hears(func(verb string) error {
				if verb == "update" {
					return errSay
				}
				return nil
			})
			if err := store.Raise(t.Context(), fleet, "shops", seal.Bounds{Duration: 60 * second, Skew: second}); !errors.Is(err, errSay) {
				t.Errorf("error: %v", err)
			}
			if got := s.loads(store); got.Largest().Duration != 15*second {
				t.Errorf("D %v was not written, but is remembered", got.Largest().Duration)
			}
		},
		"but not for another installation": func(t *testing.T, empty func(*corev1.Secret)) {
			s := newServer(t, theSecret(marked(seal.Mark("uid", "platform")), empty))
			if _, err := s.store().Serve(t.Context(), fleet, theMark, false); !errors.Is(err, seal.ErrServed) || s.writes > 0 {
				t.Errorf("%v, %d writes", err, s.writes)
			}
		},
		"nor where somebody else is faster": func(t *testing.T, empty func(*corev1.Secret)) {
			s := newServer(t, theSecret(reset(empty)))
			s.hears(func(verb string) error {
				if verb == "update" {
					return apierrors.NewConflict(corev1.Resource("secrets"), "leasecast-seal", errors.New("changed"))
				}
				return nil
			})
			if got, err := s.store().Serve(t.Context(), fleet, theMark, false); !apierrors.IsConflict(err) || len(got.Key) > 0 {
				t.Errorf("%v, a key of %d bytes", err, len(got.Key))
			}
		},
		"and people decide where its seal is lost": func(t *testing.T, empty func(*corev1.Secret)) {
			s := newServer(t, theSecret(marked(theMark), empty))
			store := s.store()
			_, found := store.Find(t.Context(), fleet)
			_, loaded := store.Load(t.Context(), fleet)
			_, served := store.Serve(t.Context(), fleet, theMark, false)
			for how, err := range map[string]error{"Find": found, "Load": loaded, "Serve": served} {
				if !errors.Is(err, seal.ErrBroken) || !strings.Contains(err.Error(), "restore it") ||
					!strings.HasSuffix(err.Error(), "kubectl -n fleet annotate secret leasecast-seal leasecast.dev/hub-") {
					t.Errorf("%s: %v", how, err)
				}
			}
			if s.writes > 0 {
				t.Errorf("%d writes", s.writes)
			}
			s.edit(func(secret *corev1.Secret) { delete(secret.Annotations, "leasecast.dev/hub") }) // as the command does
			got, err := store.Serve(t.Context(), fleet, theMark, false)
			if err != nil || len(got.Key) != 32 || !bytes.Equal(s.secret().Data["key"], got.Key) {
				t.Errorf("after the command: %v, a key of %d bytes", err, len(got.Key))
			}
		},
	} {
		for how, empty := range empties {
			t.Run(name+": "+how, func(t *testing.T) { test(t, empty) })
		}
	}
}

func TestASecretThatCannotBeReadIsNotTakenForAnEmptyOne(t *testing.T) {
	s := newServer(t, theSecret())
	s.hears(func(verb string) error {
		if verb == "get" {
			return apierrors.NewServiceUnavailable("later")
		}
		return nil
	})
	if got, err := s.store().Find(t.Context(), fleet); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a key of %d bytes, %v", len(got.Key), err)
	}
}
