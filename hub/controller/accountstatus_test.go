package controller

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/worker"
)

func TestWhatAPolicySaysOfItsAccounts(t *testing.T) {
	type (
		key    = v1alpha1.FencedServiceAccount
		states = map[key]worker.AccountState
	)
	west := fleet.Key{Fleet: "default", Name: "west"}
	checkout, builder := key{Name: "checkout"}, key{Namespace: "ci", Name: "builder"}
	advice := "compare serviceAccounts with the accounts that the programs run as: "
	for name, test := range map[string]struct {
		fenced     []key
		east, west states
		want       string
	}{
		"none is fenced": {nil, nil, nil, "nothing"},
		"one exists in all clusters": {
			[]key{checkout}, states{checkout: worker.AccountFound}, states{checkout: worker.AccountFound},
			"True TargetsFound each fenced service account exists in a cluster",
		},
		"one cluster is enough": {
			[]key{checkout}, states{checkout: worker.AccountMissing}, states{checkout: worker.AccountFound},
			"True TargetsFound each fenced service account exists in a cluster",
		},
		"one is in no cluster": {
			[]key{checkout, builder}, states{checkout: worker.AccountFound, builder: worker.AccountMissing},
			states{builder: worker.AccountMissing},
			"False AccountMissing " + advice + "there is no ServiceAccount ci/builder in east, west",
		},
		"a cluster that is silent is open": {
			[]key{builder}, states{builder: worker.AccountMissing}, nil,
			"False AccountMissing " + advice + "there is no ServiceAccount ci/builder in east",
		},
		"nothing is known yet": {
			[]key{checkout, builder}, states{checkout: worker.AccountFound}, nil,
			"Unknown AccountUnseen no cluster has shown yet whether it has these service accounts: ci/builder",
		},
		"what is missing comes before that": {
			[]key{checkout, builder}, states{checkout: worker.AccountMissing}, nil,
			"False AccountMissing " + advice + "there is no ServiceAccount checkout in east",
		},
		"one that is fenced twice is one": {
			[]key{builder, builder}, nil, nil,
			"Unknown AccountUnseen no cluster has shown yet whether it has these service accounts: ci/builder",
		},
		"a name in another namespace is two": {
			[]key{{Name: "builder"}, builder}, states{builder: worker.AccountFound}, nil,
			"Unknown AccountUnseen no cluster has shown yet whether it has these service accounts: builder",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Options{HubID: "this"})
			c.members.of[eastKey] = &memberState{worker: &laborer{accounts: test.east}}
			c.members.of[west] = &memberState{worker: &laborer{accounts: test.west}}
			fenced := &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}}
			if len(test.fenced) > 0 {
				fenced.Writes = []v1alpha1.WriteFence{
					{ServiceAccounts: test.fenced, Resources: []v1alpha1.FencedResources{{Names: []string{"pods"}}}},
				}
			}
			o := fencing(fenced)
			o.Generation = 7
			o.Status.Conditions = []metav1.Condition{
				{Type: v1alpha1.ConditionFenceTargetsFound, Status: metav1.ConditionUnknown},
			}
			noteTargets(c, o, []decide.Member{{Member: fleet.Member{Key: fleet.Key{Name: "away"}}},
				{Member: fleet.Member{Key: eastKey}}, {Member: fleet.Member{Key: west}}})
			if got := told(o.Status.Conditions, v1alpha1.ConditionFenceTargetsFound); got != test.want {
				t.Errorf("it says %q, want %q", got, test.want)
			}
			if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionFenceTargetsFound); c != nil &&
				c.ObservedGeneration != 7 {
				t.Errorf("it is of generation %d", c.ObservedGeneration)
			}
		})
	}
}
