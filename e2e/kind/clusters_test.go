package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/leasecast/leasecast/e2e/harness"
)

func TestAClusterOfAnotherCheckoutIsLeftAlone(t *testing.T) {
	programs := t.TempDir()
	harness.Must(t, os.WriteFile(filepath.Join(programs, "docker"), []byte("#!/bin/sh\necho \"$FOLDER\"\n"), 0o700))
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	p := &place{out: t.TempDir()}
	harness.Must(t, os.MkdirAll(p.acts(hub), 0o700))
	for name, c := range map[string]struct {
		folder string // for act logs, as Docker tells
		owned  bool   // by another checkout
	}{
		"made here":                   {p.acts(hub), false},
		"made elsewhere":              {t.TempDir(), true},
		"its checkout is gone":        {filepath.Join(t.TempDir(), "gone"), false},
		"its checkout cannot be read": {filepath.Join(programs, "docker", "below"), true},
		"there is none":               {"", false},
	} {
		t.Setenv("FOLDER", c.folder)
		if err := p.owned(t.Context(), hub); (err != nil) != c.owned {
			t.Errorf("%s: %v, want owned %t", name, err, c.owned)
		}
	}
}
