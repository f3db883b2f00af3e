package seal_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestFindAndRefresh(t *testing.T) {
	other := func(o *corev1.Secret) { o.Data["key"] = []byte("another for tests, with 32 bytes") }
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
		"Refresh makes one where there is none": func(t *testing.T) {
			s := newServer(t)
			got, err := s.store().Refresh(t.Context(), fleet)
			if err != nil || !bytes.Equal(got.Key, s.secret().Data["key"]) {
				t.Errorf("a key of %d bytes, %v", len(got.Key), err)
			}
		},
		"Refresh finds the key that a move has brought in the meantime": func(t *testing.T) {
			s := newServer(t, theSecret())
			store := s.store()
			s.raises(store, 60*second)
			s.edit(other, put("largest-lease-duration-seconds", "20"))
			got, err := store.Refresh(t.Context(), fleet)
			if err != nil || !bytes.Equal(got.Key, s.secret().Data["key"]) || got.Largest != 20*second {
				t.Errorf("D %v, %v, or the old key", got.Largest, err)
			}
			if now := s.loads(store); !bytes.Equal(now.Key, got.Key) || now.Largest != 20*second {
				t.Errorf("then D %v, or the old key", now.Largest)
			}
		},
		"Find asks nothing for what is known": func(t *testing.T) {
			s := newServer(t, theSecret())
			store := s.store()
			s.loads(store)
			s.hears(func(string) error { return errSay })
			if got, err := store.Find(t.Context(), fleet); err != nil || got.Largest != 15*second {
				t.Errorf("D %v, %v", got.Largest, err)
			}
		},
		"Refresh says that it could not ask": func(t *testing.T) {
			s := newServer(t, theSecret())
			store := s.store()
			s.loads(store)
			s.hears(func(string) error { return errSay })
			if got, err := store.Refresh(t.Context(), fleet); !errors.Is(err, errSay) {
				t.Errorf("D %v, %v", got.Largest, err)
			}
		},
		"Refresh keeps what is in use where the Secret was deleted": func(t *testing.T) {
			s := newServer(t, theSecret())
			store := s.store()
			first := s.loads(store)
			s.remove()
			got, err := store.Refresh(t.Context(), fleet)
			if err != nil || !bytes.Equal(got.Key, first.Key) || got.Largest != first.Largest {
				t.Errorf("D %v, %v, or another key", got.Largest, err)
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
	if err := store.Raise(t.Context(), fleet, 60*second, second); !errors.Is(err, errSay) {
		t.Errorf("error: %v", err)
	}
	if got := s.loads(store); got.Largest != 15*second {
		t.Errorf("D %v", got.Largest)
	}
}

func TestTheLargestNumberOfSecondsIsRead(t *testing.T) {
	s := newServer(t, theSecret(put("largest-lease-duration-seconds", "2147483647")))
	if got := s.loads(s.store()); got.Largest != 2147483647*second {
		t.Errorf("D %v", got.Largest)
	}
}

func TestALargerSkewThatWasDoneInTheMeantimeIsNotForgotten(t *testing.T) {
	s := newServer(t, theSecret())
	store := s.store()
	raise := func(skew time.Duration) {
		if err := store.Raise(t.Context(), fleet, second, skew); err != nil {
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
	if got := s.loads(store); got.LargestSkew != 3*second {
		t.Errorf("ε %v", got.LargestSkew)
	}
}
