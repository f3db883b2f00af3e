package controller

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/explain"
	"github.com/leasecast/leasecast/hub/ledger"
)

// A tenant of the hub may create as many Clusters as the management cluster takes. etcd takes 1.5 MiB by default.
func TestRecordOfThousandsOfClustersIsStored(t *testing.T) {
	message := strings.Repeat("<", 1024) // which JSON escapes
	for _, long := range []int{0, 240} {
		r, all := election.Record{Leader: "east", Observed: map[string]int32{"east": 7}}, []v1alpha1.Candidate{}
		for n := range 9_000 {
			cluster := fmt.Sprintf("a%d", n) + strings.Repeat("a", long)
			r.Observed[cluster] = 1_000_000_000
			all = append(all, v1alpha1.Candidate{Name: cluster, Priority: 1_000_000_000, Message: message,
				Reason: "Unreachable"})
		}
		all = append(all, v1alpha1.Candidate{Name: "west", Eligible: true}, v1alpha1.Candidate{Name: "east", Priority: 7})
		o := &v1alpha1.NamespaceLeader{}
		ledger.Store(r, &o.Spec)
		o.Status.Candidates = explain.ShownCandidates(all, "east")
		text, err := json.Marshal(o)
		bytes := len(text)
		for _, p := range o.Spec.ObservedPriorities { // managedFields have about as much again
			bytes += len(fmt.Sprintf(`"k:{\"name\":\"%s\"}":{".":{},"f:name":{},"f:priority":{}},`, p.Name))
		}
		if err != nil || bytes+32*1024 > (3<<19)*7/8 {
			t.Errorf("names of %d: %d bytes, %v", long, bytes, err)
		}
		if !slices.Contains(o.Spec.ObservedPriorities, v1alpha1.ObservedPriority{Name: "east", Priority: 7}) {
			t.Errorf("names of %d: the leader's priority is left out", long)
		}
	}
}
