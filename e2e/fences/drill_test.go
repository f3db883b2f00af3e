package main

import (
	"testing"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

// A failover, a handover and a loss of the hub, with the real kube-controller-manager in each cluster.
func TestAnUnmodifiedControllerWorksInOneClusterOnly(t *testing.T) {
	harness.Quiet()
	p := controllerManager()
	s := &stage{say: func(line string) { t.Log(line) }, programs: []*program{p}}
	d := harness.New(t, s.fleet())
	t.Cleanup(func() { harness.Must(t, s.close()) })
	var v verdict
	harness.Must(t, must.Try(func() {
		s.begin(t.Context(), d)
		s.failOver(t.Context(), whileRenewing)
		from := must.Get(s.AwaitLeader(t.Context(), p.namespace, ""))
		must.Get(s.HandOver(t.Context(), p.namespace))
		s.awaitWrites(t.Context(), from, s.programs)
		must.Get(s.PauseHub(t.Context(), p.namespace, away))
		s.awaitWrites(t.Context(), "", s.programs)
		v = s.judge()[p.name]
	}))
	t.Logf("judged %+v", v)
	if len(v.Breaches) > 0 || v.Changes != 2 {
		t.Errorf("another cluster wrote %d times, with %d breaches; want twice and no breach", v.Changes, len(v.Breaches))
	}
	if v.Holds < 3 {
		t.Errorf("the logs tell of %d locks that were taken, want one for each of three leaders", v.Holds)
	}
}
