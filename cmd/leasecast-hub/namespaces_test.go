package main

import (
	"slices"
	"testing"
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
