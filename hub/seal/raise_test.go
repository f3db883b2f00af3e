package seal_test

import (
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/leasecast/leasecast/hub/seal"
)

func TestRaise(t *testing.T) {
	long, late, slow := seal.Bounds{Duration: 60 * second}, seal.Bounds{Skew: 1500 * time.Millisecond},
		seal.Bounds{Stop: 17 * second}
	run(t, map[string]func(*server, *seal.Store){
		"is persisted before it returns, each bound alone": func(s *server, store *seal.Store) {
			for _, b := range []seal.Bounds{long, late, slow} {
				s.raise(store, b)
				if got := s.load(s.store()).Largest(); got != got.Max(b) {
					s.t.Errorf("%v was raised, the next replica has %v", b, got)
				}
			}
			s.knows(store, long.Max(late).Max(slow))
		},
		"without a Secret: creates it": func(s *server, store *seal.Store) {
			s.remove()
			s.raise(store, larger)
			s.knows(store, larger)
		},
		"by a replica that did not see what another one raised: keeps both": func(s *server, store *seal.Store) {
			s.load(store)
			s.raise(s.store(), long)
			s.raise(store, late)
			s.raise(store, slow)
			s.knows(store, long.Max(late).Max(slow))
		},
		"to what another replica has raised: writes nothing": func(s *server, store *seal.Store) {
			same := s.store()
			s.load(store)
			s.load(same)
			s.raise(s.store(), larger)
			s.raise(store, long)
			s.raise(same, larger)
			s.wrote(1)
			s.knows(store, larger)
		},
		"to what is known: sends no request": func(s *server, store *seal.Store) {
			s.load(store)
			s.fails(errSay)
			s.raise(store, usual)
			s.raise(store, seal.Bounds{Duration: 3 * second, Skew: second / 4})
			s.wrote(0)
		},
		"while a larger one is answered first: keeps the larger one": func(s *server, store *seal.Store) {
			for larger, smaller := range map[seal.Bounds]seal.Bounds{long: {Duration: 30 * second}, {Skew: 3 * second}: late} {
				s.answer = func() {
					s.mu.Lock()
					s.answer = nil
					s.mu.Unlock()
					s.raise(store, larger)
				}
				s.raise(store, smaller)
			}
			s.knows(store, seal.Bounds{Duration: 60 * second, Skew: 3 * second})
		},
		"on a conflict: fails, and succeeds the next time": func(s *server, store *seal.Store) {
			s.once("update", func() error { s.raise(s.store(), larger); return nil })
			if err := store.Raise(s.t.Context(), fleet, "shops", long); !apierrors.IsConflict(err) {
				s.t.Errorf("error: %v", err)
			}
			s.raise(store, long)
			s.knows(store, larger)
		},
		"where the update fails: does not count": func(s *server, store *seal.Store) {
			s.fails(errSay, "update")
			s.failsToRaise(store, errSay)
			s.raise(store, larger)
			s.knows(store, larger)
		},
		"where the Secret cannot be read: writes nothing": func(s *server, store *seal.Store) {
			s.load(store)
			s.fails(errSay, "get")
			s.failsToRaise(store, errSay)
			s.wrote(0)
		},
		"where a deleted Secret cannot be created again: does not count": func(s *server, store *seal.Store) {
			s.load(store)
			s.remove()
			s.fails(errSay, "create")
			s.failsToRaise(store, errSay)
		},
		"where no Secret can be created: fails": func(s *server, store *seal.Store) {
			s.remove()
			s.once("create", func() error { return errSay }) // the next one would be created
			if err := store.Raise(s.t.Context(), fleet, "shops", larger); !errors.Is(err, errSay) {
				s.t.Errorf("error: %v", err)
			}
			s.hasKey(s.load(s.store()).Key)
		},
		"after the Secret was deleted: creates it with the key in use and the larger bounds": func(s *server,
			store *seal.Store) {
			key := s.load(store).Key
			for _, b := range []seal.Bounds{{Duration: 3 * second, Skew: 2 * second},
				{Duration: 60 * second, Skew: second / 4}} {
				s.remove()
				s.raise(store, b)
				s.hasKey(key)
			}
			s.knows(store, seal.Bounds{Duration: 60 * second, Skew: 2 * second})
			if _, ok := s.secret().Labels["clusterctl.cluster.x-k8s.io/move"]; !ok {
				s.t.Errorf("labels: %v", s.secret().Labels)
			}
		},
		"where the Secret has another key: writes nothing, and asks to restart the hub": func(s *server, store *seal.Store) {
			s.load(store)
			s.edit(anotherKey)
			before := s.secret().ResourceVersion
			err := store.Raise(s.t.Context(), fleet, "shops", larger)
			if !errors.Is(err, seal.ErrBroken) || strings.Contains(err.Error(), "32 B") ||
				!strings.Contains(err.Error(), "restart the hub") {
				s.t.Errorf("error: %v", err)
			}
			if s.secret().ResourceVersion != before {
				s.t.Error("it was written")
			}
		},
		"leaves other labels and data": func(s *server, store *seal.Store) {
			s.edit(func(secret *corev1.Secret) { secret.Labels["team"] = "platform" }, put("note", "keep"))
			s.raise(store, larger)
			if got := s.secret(); got.Labels["team"] != "platform" || string(got.Data["note"]) != "keep" {
				s.t.Errorf("labels %v", got.Labels)
			}
		},
		"by many callers at once: the largest counts": func(s *server, store *seal.Store) {
			var wg sync.WaitGroup
			for i := range 30 {
				wg.Go(func() {
					b := seal.Bounds{Duration: time.Duration(i+31) * second}
					for store.Raise(s.t.Context(), fleet, "shops", b) != nil &&
						s.t.Context().Err() == nil { // a conflict is tried again
					}
					if got, _ := store.Load(s.t.Context(), fleet); got.Largest() != got.Largest().Max(b) {
						s.t.Errorf("%v was raised, %v counts", b, got.Largest())
					}
				})
			}
			wg.Wait()
			s.knows(store, seal.Bounds{Duration: 60 * second, Skew: second})
		},
	})
}

