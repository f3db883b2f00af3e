package seal_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/hub/seal"
)

const (
	fleet  = "fleet"
	second = time.Second
)

var (
	name   = types.NamespacedName{Namespace: fleet, Name: seal.SecretName}
	errSay = errors.New("no")
)

func TestLoad(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"makes a Secret that clusterctl move takes along": func(t *testing.T) {
			s := newServer(t)
			got, made := s.loads(s.store()), s.secret()
			if len(got.Key) != 32 || !bytes.Equal(made.Data["key"], got.Key) || got.Largest().Duration != 0 {
				t.Errorf("a key of %d bytes, D %v", len(got.Key), got.Largest().Duration)
			}
			if _, ok := made.Labels["clusterctl.cluster.x-k8s.io/move"]; !ok {
				t.Errorf("labels: %v", made.Labels)
			}
			s.remembers("0")
		},
		"makes another key for each": func(t *testing.T) {
			a, b := newServer(t), newServer(t)
			if bytes.Equal(a.loads(a.store()).Key, b.loads(b.store()).Key) {
				t.Error("two hubs share a key")
			}
		},
		"finds what is there": func(t *testing.T) {
			s := newServer(t, theSecret())
			got := s.loads(s.store())
			if string(got.Key) != "only for tests, of exactly 32 B." || got.Largest().Duration != 15*second || s.writes > 0 {
				t.Errorf("D %v, %d writes", got.Largest().Duration, s.writes)
			}
		},
		"asks once": func(t *testing.T) {
			s := newServer(t)
			store := s.store()
			first := s.loads(store)
			s.hears(func(string) error { return errSay })
			if again := s.loads(store); !bytes.Equal(again.Key, first.Key) {
				t.Error("another key")
			}
		},
		"gives the next replica the same key": func(t *testing.T) {
			s := newServer(t)
			if !bytes.Equal(s.loads(s.store()).Key, s.loads(s.store()).Key) {
				t.Error("another key")
			}
		},
		"of two replicas that make it at once, both end with the same key": func(t *testing.T) {
			s := newServer(t)
			a, b := s.store(), s.store()
			var first seal.Seal
			s.hears(func(verb string) error {
				if verb == "create" {
					s.hears(nil)
					first = s.loads(a) // between the other's read and its create
				}
				return nil
			})
			if second := s.loads(b); !bytes.Equal(first.Key, second.Key) || len(second.Key) != 32 {
				t.Error("two keys")
			}
		},
		"of many callers in one process, all get the same key": func(t *testing.T) {
			s := newServer(t)
			store := s.store()
			keys := make([]seal.Seal, 20)
			var wg sync.WaitGroup
			for i := range keys {
				wg.Go(func() { keys[i], _ = store.Load(t.Context(), fleet) })
			}
			wg.Wait()
			for _, k := range keys {
				if !bytes.Equal(k.Key, s.secret().Data["key"]) {
					t.Fatal("another key than the Secret's")
				}
			}
		},
		"keeps fleets apart": func(t *testing.T) {
			s := newServer(t)
			store := s.store()
			other, err := store.Load(t.Context(), "another")
			if err != nil || bytes.Equal(other.Key, s.loads(store).Key) {
				t.Errorf("%v, or one key for two fleets", err)
			}
		},
		"fails where it is refused, and says of what": func(t *testing.T) {
			s := newServer(t)
			s.hears(func(string) error {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, seal.SecretName, errSay)
			})
			_, err := s.store().Load(t.Context(), fleet)
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "secret fleet/leasecast-seal") {
				t.Errorf("error: %v", err)
			}
		},
	} {
		t.Run(name, test)
	}
}

func put(key, value string) func(*corev1.Secret) {
	return func(s *corev1.Secret) { s.Data[key] = []byte(value) }
}

func drop(key string) func(*corev1.Secret) {
	return func(s *corev1.Secret) { delete(s.Data, key) }
}

