package seal_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/seal"
)

var (
	own    = seal.Mark("9b2d", "leasecast-system")
	beside = seal.Mark("9b2d", "platform")
	moved  = seal.Mark("77aa", "platform")
)

func marked(mark string) func(*corev1.Secret) {
	return func(s *corev1.Secret) {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, v1alpha1.HubAnnotation, mark)
	}
}

func TestNeighbour(t *testing.T) {
	for name, tc := range map[string]struct {
		mark, namespace string
		neighbour       bool
	}{
		"this installation":                            {own, "", false},
		"another one on this management cluster":       {beside, "platform", true},
		"one on another management cluster":            {moved, "", false},
		"one of the same namespace on another":         {seal.Mark("77aa", "leasecast-system"), "", false},
		"nobody":                                       {"", "", false},
		"a mark without a namespace":                   {"9b2d", "", false},
		"a cluster whose UID begins like that of this": {seal.Mark("9b2d0", "platform"), "", false},
		"a namespace that begins like that of this":    {own + "-2", "leasecast-system-2", true},
		"a namespace that this one's begins with":      {"9b2d/leasecast", "leasecast", true},
	} {
		t.Run(name, func(t *testing.T) {
			namespace, ok := seal.OtherInstallation(own, tc.mark)
			if ok != tc.neighbour || ok && namespace != tc.namespace {
				t.Errorf("%t, in %q", ok, namespace)
			}
		})
	}
}