// The bounds of one policy do not delay the namespaces of another one.
func TestEachPolicyHasItsOwnBounds(t *testing.T) {
	fast := seal.Bounds{Duration: 3 * second, Skew: second / 4}
	slow := seal.Bounds{Duration: 15 * second, Skew: second, Stop: 155 * second}
	both, slowGone := map[string]seal.Bounds{"fast": fast, "slow": slow}, map[string]seal.Bounds{"fast": fast}
	type rig struct {
		*server
		store *seal.Store
	}
	raise := func(r *rig, store *seal.Store, policy string, b seal.Bounds) {
		if err := store.Raise(r.t.Context(), fleet, policy, b); err != nil {
			r.t.Fatal(err)
		}
	}
	lower := func(r *rig, after map[string]seal.Bounds) {
		if err := r.store.Lower(r.t.Context(), fleet, maps.Clone(both), after); err != nil {
			r.t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		do         func(*rig)
		fast, slow seal.Bounds
	}{
		"raised":              {func(*rig) {}, fast, slow},
		"lowered":             {func(r *rig) { lower(r, map[string]seal.Bounds{"fast": fast, "slow": fast}) }, fast, fast},
		"a policy is dropped": {func(r *rig) { lower(r, slowGone) }, fast, seal.Bounds{}},
		"lowered, but raised since it was read": {func(r *rig) {
			raise(r, r.store, "fast", slow)
			lower(r, slowGone)
		}, slow, slow},
		"lowered, but another replica has raised": {func(r *rig) {
			raise(r, r.server.store(), "fast", slow)
			lower(r, slowGone)
			r.store = r.server.store()
		}, slow, slow},
		"lowered, then raised": {func(r *rig) {
			lower(r, slowGone)
			raise(r, r.store, "slow", slow)
		}, fast, slow},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, theSecret(put("policies", "{}")))
			r := &rig{s, s.store()}
			raise(r, r.store, "fast", fast)
			raise(r, r.store, "slow", slow)
			test.do(r)
			for who, store := range map[string]*seal.Store{"this replica": r.store, "the next replica": s.store()} {
				if got := s.load(store); got.Of("fast") != test.fast || got.Of("slow") != test.slow ||
					got.Of("new") != (seal.Bounds{}) {
					t.Errorf("%s has %v", who, got.Policies)
				}
			}
		})
	}
}
