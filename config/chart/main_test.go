package main

import "testing"

func TestAnImageIsPartedAtItsTag(t *testing.T) {
	for name, test := range map[string]struct{ image, repository, tag string }{
		"a tag":              {"ghcr.io/leasecast/hub:v1", "ghcr.io/leasecast/hub", "v1"},
		"the port is no tag": {"registry.example:5000/hub:v1", "registry.example:5000/hub", "v1"},
		"a port alone":       {"registry.example:5000/hub", "registry.example:5000/hub", ""},
		"a digest":           {"registry.example:5000/hub@sha256:12ab", "registry.example:5000/hub", "sha256:12ab"},
		"a tag and a digest": {
			image:      "registry.example:5000/hub:v1@sha256:12ab",
			repository: "registry.example:5000/hub",
			tag:        "v1@sha256:12ab",
		},
		"a name without a registry":  {"hub:v1", "hub", "v1"},
		"a name and nothing further": {"hub", "hub", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if repository, tag := splitImage(test.image); repository != test.repository || tag != test.tag {
				t.Errorf("%s: %q and %q, want %q and %q", test.image, repository, tag, test.repository, test.tag)
			}
		})
	}
}
