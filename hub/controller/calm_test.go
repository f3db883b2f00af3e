package controller

import (
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// refusals are how a cluster that answers reads and probes may fail the writes of Leases: by a webhook that
// fails, of which nobody can tell what became of the write, and by one that says no.
var refusals = map[string]error{
	"a webhook that fails": apierrors.NewInternalError(errors.New("failed calling webhook")),
	"a quota":              apierrors.NewForbidden(leaseResource, "leasecast", errors.New("quota")),
}

// refuses has a member refuse all writes of Leases in a namespace, or none.
func (m *member) refuses(ns string, err error) {
	m.deny = func(key types.NamespacedName) error {
		if key.Namespace == ns {
			return err
		}
		return nil
	}
}

// calmWorld is one without faults in which every namespace is led.
func calmWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	log.SetLogger(logr.Discard())
	w := newWorld(seed, nil)
	for ; !w.usual() || w.acknowledged; seed += 1000 { // registrations would be counted as writes
		w.end()
		w = newWorld(seed, nil)
	}
	w.kinds, w.acknowledged, w.faulty = nil, false, false
	t.Cleanup(func() {
		w.end()
		if w.oracle.violation != "" {
			t.Error(w.oracle.violation)
		}
	})
	w.calmDown()
	w.faulty = false
	if w.oracle.violation != "" {
		t.Fatal(w.oracle.violation)
	}
	return w
}

// awaitLeader waits for a leader, at most d.
func (w *world) awaitLeader(ns string, d time.Duration) {
	w.await("nobody leads", d, func() bool { return w.leader(ns) != nil })
}

// A cluster may answer whatever it is asked, and yet take no Lease in one of the namespaces.
func TestAClusterThatCannotBeWritten(t *testing.T) {
	for how, refusal := range refusals {
		for name, test := range map[string]func(t *testing.T, w *world, ns string, refusal error){
			"does not lead on: another takes over":                 leaderRefuses,
			"nor does anybody lead if all refuse, and it says why": allRefuse,
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				w := calmWorld(t, 3)
				test(t, w, w.spaces[0], refusal)
			})
		}
	}
}

func leaderRefuses(t *testing.T, w *world, ns string, refusal error) {
	old := w.leader(ns).m
	old.refuses(ns, refusal)
	w.run(w.now + 2*w.timings.Duration) // the term is over
	w.awaitLeader(ns, 2*time.Second)
	if l := w.leader(ns); l != nil && l.m == old {
		t.Fatal("it leads on")
	}
	epoch := w.hub.records[ns].Spec.Epoch
	w.run(w.now + time.Minute)
	if w.leader(ns) == nil || w.hub.records[ns].Spec.Epoch != epoch {
		t.Errorf("the successor does not stay: %+v", w.hub.records[ns].Spec)
	}
}

// A leader that answers again may take long to recover, or fail again and again before it has.
func TestNobodyWaitsForALeaderThatHasLongToRecover(t *testing.T) {
	w := calmWorld(t, 3)
	ns := w.spaces[0]
	old := w.leader(ns).m
	w.editPolicyNamed(w.hub.records[ns].Spec.Policy, func(p *v1alpha1.LeadershipPolicy) {
		p.Spec.Health.RecoverAfterMilliseconds = new(int32(60_000))
	})
	old.down = true
	w.await("it is not replaced", w.timings.Duration, func() bool {
		return w.hub.records[ns].Spec.State == v1alpha1.StateEnding
	})
	old.down = false
	w.run(w.now + w.timings.Duration) // its term is over
	w.awaitLeader(ns, w.timings.Duration)
	if l := w.leader(ns); l != nil && l.m == old {
		t.Error("it leads on")
	}
}

func allRefuse(t *testing.T, w *world, ns string, refusal error) {
	for _, m := range w.members {
		m.refuses(ns, refusal)
	}
	w.run(w.now + time.Minute)
	r, writes := w.hub.records[ns], len(w.hub.history[ns])
	if r.Spec.State != v1alpha1.StateVacant || r.Spec.Reason != reason.NoCandidate {
		t.Errorf("the record is %s %s, want a vacant one", r.Spec.State, r.Spec.Reason)
	}
	for _, c := range r.Status.Candidates {
		if c.Eligible || c.Message == "" {
			t.Errorf("the candidate %+v is not explained", c)
		}
	}
	if w.run(w.now + time.Minute); len(w.hub.history[ns]) > writes+1 {
		t.Errorf("the record was written %d times in a minute in which nothing happened", len(w.hub.history[ns])-writes)
	}
	for _, m := range w.members {
		m.refuses(ns, nil)
	}
	w.awaitLeader(ns, 2*time.Second)
}

// What failed while nobody could be reached says nothing of what can be written once that is over.
func TestAnOutageOfTheHubsNetworkMovesNoLeader(t *testing.T) {
	for seed := range uint64(20) {
		w := calmWorld(t, seed)
		leaders := map[string]*member{}
		for _, ns := range w.spaces {
			leaders[ns] = w.leader(ns).m
		}
		for _, r := range w.replicas {
			for _, m := range w.members {
				w.cutAs(r.proc, &m.machine, link{true, true}, 4*w.timings.Duration)
			}
		}
		w.run(w.now + 4*w.timings.Duration)
		w.run(w.now + w.settle())
		for _, ns := range w.spaces {
			if l := w.leader(ns); l == nil || l.m != leaders[ns] {
				t.Errorf("seed %d: %s led %s before: %+v", seed, leaders[ns].name, ns, w.hub.records[ns].Spec)
			}
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
