package main

import (
	"testing"

	"github.com/leasecast/leasecast/e2e/harness"
)

// A failover, a handover and a loss of the hub, with the real kube-controller-manager in each cluster.
func TestAnUnmodifiedControllerWorksInOneClusterOnly(t *testing.T) {
	harness.Quiet()
	say := func(line string) { t.Log(line) }
	p := controllerManager()
	d := harness.New(t, stageOptions("", say, p))
	s, err := begin(t.Context(), d, say, p)
	harness.Must(t, err)
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	_, err = s.failOver(t.Context(), whileRenewing)
	harness.Must(t, err)
	harness.Must(t, s.handOver(t.Context()))
	harness.Must(t, s.pauseHub(t.Context()))

	programs, err := s.judge()
	harness.Must(t, err)
	v := programs[p.name]
	t.Logf("judged %+v", v)
	if len(v.Breaches) > 0 || v.Changes != 2 {
		t.Errorf("another cluster wrote %d times, with %d breaches; want twice and no breach", v.Changes, len(v.Breaches))
	}
	if v.Holds < 3 {
		t.Errorf("the logs tell of %d locks that were taken, want one for each of three leaders", v.Holds)
	}
}
