package config_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// usual are the series of controller-runtime and of the process that the dashboard shows.
// e2e/install ^TestTheHubIsInstalledUsedAndRemoved shows that a hub has them.
var usual = []string{
	"workqueue_depth", "controller_runtime_reconcile_time_seconds_bucket", "process_resident_memory_bytes",
	"process_cpu_seconds_total",
}

// The dashboard asks for series that a hub has, in a part of the screen of its own, and every series of the hub is in
// it. With QUERIES the test writes the queries into that file, as rules for promtool.
func TestDashboard(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			Title, Type string
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Definition string }
		}
	}
	readYAML(t, "grafana/leasecast.json", &dashboard)
	metric, variable := regexp.MustCompile(`leasecast_[a-z_]+`), regexp.MustCompile(`\$\{?([a-z]+)`)
	content := musttest.Get(os.ReadFile("../hub/metrics/metrics.go"))(t)
	series, variables := string(content), map[string]bool{}
	for _, v := range dashboard.Templating.List {
		variables[v.Name] = true
	}
	shown, queries := map[string]bool{}, []map[string]string{}
	taken := map[[2]int]string{}
	for _, p := range dashboard.Panels {
		at := p.GridPos
		for x := at.X; x < at.X+at.W; x++ {
			for y := at.Y; y < at.Y+at.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Errorf("%q covers %q, or is off the screen", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("%q is a %s with %d queries", p.Title, p.Type, len(p.Targets))
		}
		for _, target := range p.Targets {
			names := metric.FindAllString(target.Expr, -1)
			for _, name := range names {
				if shown[name] = true; !strings.Contains(series, `"`+name+`"`) {
					t.Errorf("%q asks for %s, which the hub does not have", p.Title, name)
				}
			}
			isUsual := slices.ContainsFunc(usual, func(name string) bool { return strings.Contains(target.Expr, name) })
			if len(names) == 0 && !isUsual {
				t.Errorf("%q asks for no series of the hub: %s", p.Title, target.Expr)
			}
			plain := strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
			for _, v := range variable.FindAllStringSubmatch(plain, -1) {
				if !variables[v[1]] {
					t.Errorf("%q uses the unknown variable %s", p.Title, v[1])
				}
			}
			plain = variable.ReplaceAllString(plain, ".*")
			queries = append(queries, map[string]string{"record": "dashboard:query", "expr": plain})
		}
	}
	for _, name := range metric.FindAllString(series, -1) {
		if !shown[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
	if file := os.Getenv("QUERIES"); file != "" {
		text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": queries}}})
		if err == nil {
			err = os.WriteFile(file, text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
