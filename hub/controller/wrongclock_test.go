package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// A wrong clock of the hub costs no more, once it is right again, than what its stamps have promised.
func TestTheHubsClockIsPutRight(t *testing.T) {
	w := calmWorld(t, 3)
	ns := w.spaces[0]
	w.wrongFrom = true
	for _, r := range w.replicas {
		r.crash()
		r.host.step(time.Hour)
	}
	w.run(w.now + 30*time.Second)
	for _, r := range w.replicas {
		r.host.step(0)
	}
	w.run(w.now + 2*w.timings.Duration)
	w.awaitLeader(t, ns, w.settle())
	for range 60 {
		if w.run(w.now + time.Second); w.leader(ns) == nil {
			t.Fatal("nobody leads any more")
		}
	}
}

// A Lease written since then is what its successor has to show, and there will be none before tomorrow.
func TestARecordThatDrainsSinceTomorrow(t *testing.T) {
	w := calmWorld(t, 3)
	ns := w.spaces[0]
	for _, r := range w.replicas {
		r.crash()
	}
	w.leader(ns).m.down = true
	record := w.hub.records[ns].DeepCopy()
	record.Spec.State, record.Spec.Since = v1alpha1.StateDraining, &metav1.MicroTime{Time: epoch0.Add(24 * time.Hour)}
	w.hub.putRecord(ns, record)
	from, before := w.now, map[string]int64{}
	for _, m := range w.members {
		before[m.name] = m.version
	}
	w.run(w.now + 2*w.timings.Duration)
	w.awaitLeader(t, ns, w.settle())
	for _, m := range w.members {
		if n := m.version - before[m.name]; n > 2*int64((w.now-from)/time.Second) {
			t.Errorf("%s was written %d times in %v", m.name, n, w.now-from)
		}
	}
}

// One cluster may prove that the hub's clock is off before the others are measured as closely.
func TestLeadersKeepTheirTermsWhileTheHubsClockIsOffByLittleMoreThanEpsilon(t *testing.T) {
	for name, sign := range map[string]time.Duration{"ahead": 1, "behind": -1} {
		t.Run(name, func(t *testing.T) {
			w := calmWorld(t, 3)
			ns := w.spaces[0]
			w.wrongFrom = true
			before := w.hub.records[ns].Spec
			for _, r := range w.replicas {
				r.host.step(sign * (w.timings.Skew + 100*time.Millisecond))
			}
			for end := w.now + 30*time.Second; w.now < end; w.run(w.now + 100*time.Millisecond) {
				if is := w.hub.records[ns].Spec; is.State != v1alpha1.StateLeading || is.Epoch != before.Epoch {
					t.Fatalf("%s in epoch %d (%s), was %d", is.State, is.Epoch, is.Reason, before.Epoch)
				}
			}
		})
	}
}
