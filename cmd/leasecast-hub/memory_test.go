package main

import (
	"runtime/debug"
	"testing"
)

func TestTheHeapIsKeptBelowTheContainersLimit(t *testing.T) {
	was := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(was) })
	for name, test := range map[string]struct {
		container, goMemLimit string
		fails                 bool
		want                  int64
	}{
		"four fifths of it":                          {"536870912", "", false, 536870912 / 5 * 4},
		"not if nobody gives one":                    {"", "", false, was},
		"not if somebody else sets the limit for Go": {"536870912", "100MiB", false, was},
		"what is no number is an error":              {"512Mi", "", true, was},
		"nor is nothing one":                         {"0", "", true, was},
	} {
		t.Run(name, func(t *testing.T) {
			debug.SetMemoryLimit(was)
			t.Setenv(memoryVariable, test.container)
			t.Setenv("GOMEMLIMIT", test.goMemLimit)
			err := limitMemory()
			if got := debug.SetMemoryLimit(-1); (err != nil) != test.fails || got != test.want {
				t.Errorf("limit %d, error %v; want %d", got, err, test.want)
			}
		})
	}
}

func TestTheHeapIsCollectedWhenItHasGrownByHalf(t *testing.T) {
	for name, test := range map[string]struct {
		goGC string
		want int
	}{
		"by default":         {"", growthPercent},
		"not if GOGC is set": {"100", 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { debug.SetGCPercent(100) })
			debug.SetGCPercent(100)
			t.Setenv("GOGC", test.goGC)
			t.Setenv(memoryVariable, "")
			if err := limitMemory(); err != nil {
				t.Fatal(err)
			}
			if got := debug.SetGCPercent(100); got != test.want {
				t.Errorf("the heap may grow by %d percent, want %d", got, test.want)
			}
		})
	}
}