var broken = map[string]func(*corev1.Secret){
	"no key":            drop("key"),
	"an empty key":      put("key", ""),
	"a short key":       put("key", "only for tests, and too short"),
	"a long key":        put("key", "only for tests, and longer than 32 B"),
	"no largest D":      drop("largest-lease-duration-seconds"),
	"an empty largest":  put("largest-lease-duration-seconds", ""),
	"no number":         put("largest-lease-duration-seconds", "only for tests"),
	"a negative number": put("largest-lease-duration-seconds", "-15"),
	"a huge number":     put("largest-lease-duration-seconds", "99999999999999999999"),
	"over 32 bits":      put("largest-lease-duration-seconds", "2147483648"),
	"a duration":        put("largest-lease-duration-seconds", "15s"),
	"no largest ε":      drop("largest-max-clock-skew"),
	"an ε without unit": put("largest-max-clock-skew", "1"),
	"a negative ε":      put("largest-max-clock-skew", "-1s"),

	"a stop time without unit":                put("largest-stop-time", "17"),
	"a negative stop time":                    put("largest-stop-time", "-1ns"),
	"a longer stop time than any policy's is": put("largest-stop-time", "5h0m0.000000001s"),
}

// A Secret that cannot be used is not replaced: the Leases out there are sealed with its key.
func TestABrokenSecretFailsClosed(t *testing.T) {
	quiet := func(t *testing.T, err error) {
		t.Helper()
		if !errors.Is(err, seal.ErrBroken) || !strings.Contains(err.Error(), "secret fleet/leasecast-seal") {
			t.Errorf("error: %v", err)
		}
		if !strings.Contains(err.Error(), "must ") {
			t.Errorf("the error does not say what is wrong: %v", err)
		}
		for _, secret := range []string{"only for tests", "-15", "15s", "9999"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error shows what is in the Secret: %v", err)
			}
		}
	}
	for name, breaks := range broken {
		t.Run("at the start: "+name, func(t *testing.T) {
			s := newServer(t, theSecret(breaks))
			store := s.store()
			_, err := store.Load(t.Context(), fleet)
			quiet(t, err)
			quiet(t, store.Raise(t.Context(), fleet, "shops", seal.Bounds{Duration: 60 * second, Skew: second}))
			if s.writes > 0 {
				t.Errorf("%d writes", s.writes)
			}
			mended := theSecret()
			mended.ResourceVersion = s.secret().ResourceVersion
			if err := s.Update(s.context(), mended); err != nil {
				t.Fatal(err)
			}
			if got := s.loads(store); got.Largest().Duration != 15*second {
				t.Errorf("after it was mended: D %v", got.Largest().Duration)
			}
		})
		t.Run("later: "+name, func(t *testing.T) {
			s := newServer(t, theSecret())
			store := s.store()
			s.loads(store)
			spoiled := s.secret()
			breaks(spoiled)
			if err := s.Update(s.context(), spoiled); err != nil {
				t.Fatal(err)
			}
			before := s.secret()
			quiet(t, store.Raise(t.Context(), fleet, "shops", seal.Bounds{Duration: 60 * second, Skew: second}))
			if after := s.secret(); after.ResourceVersion != before.ResourceVersion {
				t.Error("it was written")
			}
			if got := s.loads(store); got.Largest().Duration != 15*second {
				t.Errorf("D %v was not written, but is remembered", got.Largest().Duration)
			}
		})
	}
}

