package main

import (
	"slices"
	"testing"
)

func TestNamespacesAreSeparatedByCommas(t *testing.T) {
	for list, want := range map[string][]string{"": nil, "prod": {"prod"}, "prod, edge,": {"prod", "edge"}} {
		if got, err := namespaces(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", list, got, err, want)
		}
	}
	for _, list := range []string{",", " ", " , "} {
		if got, err := namespaces(list); err == nil {
			t.Errorf("%q means %q, and must not mean all namespaces", list, got)
		}
	}
}
