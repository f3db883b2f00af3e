package config_test

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// rules is the content of a rule file of Prometheus.
type rules struct {
	Groups []struct {
		Rules []struct {
			Alert, Expr         string
			Labels, Annotations map[string]string
		}
	}
}

// readYAML reads a file in YAML or JSON.
func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Each alert has a severity, a summary of one sentence, a section in the runbook and a test, and uses series of the
// hub. The object for Prometheus' operator has the same alerts.
func TestAlertsSayWhatToDo(t *testing.T) {
	var plain rules
	var object struct{ Spec rules }
	readYAML(t, "prometheus/rules.yaml", &plain)
	readYAML(t, "prometheus/prometheus_rule.yaml", &object)
	if !reflect.DeepEqual(plain, object.Spec) {
		t.Error("prometheus_rule.yaml has other rules than rules.yaml: run make generate")
	}
	text := func(path string) string {
		content := musttest.Get(os.ReadFile(path))(t)
		return string(content)
	}
	runbook, tests := text("prometheus/README.md"), text("prometheus/rules_test.yaml")
	series := text("../hub/metrics/metrics.go")
	metric := regexp.MustCompile(`leasecast_[a-z_]+`)
	n := 0
	for _, g := range plain.Groups {
		for _, r := range g.Rules {
			n++
			if s := r.Labels["severity"]; s != "critical" && s != "warning" {
				t.Errorf("%s has the severity %q", r.Alert, s)
			}
			if s := r.Annotations["summary"]; !strings.HasSuffix(s, ".") || strings.Count(s, ". ") > 0 {
				t.Errorf("%s has the summary %q: one sentence", r.Alert, s)
			}
			section := "/config/prometheus/README.md#" + strings.ToLower(r.Alert)
			if url := r.Annotations["runbook_url"]; !strings.HasSuffix(url, section) ||
				!strings.Contains(runbook, "\n### "+r.Alert+"\n") {
				t.Errorf("%s has the runbook %q", r.Alert, url)
			}
			if tested := "alertname: " + r.Alert; !strings.Contains(tests, tested+"\n    exp_alerts") ||
				!strings.Contains(tests, tested+"}") {
				t.Errorf("no test shows that %s fires, and that it clears", r.Alert)
			}
			for _, name := range metric.FindAllString(r.Expr, -1) {
				if !strings.Contains(series, `"`+name+`"`) {
					t.Errorf("%s asks for %s, which the hub does not have", r.Alert, name)
				}
			}
		}
	}
	if n == 0 {
		t.Error("there are no alerts")
	}
}
