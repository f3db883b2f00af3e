package main

import (
	"strings"
	"testing"

	"github.com/leasecast/leasecast/e2e/harness"
)

func TestFlaws(t *testing.T) {
	at := func(s float64) *float64 { return &s }
	fine := result{Failover: at(3.2), Floor: at(3.1), Handover: at(1)}
	verdicts := func(order ...string) (all []harness.Verdict) {
		for _, namespace := range namespaces {
			all = append(all, harness.Verdict{Namespace: namespace, Leaders: order})
		}
		return all
	}
	if err := fine.flaws(verdicts(leaders...)); err != nil {
		t.Errorf("a demo without a flaw fails: %v", err)
	}
	overlap := verdicts(leaders...)
	overlap[1].Breaches = []harness.Breach{{Rule: harness.TwoAtOnce}}
	for name, c := range map[string]struct {
		result   result
		verdicts []harness.Verdict
		want     string
	}{
		"two clusters act at once": {fine, overlap, "two clusters act at once"},
		"a failover that comes too early": {result{Failover: at(3), Floor: at(3.1), Handover: at(1)},
			verdicts(leaders...), "less than"},
		"no handover":                         {result{Failover: at(3.2), Floor: at(3.1)}, verdicts(leaders...), "missing"},
		"the leader moves back":               {fine, verdicts("east", "west", "east"), "order"},
		"nobody acts in one of two namespace": {fine, verdicts(leaders...)[:1], "order"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.result.flaws(c.verdicts); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("flaws: %v, want %q", err, c.want)
			}
		})
	}
}
