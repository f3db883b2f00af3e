package main

import (
	"slices"
	"testing"

	"go.uber.org/zap/zapcore"
)

func TestNamespacesAreNamesSeparatedByCommas(t *testing.T) {
	for list, want := range map[string][]string{"": nil, " ": nil, "a": {"a"}, "a,b": {"a", "b"}, "a, b": {"a", "b"}} {
		if got, err := namespaces(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", list, got, err, want)
		}
	}
	for _, list := range []string{",", "a,", "a,,b", "A", "a b", "a.b"} {
		if got, err := namespaces(list); err == nil {
			t.Errorf("%q: %v", list, got)
		}
	}
}

func TestTheVerbosityIsFromZeroToTen(t *testing.T) {
	for verbosity, want := range map[int]zapcore.Level{0: zapcore.InfoLevel, 1: zapcore.DebugLevel, 10: -10} {
		if got, err := level(verbosity); err != nil || got != want {
			t.Errorf("%d: %v, %v; want %v", verbosity, got, err, want)
		}
	}
	for _, verbosity := range []int{-1, 11, 130, 256} {
		if got, err := level(verbosity); err == nil {
			t.Errorf("%d is the level %v", verbosity, got)
		}
	}
}
