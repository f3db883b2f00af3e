package main

import (
	"flag"
	"io"
	"log"
	"os"
	"slices"
	"strings"
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

// setArgs sets the command line of the hub.
func setArgs(t *testing.T, args ...string) {
	before, flags := os.Args, flag.CommandLine
	t.Cleanup(func() { os.Args, flag.CommandLine = before, flags })
	os.Args, flag.CommandLine = append([]string{"leasecast-hub"}, args...), flag.NewFlagSet("", flag.ContinueOnError)
}

// Otherwise a hub for one fleet would serve all.
func TestAHubWithAStrayWordBeforeItsFlagsDoesNotStart(t *testing.T) {
	t.Setenv("KUBECONFIG", os.DevNull)
	setArgs(t, "-v=1", "stray", "-namespace=prod")
	if err := run(t.Context()); err == nil || !strings.Contains(err.Error(), `"stray" is no flag`) {
		t.Errorf("got %v", err)
	}
}

// net/http logs what a member sends unasked, which may repeat the hub's token.
func TestWhatMembersSendUnaskedIsNotLogged(t *testing.T) {
	setArgs(t, "-version")
	if err := run(t.Context()); err != nil || log.Writer() != io.Discard {
		t.Errorf("%v; the standard logger writes to %v", err, log.Writer())
	}
}
