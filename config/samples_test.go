package config_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/guard/locks"
)

// An API server admits each sample as it is. Its comments state what a reader needs before applying it.
func TestFenceSampleIsAdmittedAndStatesItsSources(t *testing.T) {
	files := musttest.Get(filepath.Glob("samples/fences/*.yaml"))(t)
	if len(files) == 0 {
		t.Fatal("there are no samples")
	}
	namespaces := map[string]string{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			content := musttest.Get(os.ReadFile(file))(t)
			out := musttest.Get(
				management.kubectl(t.Context(), "create", "--dry-run=server", "--output=json", "--filename="+file),
			)(t)
			var o v1alpha1.LeadershipPolicy
			if err := json.Unmarshal([]byte(out), &o); err != nil {
				t.Fatalf("%v:\n%s", err, out)
			}
			fenced := locks.Of(o.Spec.Fencing)
			if o.Name != name || len(fenced) != 1 {
				t.Fatalf("the policy %s fences %v, want the policy %s with one lock", o.Name, fenced, name)
			}
			ns := o.Spec.Namespaces.Names[0]
			if other, taken := namespaces[ns]; taken { // a namespace has one policy
				t.Errorf("%s manages the namespace %s, too", other, ns)
			}
			namespaces[ns] = name
			for _, want := range []string{
				"# Sources: ", "# Election: ", "# Libraries: ", "# requestTimeoutSeconds: ", "# releaseTimeoutSeconds: ",
				fmt.Sprintf("# Stop time: %.f s\n", fenced[0].StopTime().Seconds()),
				"kubectl create namespace " + ns + "\n",
				"kubectl label namespace " + fenced[0].Namespace + " leasecast.dev/fencing=allowed\n",
			} {
				if !strings.Contains(string(content), want) {
					t.Errorf("its comments do not state %q", want)
				}
			}
			if title, _, _ := strings.Cut(string(content), ":"); !strings.Contains(title, " v") {
				t.Errorf("its first line %q states no version", title)
			}
		})
	}
}
