package controller

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/explain"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/worker"
)

// told is a condition in short.
func told(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
	}
	return "nothing"
}

func TestWhatAPolicySaysOfItsLocks(t *testing.T) {
	west := fleet.Key{Fleet: "default", Name: "west"}
	other := simLock
	other.Name = "other"
	one, two := []v1alpha1.LockFence{simLock}, []v1alpha1.LockFence{simLock, other}
	advice := "compare leaderElectionLocks with the Lease that the controller elects itself with, and see that it " +
		"runs there with its election on: "
	for name, test := range map[string]struct {
		fencing    *v1alpha1.Fencing
		east, west worker.LockState
		want       string
	}{
		"none is fenced": {
			&v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}}, worker.LockMissing, worker.LockMissing, "nothing",
		},
		"nothing is fenced": {nil, worker.LockMissing, worker.LockMissing, "nothing"},
		"one is held in the leader": {
			&v1alpha1.Fencing{LeaderElectionLocks: one}, worker.LockUnseen, worker.LockHeld, "True TargetsFound ",
		},
		"one has no Lease in the leader": {
			&v1alpha1.Fencing{LeaderElectionLocks: one}, worker.LockMissing, worker.LockUnseen,
			"False LockIdle " + advice + "there is no Lease stock/stock in east, which leads",
		},
		"one is renewed by nobody": {
			&v1alpha1.Fencing{LeaderElectionLocks: one}, worker.LockUnseen, worker.LockIdle,
			"False LockIdle " + advice + "nobody renews the Lease stock/stock in west, which leads",
		},
		"nobody leads, or not for long": {
			&v1alpha1.Fencing{LeaderElectionLocks: two}, worker.LockUnseen, worker.LockUnseen,
			"Unknown LockUnseen nobody was seen to hold these locks since a cluster leads: stock/stock, stock/other",
		},
		"a warning is tried out with the lock": {
			&v1alpha1.Fencing{Enforcement: v1alpha1.EnforcementWarn, LeaderElectionLocks: one}, worker.LockMissing,
			worker.LockUnseen, "False LockIdle ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Options{HubID: "this"})
			c.members.of[eastKey] = &memberState{worker: &laborer{lock: test.east}}
			c.members.of[west] = &memberState{worker: &laborer{lock: test.west}}
			o := fencing(test.fencing)
			o.Generation = 7
			o.Status.Conditions = []metav1.Condition{
				{Type: v1alpha1.ConditionFenceTargetsFound, Status: metav1.ConditionUnknown},
			}
			noteTargets(c, o, []decide.Member{{Member: fleet.Member{Key: fleet.Key{Name: "away"}}},
				{Member: fleet.Member{Key: eastKey}}, {Member: fleet.Member{Key: west}}})
			if got := told(o.Status.Conditions, v1alpha1.ConditionFenceTargetsFound); !strings.HasPrefix(got, test.want) {
				t.Errorf("it says %q, want %q", got, test.want)
			}
			if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionFenceTargetsFound); c != nil &&
				c.ObservedGeneration != 7 {
				t.Errorf("it is of generation %d", c.ObservedGeneration)
			}
		})
	}
}

func TestOneLockThatNobodyHoldsIsNamedAmongOthers(t *testing.T) {
	held, missing := explain.LockFinding{Lock: "a/held", Member: "east", State: worker.LockHeld}, explain.LockFinding{
		Lock: "b/typo", Member: "east", State: worker.LockMissing,
	}
	open := explain.LockFinding{Lock: "c/open"}
	for name, test := range map[string]struct {
		found []explain.LockFinding
		want  metav1.ConditionStatus
		named string
	}{
		"all are held":           {[]explain.LockFinding{held, held}, metav1.ConditionTrue, ""},
		"one is not":             {[]explain.LockFinding{held, missing}, metav1.ConditionFalse, "b/typo"},
		"of one it is not known": {[]explain.LockFinding{held, open}, metav1.ConditionUnknown, "c/open"},
		"what is wrong comes before what is not known": {
			[]explain.LockFinding{open, missing}, metav1.ConditionFalse, "b/typo",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := explain.TargetsFound(test.found, nil)
			if got.Status != test.want || !strings.Contains(got.Message, test.named) || strings.Contains(got.Message, "a/held") {
				t.Errorf("it says %+v, want %s and %s", got, test.want, test.named)
			}
		})
	}
}
