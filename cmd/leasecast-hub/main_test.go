package main

import (
	"io"
	"log"
	"os"
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

// net/http logs what a member sends unasked, which may repeat the hub's token.
func TestWhatMembersSendUnaskedIsNotLogged(t *testing.T) {
	args := os.Args
	t.Cleanup(func() { os.Args = args })
	os.Args = []string{"leasecast-hub", "-version"}
	if err := run(t.Context()); err != nil || log.Writer() != io.Discard {
		t.Errorf("%v; the standard logger writes to %v", err, log.Writer())
	}
}
