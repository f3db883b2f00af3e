package main

import (
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// seeds have 19 of the 22 kinds of faults between them.
var seeds = []uint64{687, 1299}

// visible are the kinds whose effect does not depend on what other faults do at the same time.
var visible = []string{
	"apiserver-pause", "apiserver-kill", "etcd-pause", "etcd-kill", "etcd-restore", "reader-pause", "reader-kill",
	"link-delay", "namespace-delete", "priority-change",
}

// TestChaos plays a few schedules on real processes.
func TestChaos(t *testing.T) {
	st := musttest.Get(start(t.Context(), t.TempDir(), func(line string) { t.Log(line) }))(t)
	t.Cleanup(func() {
		if err := st.close(); err != nil {
			t.Error(err)
		}
	})
	changes := 0
	for _, seed := range seeds {
		s := Generate(seed)
		o, err := st.play(t.Context(), s)
		if err != nil {
			t.Fatalf("%s%v", s, err)
		}
		page := filepath.Join(t.TempDir(), "chaos.html")
		musttest.Do(t, o.page().WriteFile(page))
		t.Logf("%s\n%s", o, o.details(page))
		if o.Failed() {
			t.Errorf("seed %d failed", seed)
		}
		for _, f := range o.faults {
			if slices.Contains(visible, f.Kind.name) && !f.Took {
				t.Errorf("%s had no effect: %s", f.Fault, f.Effect)
			}
		}
		changes += o.Changes
	}
	if changes == 0 {
		t.Error("nobody took over from anybody: it proves little")
	}
}

func TestASeedAlwaysMakesTheSameSchedule(t *testing.T) {
	for seed := range uint64(50) {
		if a, b := Generate(seed), Generate(seed); !reflect.DeepEqual(a, b) {
			t.Errorf("seed %d makes two schedules:\n%s%s", seed, a, b)
		}
	}
	if reflect.DeepEqual(Generate(1).Faults, Generate(2).Faults) {
		t.Error("two seeds make one schedule")
	}
}

func TestSchedulesAreSoundAndCoverEverything(t *testing.T) {
	played, hubAlone := map[string]int{}, 0
	for seed := range uint64(500) {
		s := Generate(seed)
		if len(s.Faults) < fewest || len(s.Faults) > most {
			t.Errorf("seed %d has %d faults", seed, len(s.Faults))
		}
		onHub := 0
		for i, f := range s.Faults {
			played[f.Kind.name]++
			if f.onHub() {
				onHub++
			}
			if i > 0 && f.At < s.Faults[i-1].At {
				t.Errorf("seed %d is out of order", seed)
			}
			for _, other := range s.Faults[:i] {
				if collide(f, other) {
					t.Errorf("seed %d: %s and %s want the same", seed, f, other)
				}
			}
		}
		if onHub > mostOnHub {
			t.Errorf("seed %d hits the hub %d times", seed, onHub)
		}
		if onHub == 0 {
			hubAlone++
		}
	}
	for _, k := range kinds {
		if played[k.name] < 40 {
			t.Errorf("%s is in 500 schedules %d times", k.name, played[k.name])
		}
	}
	if hubAlone < 200 || hubAlone > 400 {
		t.Errorf("%d of 500 schedules leave the hub alone, want about half and more", hubAlone)
	}
}
