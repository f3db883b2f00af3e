package integration

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/e2e/harness"
)

// yearly makes a CronJob that is never due in a test.
func (w *world) yearly(member, namespace, name string, labels map[string]string) *batchv1.CronJob {
	o := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	o.Spec.Schedule = "@yearly"
	o.Spec.JobTemplate = batchv1.JobTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       job(namespace, time.Time{}).Spec,
	}
	w.Must(w.Members[member].Create(w.T.Context(), o))
	return o
}

// lastSchedule is what the status of a CronJob says, zero if nothing.
func (w *world) lastSchedule(member string, o *batchv1.CronJob) time.Time {
	w.Must(w.Members[member].Get(w.T.Context(), client.ObjectKeyFromObject(o), o))
	if last := o.Status.LastScheduleTime; last != nil {
		return last.Time
	}
	return time.Time{}
}

// What was scheduled before a term is none of its matter. So a controller that has backed off comes back for the next
// tick.
func TestACronJobIsWokenWhenItsClusterBeginsToLead(t *testing.T) {
	t.Parallel()
	w, a, _ := fenced(t, brief)
	once := fencing.Schedules.MatchLabels
	fencedJob, other := w.yearly("west", a, "fenced", once), w.yearly("west", a, "other", nil)
	elsewhere := w.yearly("south", a, "fenced", once)
	ran := w.yearly("west", a, "ran", once)
	hence := metav1.NewTime(time.Now().Add(time.Hour).Truncate(time.Second))
	ran.Status.LastScheduleTime = &hence
	w.Must(w.Members["west"].Status().Update(t.Context(), ran))
	w.Eventually("the CronJobs are older than the term", soon, func() error {
		if age := time.Since(elsewhere.CreationTimestamp.Time); age < 3*time.Second {
			return fmt.Errorf("they are %v old", age)
		}
		return nil
	})

	w.setPriority("west", "1000")
	w.Leads("west", a, w.ordered(), all...)
	l := harness.Get(w.LeaseIn("west", a))(w.T)
	before := l.Spec.AcquireTime.Add(-time.Microsecond).Truncate(time.Second)
	w.Eventually("the CronJob is woken", soon, func() error {
		if last := w.lastSchedule("west", fencedJob); !last.Equal(before) {
			return fmt.Errorf("it was scheduled last at %v, want %v", last, before)
		}
		return nil
	})
	if last := w.lastSchedule("west", ran); !last.Equal(hence.Time) {
		t.Errorf("what has run later is set back to %v", last)
	}
	if last := w.lastSchedule("west", other); !last.IsZero() {
		t.Errorf("a CronJob that is not fenced is set to %v", last)
	}
	if last := w.lastSchedule("south", elsewhere); !last.IsZero() {
		t.Errorf("a CronJob of a follower is set to %v", last)
	}
}
