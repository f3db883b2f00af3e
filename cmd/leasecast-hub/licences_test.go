package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// compatible are words of the licences that may be linked into a program under Apache-2.0.
var compatible = map[string]string{
	"Apache-2.0": "Apache License",
	"MIT":        "Permission is hereby granted, free of charge",
	"BSD":        "Redistribution and use in source and binary forms",
	"ISC":        "Permission to use, copy, modify, and/or distribute this software",
	"ISC, older": "Permission to use, copy, modify, and distribute this software",
}

func TestWhatIsLinkedInHasACompatibleLicence(t *testing.T) {
	const line = "{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}"
	out, err := exec.Command("go", "list", "-deps", "-f", line, ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		module, dir, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || seen[module] || strings.HasPrefix(module, "github.com/leasecast/leasecast/") { // which is ours
			continue
		}
		seen[module] = true
		if name := licenceIn(t, dir); name == "" {
			t.Errorf("%s has no licence that is known to be compatible with Apache-2.0: look into %s", module, dir)
		}
	}
	if len(seen) < 20 {
		t.Errorf("only %d modules were looked at", len(seen))
	}
}

// licenceIn is the name of the compatible licence in a folder; empty if there is none.
func licenceIn(t *testing.T, dir string) string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := strings.ToLower(file.Name()); !strings.HasPrefix(name, "licen") && !strings.HasPrefix(name, "copying") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(string(content)), " ")
		for name, words := range compatible {
			if strings.Contains(text, words) {
				return name
			}
		}
	}
	return ""
}
