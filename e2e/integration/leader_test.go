package integration

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must"
)

var three = map[string]string{"east": "100", "west": "50", "south": "10"}

// atOnce is how long a hub may take to stop: after h its successor would go on without that.
const atOnce = 6 * time.Second

// TestAHubWithMuchToDoStopsAtOnce stops hubs in the midst of their work, because what they
// give up in order is what their successors need not wait for.
func TestAHubWithMuchToDoStopsAtOnce(t *testing.T) {
	w := newWorld(t, steady, three)
	for i := range 60 {
		w.namespace(fmt.Sprintf("n%d", i), all...)
	}
	for i := range 4 {
		t.Run(fmt.Sprintf("round %d", i), func(t *testing.T) {
			w := newWorld(t, steady, three)
			w.policyBySelector("p", &metav1.LabelSelector{})
			w.startHub()
			w.Eventually("a cluster leads default", firstElection, func() error {
				record := must.Get(w.Record("default"))
				_, err := w.Leading(record.Spec.Leader, "default", record.Spec.Leader)
				return err
			})
			within(t, "the hub stops in", took(w.StopHub), atOnce)
		})
	}
}

// steppedClock is this machine's, with a wall clock that somebody has set.
type steppedClock struct {
	clock.System
	by atomic.Int64
}

func (c *steppedClock) Now() lease.Reading {
	now := c.System.Now()
	now.Wall = now.Wall.Add(time.Duration(c.by.Load()))
	return now
}

func (c *steppedClock) set(by time.Duration) { c.by.Store(int64(by)) }

const (
	// electionTime is h, the duration of the hub's election.
	electionTime = 6 * time.Second
	// notices is how long a hub takes to find out that its clock is wrong, and to stop.
	notices = 15 * time.Second
)

// ledSince waits until a cluster leads by a live Lease that was stamped after an instant.
func (w *world) ledSince(since time.Time, namespace string, within time.Duration, members ...string) {
	w.Eventually("somebody leads "+namespace, within, func() error {
		r := must.Get(w.Record(namespace))
		last := fmt.Errorf("the record says %s, leader %q: %s", r.Spec.State, r.Spec.Leader, r.Status.Message)
		for _, m := range members {
			l, err := w.LeaseIn(m, namespace)
			if err != nil || r.Spec.State != v1alpha1.StateLeading || r.Spec.Leader != m ||
				ptr.Deref(l.Spec.HolderIdentity, "") != m+"."+w.Fleet {
				continue
			}
			left := time.Until(l.Spec.RenewTime.Add(w.duration()))
			if left > 0 && left <= w.duration() && l.Spec.RenewTime.After(since) {
				return nil
			}
			last = fmt.Errorf("%s leads by a Lease of %v", m, l.Spec.RenewTime)
		}
		return last
	})
}

// The wall clock of the elected replica is set back by an hour: all that it writes has expired. All members contradict
// it, so it resigns, and the standby takes over.
func TestAHubWhoseClockWasSetBackMakesRoom(t *testing.T) {
	w := newWorld(t, brief, map[string]string{"east": "100", "west": "50"})
	ns := w.namespace("a", "east", "west")
	w.Policy("p", ns)
	wrong := &steppedClock{}
	first := w.runHub(w.System, wrong)
	w.ledSince(time.Now(), ns, firstElection, "east", "west")
	_, firstName, err := w.Election(t.Context(), w.System)
	w.Must(err)
	standby := w.runHub(w.System, nil)
	standby.warm("east", "west")

	wrong.set(-time.Hour)
	began := time.Now()
	select {
	case err := <-first.Ended:
		if err == nil || !strings.Contains(err.Error(), "gives up its election: the clock of this hub is at least ") {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(notices):
		t.Fatalf("the hub has not given up within %v", notices)
	}
	t.Logf("it gave up after %v", time.Since(began))
	// What the first one can have promised is not known, because its clock was wrong: h, and then D + ε.
	bound := notices + 3*time.Second + electionTime + w.term()
	w.ledSince(time.Now(), ns, bound+soon, "east", "west")
	within(t, "led again", time.Since(began), bound)
	if _, holder, err := w.Election(t.Context(), w.System); err != nil || holder == "" || holder == firstName {
		t.Errorf("the election is held by %q, %v", holder, err)
	}
}
