package config_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard/locks"
)

var statedStopTime = regexp.MustCompile(`(?m)^# Stop time: (.*)$`)

// An API server admits each sample as it is, and the sample and the README state the stop time that the hub counts.
func TestEveryFenceSampleIsAdmittedAndStatesItsStopTime(t *testing.T) {
	files, err := filepath.Glob("samples/fences/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("there are no samples")
	}
	readme, err := os.ReadFile("../hub/guard/README.md")
	if err != nil {
		t.Fatal(err)
	}
	if rows := strings.Count(string(readme), " s |\n"); rows != len(files) {
		t.Errorf("the README has %d rows, and there are %d samples", rows, len(files))
	}
	namespaces := map[string]string{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			out, err := management.kubectl(t.Context(), "create", "--dry-run=server", "--output=json", "--filename="+file)
			if err != nil {
				t.Fatal(err)
			}
			var o v1alpha1.LeadershipPolicy
			if err := json.Unmarshal([]byte(out), &o); err != nil {
				t.Fatalf("%v:\n%s", err, out)
			}
			if err := locks.Check(&o); err != nil {
				t.Error(err)
			}
			if o.Name != name {
				t.Errorf("its policy is %s", o.Name)
			}
			for _, ns := range o.Spec.Namespaces.Names { // a namespace has one policy
				if other, taken := namespaces[ns]; taken {
					t.Errorf("%s manages the namespace %s, too", other, ns)
				}
				namespaces[ns] = name
				if !strings.Contains(string(content), "kubectl create namespace "+ns) {
					t.Errorf("it does not say that its namespace %s is made", ns)
				}
			}
			fenced := locks.Of(o.Spec.Fencing)
			if len(fenced) != 1 {
				t.Fatalf("it fences %v", fenced)
			}
			l := fenced[0]
			if !strings.Contains(string(content), "kubectl label namespace "+l.Namespace+" leasecast.dev/fencing=allowed") {
				t.Errorf("it does not say that the fence of its lock is allowed in %s", l.Namespace)
			}
			want := fmt.Sprintf("%.f s", l.StopTime().Seconds())
			if stated := statedStopTime.FindStringSubmatch(string(content)); stated == nil || stated[1] != want {
				t.Errorf("it states the stop time %q, and it is %s", stated, want)
			}
			row := fmt.Sprintf("| %s | %s | %.f/%.f/%.f | %s |", name, l.Name, l.Lease.Seconds(), l.Renew.Seconds(), l.Retry.Seconds(), want)
			if !strings.Contains(string(readme), row) {
				t.Errorf("the README has no row %s", row)
			}
		})
	}
}