func TestRaise(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"persists before it returns": func(t *testing.T) {
			s := newServer(t)
			store := s.store()
			s.raises(store, 15*second)
			s.remembers("15")
			if got := s.loads(store); got.Largest().Duration != 15*second {
				t.Errorf("D %v", got.Largest().Duration)
			}
			if got := s.loads(s.store()); got.Largest().Duration != 15*second {
				t.Errorf("to the next replica: D %v", got.Largest().Duration)
			}
		},
		"is not done if it cannot be persisted": func(t *testing.T) {
			s := newServer(t, theSecret())
			store := s.store()
			s.hears(func(verb string) error {
				if verb == "update" {
					return errSay
				}
				return nil
			})
			if err := store.Raise(t.Context(), fleet, "shops", seal.Bounds{Duration: 60 * second, Skew: second}); !errors.Is(err, errSay) || !strings.Contains(err.Error(), "secret fleet/leasecast-seal") {
				t.Errorf("error: %v", err)
			}
			if got := s.loads(store); got.Largest().Duration != 15*second {
				t.Errorf("D %v", got.Largest().Duration)
			}
			s.hears(nil)
			s.raises(store, 60*second)
			s.remembers("60")
		},
		"remembers D and ε each for itself": func(t *testing.T) {
			s := newServer(t, theSecret())
			store, other := s.store(), s.store()
			s.loads(other)
			for _, r := range []struct {
				store                    *seal.Store
				d, skew, wantD, wantSkew time.Duration
			}{
				{store, 3 * second, 1500 * time.Millisecond, 15 * second, 1500 * time.Millisecond}, // a larger ε with a shorter D
				{other, 60 * second, 250 * time.Millisecond, 60 * second, 1500 * time.Millisecond}, // and the other way round, by one that has not seen it
				{store, 3 * second, 1800 * time.Millisecond, 60 * second, 1800 * time.Millisecond}, // and this one has not seen that
			} {
				if err := r.store.Raise(t.Context(), fleet, "shops", seal.Bounds{Duration: r.d, Skew: r.skew}); err != nil {
					t.Fatal(err)
				}
				for _, got := range []seal.Seal{s.loads(r.store), s.loads(s.store())} {
					if got.Largest().Duration != r.wantD || got.Largest().Skew != r.wantSkew {
						t.Errorf("D %v, ε %v, want %v and %v", got.Largest().Duration, got.Largest().Skew, r.wantD, r.wantSkew)
					}
				}
			}
		},
		"writes nothing for what is remembered": func(t *testing.T) {
			s := newServer(t, theSecret())
			store := s.store()
			s.raises(store, 15*second)
			s.raises(store, 3*second)
			if s.writes > 0 {
				t.Errorf("%d writes", s.writes)
			}
			s.remembers("15")
		},
		"asks nothing for what is remembered": func(t *testing.T) {
			s := newServer(t, theSecret())
			store := s.store()
			s.loads(store)
			s.hears(func(string) error { return errSay })
			s.raises(store, 15*second)
		},
		"never forgets a larger one that was done in the meantime": func(t *testing.T) {
			s := newServer(t, theSecret())
			store := s.store()
			s.answer = func() {
				s.mu.Lock()
				s.answer = nil
				s.mu.Unlock()
				s.raises(store, 60*second) // before the other hears that it is done
			}
			s.raises(store, 30*second)
			s.remembers("60")
			if got := s.loads(store); got.Largest().Duration != 60*second {
				t.Errorf("D %v", got.Largest().Duration)
			}
		},
		"writes nothing for what another replica has raised": func(t *testing.T) {
			s := newServer(t, theSecret())
			late, later, other := s.store(), s.store(), s.store()
			s.loads(late)
			s.loads(later)
			s.raises(other, 60*second)
			before := s.writes
			s.raises(late, 30*second)
			s.raises(later, 60*second)
			if s.writes > before {
				t.Errorf("%d writes", s.writes-before)
			}
		},
		"says why the Secret cannot be read, and writes nothing then": func(t *testing.T) {
			s := newServer(t, theSecret())
			store := s.store()
			s.loads(store)
			s.hears(func(verb string) error {
				if verb == "get" {
					return errSay
				}
				return nil
			})
			err := store.Raise(t.Context(), fleet, "shops", seal.Bounds{Duration: 60 * second, Skew: second})
			if !errors.Is(err, errSay) || errors.Is(err, seal.ErrBroken) || s.writes > 0 {
				t.Errorf("%v, %d writes", err, s.writes)
			}
		},
		"never lowers what another replica has raised": func(t *testing.T) {
			s := newServer(t, theSecret())
			late, other := s.store(), s.store()
			s.loads(late)
			s.raises(other, 60*second)
			s.raises(late, 30*second)
			s.remembers("60")
			if got := s.loads(late); got.Largest().Duration != 60*second {
				t.Errorf("D %v", got.Largest().Duration)
			}
		},
		"fails on a conflict, and is right the next time": func(t *testing.T) {
			s := newServer(t, theSecret())
			store, other := s.store(), s.store()
			s.hears(func(verb string) error {
				if verb == "update" {
					s.hears(nil)
					s.raises(other, 60*second) // between the read and the update
				}
				return nil
			})
			if err := store.Raise(t.Context(), fleet, "shops", seal.Bounds{Duration: 30 * second, Skew: second}); !apierrors.IsConflict(err) {
				t.Errorf("error: %v", err)
			}
			s.remembers("60")
			s.raises(store, 30*second)
			s.remembers("60")
		},
		"makes a deleted Secret again, with the key in use": func(t *testing.T) {
			s := newServer(t, theSecret())
			store := s.store()
			key := s.loads(store).Key
			if err := s.Delete(s.context(), theSecret()); err != nil {
				t.Fatal(err)
			}
			s.raises(store, 60*second)
			made := s.secret()
			if !bytes.Equal(made.Data["key"], key) {
				t.Error("another key")
			}
			if _, ok := made.Labels["clusterctl.cluster.x-k8s.io/move"]; !ok {
				t.Errorf("labels: %v", made.Labels)
			}
			s.remembers("60")
		},
		"makes it again with the larger of both": func(t *testing.T) {
			for _, r := range []struct{ d, skew, wantD, wantSkew time.Duration }{
				{3 * second, 2 * second, 15 * second, 2 * second},
				{60 * second, second / 4, 60 * second, second},
			} {
				s := newServer(t, theSecret())
				store := s.store()
				s.loads(store)
				s.remove()
				if err := store.Raise(t.Context(), fleet, "shops", seal.Bounds{Duration: r.d, Skew: r.skew}); err != nil {
					t.Fatal(err)
				}
				if got := s.loads(s.store()); got.Largest().Duration != r.wantD || got.Largest().Skew != r.wantSkew {
					t.Errorf("D %v, ε %v, want %v and %v", got.Largest().Duration, got.Largest().Skew, r.wantD, r.wantSkew)
				}
			}
		},
		"makes no Secret without a key": func(t *testing.T) {
			s := newServer(t)
			s.hears(func(verb string) error {
				if verb != "create" {
					return nil
				}
				s.hears(nil) // the next one would be made
				return errSay
			})
			if err := s.store().Raise(t.Context(), fleet, "shops", seal.Bounds{Duration: 60 * second, Skew: second}); !errors.Is(err, errSay) {
				t.Errorf("error: %v", err)
			}
			if got := s.loads(s.store()); len(got.Key) != 32 {
				t.Errorf("a key of %d bytes", len(got.Key))
			}
		},
		"leaves a Secret with another key alone": func(t *testing.T) {
			s := newServer(t, theSecret())
			store := s.store()
			s.loads(store)
			other := s.secret()
			other.Data["key"] = []byte("another for tests, of just 32 B.")
			if err := s.Update(s.context(), other); err != nil {
				t.Fatal(err)
			}
			err := store.Raise(t.Context(), fleet, "shops", seal.Bounds{Duration: 60 * second, Skew: second})
			if !errors.Is(err, seal.ErrBroken) || strings.Contains(err.Error(), "for tests") || !strings.Contains(err.Error(), "restart the hub") {
				t.Errorf("error: %v", err)
			}
			if got := s.secret(); !bytes.Equal(got.Data["key"], other.Data["key"]) {
				t.Error("the key was overwritten")
			}
			s.remembers("15")
		},
		"leaves what else is in the Secret": func(t *testing.T) {
			s := newServer(t, theSecret(func(o *corev1.Secret) {
				o.Labels["team"] = "platform"
				o.Data["note"] = []byte("keep")
			}))
			s.raises(s.store(), 60*second)
			if got := s.secret(); got.Labels["team"] != "platform" || string(got.Data["note"]) != "keep" {
				t.Errorf("labels %v", got.Labels)
			}
		},
		"by many at once ends with the largest": func(t *testing.T) {
			s := newServer(t)
			store := s.store()
			var wg sync.WaitGroup
			for i := range 30 {
				wg.Go(func() {
					d := time.Duration(i+1) * second
					for store.Raise(t.Context(), fleet, "shops", seal.Bounds{Duration: d, Skew: second}) != nil { // a conflict is the caller's to try again
						if t.Context().Err() != nil {
							return
						}
					}
					if got, _ := store.Load(t.Context(), fleet); got.Largest().Duration < d {
						t.Errorf("after %v was raised: D %v", d, got.Largest().Duration)
					}
				})
			}
			wg.Wait()
			s.remembers("30")
			if got := s.loads(store); got.Largest().Duration != 30*second {
				t.Errorf("D %v", got.Largest().Duration)
			}
		},
	} {
		t.Run(name, test)
	}
}

func TestASealShowsNoKey(t *testing.T) {
	s := newServer(t, theSecret())
	got := s.loads(s.store())
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		for _, shown := range []string{fmt.Sprintf(format, got), fmt.Sprintf(format, &got), fmt.Sprintf(format, got.Key)} {
			if strings.Contains(shown, "tests") || strings.Contains(shown, "6f6e6c79") || strings.Contains(shown, "111") {
				t.Errorf("%s shows %s", format, shown)
			}
		}
	}
}
