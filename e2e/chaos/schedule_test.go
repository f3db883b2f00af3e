package main

import (
	"reflect"
	"slices"
	"testing"
)

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
			check(t, seed, f)
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

func check(t *testing.T, seed uint64, f Fault) {
	t.Helper()
	k := f.Kind
	switch {
	case f.At < 0 || f.At >= window, f.For < k.least || f.For > max(k.least, k.longest):
		t.Errorf("seed %d: %s is out of time", seed, f)
	case f.Choice < 0 || f.Choice >= max(k.choices, 1):
		t.Errorf("seed %d: %s has no choice %d", seed, f, f.Choice)
	case f.Target == Leader:
		if !slices.Contains(allNamespaces(), f.Namespace) {
			t.Errorf("seed %d: %s: there is no such namespace", seed, f)
		}
	case f.onHub():
		if k.in != inServer && k.in != inReplica {
			t.Errorf("seed %d: %s cannot hit the hub", seed, f)
		}
	case !slices.Contains(memberNames(), f.Target),
		k.in == inNamespace && !slices.Contains(namespacesOf(f.Target), f.Namespace):
		t.Errorf("seed %d: %s has no such target", seed, f)
	}
}
