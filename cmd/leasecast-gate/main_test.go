package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/leasecast/leasecast/member/command"
)

func TestWhatIsAskedOfTheGate(t *testing.T) {
	cases := map[string]struct {
		args    string
		command []string
		check   bool
		err     string // contains
	}{
		"a program":                     {"-namespace shop -- sleep -x 1", []string{"sleep", "-x", "1"}, false, ""},
		"a program without dashes":      {"-namespace shop sleep 1", []string{"sleep", "1"}, false, ""},
		"a program that is named check": {"-namespace shop -- check", []string{"check"}, false, ""},
		"an address alone":              {"-namespace shop -listen 127.0.0.1:4040", nil, false, ""},
		"a check":                       {"check -namespace shop", nil, true, ""},
		"nothing":                       {"-namespace shop", nil, false, "nothing to do"},
		"no namespace":                  {"-- sleep 1", nil, false, "-namespace is empty"},
		"a check of no namespace":       {"check", nil, true, "-namespace is empty"},
		"a check with a program":        {"check -namespace shop -- sleep 1", nil, true, "check takes no program"},
		"a stop after the deadline":     {"-namespace shop -stop-ahead=-1s -- sleep 1", nil, false, "must not be negative"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, err := parse(strings.Fields(tc.args))
			switch {
			case tc.err == "" && err != nil, tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("err = %v, want %q", err, tc.err)
			case tc.err == "" && !slices.Equal(f.command, tc.command), f.check != tc.check:
				t.Errorf("command %q, check %v; want %q, %v", f.command, f.check, tc.command, tc.check)
			}
		})
	}
}

// A script must not take a mistake of its own for an answer.
func TestACheckThatIsMisusedCannotTell(t *testing.T) {
	for _, args := range []string{"check", "check -no-such-flag", "check -namespace shop -kubeconfig /nowhere"} {
		if code, err := run(strings.Fields(args)); code != command.CannotTell || err == nil {
			t.Errorf("%s: exit code %d, err %v; want %d and an error", args, code, err, command.CannotTell)
		}
	}
}
