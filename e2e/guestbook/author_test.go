package guestbook

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasecast/leasecast/e2e/must/musttest"
)

const apiProgram = `package main

import (
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

func main() {
	record := &v1alpha1.NamespaceLeader{}
	println(record.Spec.Leader, record.Spec.Reason == reason.FailedOver)
}
`

func TestAuthorInheritsTheOldestVersionsAndNothingOfTheHub(t *testing.T) {
	root := musttest.Get(filepath.Abs("../.."))(t)
	quickStart := musttest.Get(snippet(filepath.Join(root, "README.md")))(t)
	tests := map[string]struct {
		requires, program string
		oldest            []string // modules that are as old as our module allows
		absent            []string // modules that are not even in the module graph
	}{
		"the quick start, which gates a controller": {
			requires: "member", program: quickStart,
			oldest: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"},
		},
		"a program that reads records": {
			requires: "api", program: apiProgram,
			oldest: []string{"k8s.io/api", "k8s.io/apimachinery"},
			absent: []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", ours + "/member"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // for what has to be compiled first
			defer cancel()
			m := musttest.Get(newModule(ctx, t.TempDir(), root, test.requires, map[string]string{"main.go": test.program}))(t)
			t.Setenv("GOTOOLCHAIN", "go"+versionOf(root, test.requires, "go"))
			_ = musttest.Get(m.build(ctx))(t)
			list := musttest.Get(m.run(ctx, "list", "-m", "all"))(t)
			versions := map[string]string{}
			for line := range strings.Lines(list) {
				module, version, _ := strings.Cut(strings.TrimSpace(line), " ")
				versions[module], _, _ = strings.Cut(version, " => ")
			}
			for _, module := range test.oldest {
				if want := versionOf(root, test.requires, module); want == "" || versions[module] != want {
					t.Errorf("%s is built with %q, want %q", module, versions[module], want)
				}
			}
			hub := []string{ours, "sigs.k8s.io/cluster-api", "sigs.k8s.io/cluster-api/api", "sigs.k8s.io/multicluster-runtime",
				"github.com/CycloneDX/cyclonedx-go", "github.com/google/licensecheck"}
			for _, module := range slices.Concat(hub, test.absent) {
				if version, found := versions[module]; found {
					t.Errorf("%s %s is inherited", module, version)
				}
			}
		})
	}
}

func TestTheOldestVersionsAreDocumented(t *testing.T) {
	root := musttest.Get(filepath.Abs("../.."))(t)
	text := musttest.Get(os.ReadFile(filepath.Join(root, "member/README.md")))(t)
	for module, needs := range map[string][]string{
		"api":    {"go", "k8s.io/apimachinery"},
		"member": {"go", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"},
	} {
		row := "| `" + module + "`, `" + module + "/v0.1.0` "
		for _, what := range needs {
			oldest, found := strings.CutSuffix(versionOf(root, module, what), ".0")
			if !found {
				t.Errorf("%s needs %s of a patch release: raise it only if it must be", module, what)
			}
			latest := minor(versionOf(root, "", what))
			row += "| " + oldest + " to " + latest
			if what == "sigs.k8s.io/controller-runtime" {
				row += ", in `member/gate`"
			}
			row += " "
		}
		if !strings.Contains(string(text), row+"|") {
			t.Errorf("member/README.md has no row %s|", row)
		}
	}
}

// minor cuts the patch release off a version.
func minor(version string) string { return version[:strings.LastIndex(version, ".")] }
