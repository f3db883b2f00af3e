package main

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// A failover, a handover and a loss of the hub, with the real kube-controller-manager in each cluster.
func TestAnUnmodifiedControllerWorksInOneClusterOnly(t *testing.T) {
	harness.Quiet()
	p := controllerManager()
	s := &testbed{say: func(line string) { t.Log(line) }, programs: []*program{p}}
	d := harness.New(t, s.fleet())
	t.Cleanup(func() { musttest.Do(t, s.close()) })
	var v verdict
	musttest.Do(t, must.Try(func() {
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

// promptly is how late the first tick of a term may come, on a machine that is busy. A CronJob that nobody wakes waits
// for up to a minute.
const (
	promptly = 15 * time.Second
	judged   = promptly + 5*time.Second
)

// The CronJob controllers of followers have backed off when the leader changes.
func TestTheFirstTickAfterAHandoverRunsOnceAndPromptly(t *testing.T) {
	harness.Quiet()
	s := &cronTestbed{say: func(line string) { t.Log(line) }, cronJobs: 5}
	d := harness.New(t, s.fleet())
	t.Cleanup(func() { musttest.Do(t, s.close()) })
	musttest.Do(t, must.Try(func() { s.begin(t.Context(), d) }))
	leader := musttest.Get(s.AwaitLeader(t.Context(), cronNamespace, ""))(t)
	next := clusters[(slices.Index(clusters, leader)+1)%len(clusters)] // see harness.Drill.HandOver
	// followers have missed ticks that they must not run any more
	for _, m := range clusters {
		if m == leader {
			continue
		}
		for i := range s.cronJobs {
			// By a patch, because the controller of the cluster writes the status as well.
			missed := fmt.Sprintf(`{"status":{"lastScheduleTime":%q}}`,
				time.Now().Add(-5*time.Minute).UTC().Format(time.RFC3339))
			musttest.Do(t, d.Members[m].Status().Patch(t.Context(), cronJob(i),
				client.RawPatch(types.MergePatchType, []byte(missed))))
		}
	}
	d.Eventually(t, time.Minute, "the fence refuses Jobs in "+next, func(ctx context.Context) error {
		var events corev1.EventList
		err := d.Members[next].List(ctx, &events, client.InNamespace(cronNamespace),
			client.MatchingFields{"reason": "FailedCreate"})
		if err == nil && len(events.Items) < s.cronJobs {
			err = fmt.Errorf("there are %d refusals", len(events.Items))
		}
		return err
	})

	musttest.Get(s.HandOver(t.Context(), cronNamespace))(t)
	first := time.Now().Add(2 * time.Second).Truncate(time.Minute).Add(time.Minute).UTC()
	var ticks []tick
	for i := range s.cronJobs {
		ticks = append(ticks, tick{cronJob(i).Name, first})
	}
	harness.After(t, harness.BootOf(first.Add(judged), harness.Now()))
	var v tickVerdict
	musttest.Do(t, must.Try(func() { v = judgeTicks(ticks, s.runs(t.Context()), s.terms()) }))
	if v.Lost > 0 || len(v.Breaches) > 0 || v.WorstFirstTickSeconds > promptly.Seconds() {
		t.Errorf("judged %+v", v)
	}
	var jobs batchv1.JobList
	musttest.Do(t, d.Members[next].List(t.Context(), &jobs, client.InNamespace(cronNamespace)))
	if len(jobs.Items) < s.cronJobs {
		t.Errorf("%s ran %d ticks, want %d", next, len(jobs.Items), s.cronJobs)
	}
}
