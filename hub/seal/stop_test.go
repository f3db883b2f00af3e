package seal_test

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/hub/seal"
)

// A takeover waits for the largest stop time of fenced locks, so the Secret holds it like D and ε.
func TestTheLargestStopTime(t *testing.T) {
	stops := func(s *server, store *seal.Store, stop, want time.Duration) {
		s.t.Helper()
		if err := store.Raise(s.t.Context(), fleet, "shops", seal.Bounds{Duration: second, Skew: second, Stop: stop}); err != nil {
			s.t.Fatal(err)
		}
		for who, got := range map[string]seal.Seal{"this replica": s.loads(store), "the next replica": s.loads(s.store())} {
			if got.Largest().Stop != want || got.Largest().Duration != 15*second || got.Largest().Skew != second {
				s.t.Errorf("%s knows a stop time of %v, D %v, ε %v; want %v", who, got.Largest().Stop, got.Largest().Duration, got.Largest().Skew, want)
			}
		}
	}
	for name, test := range map[string]func(*testing.T){
		"the largest that a policy can ask for is read": func(t *testing.T) {
			s := newServer(t, theSecret(put("largest-stop-time", seal.MaxStop.String())))
			if got := s.loads(s.store()); got.Largest().Stop != seal.MaxStop {
				t.Errorf("a stop time of %v", got.Largest().Stop)
			}
		},
		"it is raised where D and ε are remembered": func(t *testing.T) {
			s := newServer(t, theSecret())
			stops(s, s.store(), 17*second, 17*second)
		},
		"it is raised by one that has not seen what another has raised": func(t *testing.T) {
			s := newServer(t, theSecret())
			late := s.store()
			s.loads(late)
			stops(s, s.store(), 17*second, 17*second)
			stops(s, late, 20*second, 20*second)
		},
		"it is never lowered": func(t *testing.T) {
			s := newServer(t, theSecret())
			late := s.store()
			s.loads(late)
			stops(s, s.store(), 17*second, 17*second)
			stops(s, late, 3*second, 17*second)
		},
		"nothing is asked for one that is remembered": func(t *testing.T) {
			s := newServer(t, theSecret(put("largest-stop-time", "17s")))
			store := s.store()
			s.loads(store)
			s.hears(func(string) error { return errSay })
			if err := store.Raise(t.Context(), fleet, "shops", seal.Bounds{Duration: second, Skew: second, Stop: 17 * second}); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, test)
	}
}