func TestServe(t *testing.T) {
	other := func(o *corev1.Secret) { o.Data["key"] = []byte("another for tests, with 32 bytes") }
	serves := func(t *testing.T, s *server, store *seal.Store, mark string) seal.Seal {
		t.Helper()
		got, err := store.Serve(t.Context(), fleet, mark, false)
		if now := s.secret(); err != nil || !bytes.Equal(got.Key, now.Data["key"]) || seal.MarkOf(now) != mark {
			t.Fatalf("the mark is %q, %v, or another key", seal.MarkOf(now), err)
		}
		return got
	}
	for name, test := range map[string]func(*testing.T){
		"makes a Secret with the mark where there is none": func(t *testing.T) {
			s := newServer(t)
			serves(t, s, s.store(), own)
		},
		"puts the mark on what is there, and leaves the rest": func(t *testing.T) {
			s := newServer(t, theSecret(func(o *corev1.Secret) { o.Annotations = map[string]string{"team": "platform"} }))
			if got := serves(t, s, s.store(), own); got.Largest().Duration != 15*second || s.secret().Annotations["team"] != "platform" {
				t.Errorf("D %v, annotations %v", got.Largest().Duration, s.secret().Annotations)
			}
		},
		"writes nothing where the mark stands": func(t *testing.T) {
			s := newServer(t, theSecret(marked(own)))
			if serves(t, s, s.store(), own); s.writes > 0 {
				t.Errorf("%d writes", s.writes)
			}
		},
		"replaces the mark of another management cluster": func(t *testing.T) {
			s := newServer(t, theSecret(marked(moved)))
			serves(t, s, s.store(), own)
		},
		"leaves a fleet to the neighbour that has it": func(t *testing.T) {
			s := newServer(t, theSecret(marked(beside)))
			_, err := s.store().Serve(t.Context(), fleet, own, false)
			if !errors.Is(err, seal.ErrServed) || !strings.Contains(err.Error(), "in namespace platform") || s.writes > 0 {
				t.Errorf("%v, %d writes", err, s.writes)
			}
		},
		"leaves a fleet to the neighbour also if it knew the seal before": func(t *testing.T) {
			s := newServer(t, theSecret(marked(own)))
			store := s.store()
			serves(t, s, store, own)
			s.edit(marked(beside))
			if _, err := store.Serve(t.Context(), fleet, own, false); !errors.Is(err, seal.ErrServed) {
				t.Error(err)
			}
		},
		"leaves a fleet that moves to the neighbour that has it": func(t *testing.T) {
			s := newServer(t, theSecret(marked(own)))
			store := s.store()
			serves(t, s, store, own)
			s.edit(marked(beside))
			if _, err := store.Serve(t.Context(), fleet, own, true); !errors.Is(err, seal.ErrServed) {
				t.Error(err)
			}
		},
		"of two neighbours at once one gets the fleet": func(t *testing.T) {
			for name, objects := range map[string][]*corev1.Secret{"no Secret": nil, "a Secret without a mark": {theSecret()}} {
				s := newServer(t)
				for _, o := range objects {
					if err := s.Create(s.context(), o); err != nil {
						t.Fatal(err)
					}
				}
				s.hears(func(verb string) error {
					if verb != "get" {
						s.hears(nil)
						serves(t, s, s.store(), beside) // between the other's read and its write
					}
					return nil
				})
				if _, err := s.store().Serve(t.Context(), fleet, own, false); !errors.Is(err, seal.ErrServed) {
					t.Errorf("%s: %v", name, err)
				}
			}
		},
		"fails where the API server does not answer in time": func(t *testing.T) {
			for _, verb := range []string{"get", "create"} {
				s := newServer(t)
				s.hears(func(v string) error {
					if v == verb {
						return context.DeadlineExceeded
					}
					return nil
				})
				if got, err := s.store().Serve(t.Context(), fleet, own, false); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v, with a key: %t", verb, err, got.Key != nil)
				}
			}
		},
		"gives up where somebody else is always faster": func(t *testing.T) {
			s := newServer(t, theSecret())
			s.hears(func(verb string) error {
				if verb == "update" {
					return apierrors.NewConflict(corev1.Resource("secrets"), "leasecast-seal", errors.New("changed"))
				}
				return nil
			})
			if _, err := s.store().Serve(t.Context(), fleet, own, false); !apierrors.IsConflict(err) || s.writes != 3 {
				t.Errorf("%v, after %d writes", err, s.writes)
			}
		},
		"of two members that join at once both get the one seal": func(t *testing.T) {
			for name, objects := range map[string][]*corev1.Secret{"no Secret": nil, "a Secret without a mark": {theSecret()}} {
				s := newServer(t)
				for _, o := range objects {
					if err := s.Create(s.context(), o); err != nil {
						t.Fatal(err)
					}
				}
				store := s.store()
				s.hears(func(verb string) error {
					if verb != "get" {
						s.hears(nil)
						serves(t, s, store, own) // between the other's read and its write
					}
					return nil
				})
				if serves(t, s, store, own); s.writes != len(objects)+2 {
					t.Errorf("%s: %d writes", name, s.writes)
				}
			}
		},
		"finds the key that a move has brought in the meantime": func(t *testing.T) {
			s := newServer(t, theSecret())
			store := s.store()
			s.raises(store, 60*second)
			s.edit(other, put("largest-lease-duration-seconds", "20"), drop("policies"))
			if got := serves(t, s, store, own); got.Largest().Duration != 20*second {
				t.Errorf("D %v", got.Largest().Duration)
			}
			if now := s.loads(store); now.Largest().Duration != 20*second {
				t.Errorf("then D %v, or the old key", now.Largest().Duration)
			}
		},
		"makes a deleted Secret again, from what is in use": func(t *testing.T) {
			s := newServer(t, theSecret())
			store := s.store()
			first := s.loads(store)
			s.remove()
			if got := serves(t, s, store, own); !bytes.Equal(got.Key, first.Key) || got.Largest().Duration != first.Largest().Duration {
				t.Errorf("D %v, or another key", got.Largest().Duration)
			}
			s.remembers("15")
		},
		"makes a Secret no more that went with the fleet to another hub": func(t *testing.T) {
			s := newServer(t, theSecret())
			store := s.store()
			first := s.loads(store)
			s.remove()
			before := s.writes
			got, err := store.Serve(t.Context(), fleet, own, true)
			if err != nil || !bytes.Equal(got.Key, first.Key) || s.writes > before {
				t.Errorf("%v, %d writes, or another key", err, s.writes-before)
			}
		},
		"makes none either that went between a read and a write": func(t *testing.T) {
			for _, moving := range []bool{true, false} {
				s := newServer(t, theSecret())
				store := s.store()
				first := s.loads(store)
				s.hears(func(verb string) error {
					if verb != "update" {
						return nil
					}
					s.hears(nil)
					s.remove()
					return apierrors.NewConflict(corev1.Resource("secrets"), "leasecast-seal", errors.New("deleted"))
				})
				got, err := store.Serve(t.Context(), fleet, own, moving)
				if err != nil || !bytes.Equal(got.Key, first.Key) {
					t.Errorf("moving %t: %v, or another key", moving, err)
				}
				if err := s.Get(s.context(), name, &corev1.Secret{}); apierrors.IsNotFound(err) != moving {
					t.Errorf("moving %t: %v", moving, err)
				}
			}
		},
		"asks once where it is refused or not answered": func(t *testing.T) {
			s := newServer(t, theSecret())
			asked := 0
			s.hears(func(string) error { asked++; return errSay })
			if _, err := s.store().Serve(t.Context(), fleet, own, false); !errors.Is(err, errSay) || asked != 1 {
				t.Errorf("%v, asked %d times", err, asked)
			}
		},
		"reads once where nothing is to be written": func(t *testing.T) {
			s := newServer(t, theSecret(marked(own)))
			asked := 0
			s.hears(func(string) error { asked++; return nil })
			if _, err := s.store().Serve(t.Context(), fleet, own, false); err != nil || asked != 1 {
				t.Errorf("%v, asked %d times", err, asked)
			}
		},
		"makes one where the fleet is moving here without": func(t *testing.T) {
			s := newServer(t)
			if _, err := s.store().Serve(t.Context(), fleet, own, true); err != nil || seal.MarkOf(s.secret()) != own {
				t.Error(err)
			}
		},
		"marks no Secret that cannot be used": func(t *testing.T) {
			s := newServer(t, theSecret(drop("key")))
			_, err := s.store().Serve(t.Context(), fleet, own, false)
			if !errors.Is(err, seal.ErrBroken) || !strings.Contains(err.Error(), "secret fleet/leasecast-seal") || s.writes > 0 {
				t.Errorf("%v, %d writes", err, s.writes)
			}
		},
	} {
		t.Run(name, test)
	}
}
