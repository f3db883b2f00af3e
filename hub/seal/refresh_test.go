package seal_test

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A standby knows what the other replica has raised since it read the Secret. Nothing lowers what it knows.
func TestRefresh(t *testing.T) {
	write := func(duration, skew, stop string) func(*corev1.Secret) {
		return func(o *corev1.Secret) {
			o.Data["largest-lease-duration-seconds"] = []byte(duration)
			o.Data["largest-max-clock-skew"], o.Data["largest-stop-time"] = []byte(skew), []byte(stop)
		}
	}
	for name, test := range map[string]struct {
		change  func(*server)
		d, skew time.Duration
		stop    time.Duration
		err     error
	}{
		"what was raised is known":       {func(s *server) { s.edit(write("60", "2s", "17s")) }, 60 * second, 2 * second, 17 * second, nil},
		"what was lowered is not":        {func(s *server) { s.edit(write("5", "500ms", "0s")) }, 15 * second, second, 0, nil},
		"another fleet's seal is not":    {func(s *server) { s.edit(write("60", "2s", "17s"), anotherKey) }, 15 * second, second, 0, nil},
		"a broken one is not":            {func(s *server) { s.edit(write("many", "2s", "17s")) }, 15 * second, second, 0, nil},
		"a Secret that is gone is not":   {(*server).remove, 15 * second, second, 0, nil},
		"one that is not read is told":   {func(s *server) { s.hears(func(string) error { return errSay }) }, 0, 0, 0, errSay},
		"one that was not touched is it": {func(*server) {}, 15 * second, second, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, theSecret())
			store := s.store()
			s.loads(store)
			test.change(s)
			got, err := store.Refresh(t.Context(), fleet)
			if !errors.Is(err, test.err) || got.Largest().Duration != test.d || got.Largest().Skew != test.skew || got.Largest().Stop != test.stop {
				t.Errorf("D %v, ε %v, stop time %v, %v; want %v, %v, %v, %v",
					got.Largest().Duration, got.Largest().Skew, got.Largest().Stop, err, test.d, test.skew, test.stop, test.err)
			}
		})
	}
	t.Run("what was not read before is read", func(t *testing.T) {
		s := newServer(t, theSecret())
		if got, err := s.store().Refresh(t.Context(), fleet); err != nil || len(got.Key) != 32 || got.Largest().Duration != 15*second {
			t.Errorf("a key of %d bytes, D %v, %v", len(got.Key), got.Largest().Duration, err)
		}
	})
	t.Run("none is made where there is none", func(t *testing.T) {
		s := newServer(t)
		got, err := s.store().Refresh(t.Context(), fleet)
		if err != nil || got.Key != nil || s.writes > 0 {
			t.Errorf("a key of %d bytes, %v, %d writes", len(got.Key), err, s.writes)
		}
	})
}

func anotherKey(o *corev1.Secret) { o.Data["key"] = []byte("of another one, exactly of 32 B.") }
