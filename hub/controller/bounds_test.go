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

// etcdTakes is how large an object may be by default.
const etcdTakes = 3 << 19

func size(t *testing.T, o any) int {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return len(text)
}

// managedFields is about what an API server stores beside a list of entries, to tell who has written which.
func managedFields(names []string, fields ...string) (bytes int) {
	for _, name := range names {
		bytes += len(fmt.Sprintf(`"k:{\"name\":\"%s\"}":{".":{},"f:name":{}},`, name))
		for _, f := range fields {
			bytes += len(fmt.Sprintf(`"f:%s":{},`, f))
		}
	}
	return bytes
}

// A tenant of the hub may make as many Clusters as the management cluster takes.
func TestARecordWithThousandsOfClustersIsStored(t *testing.T) {
	for name, long := range map[string]int{"short names": 0, "long names": 240} {
		for text, message := range map[string]string{"words": "no answer", "long words": strings.Repeat("x", 1024),
			"words that JSON escapes": strings.Repeat("<", 1024)} {
			t.Run(name+" and "+text, func(t *testing.T) {
				r := election.Record{Leader: "east", Observed: map[string]int32{"east": 7}}
				all := []v1alpha1.Candidate{}
				for n := range 9_000 {
					name := fmt.Sprintf("a%d", n) + strings.Repeat("a", long)
					r.Observed[name] = 1_000_000_000
					all = append(all, v1alpha1.Candidate{Name: name, Priority: 1_000_000_000, Message: message,
						Reason: "Unreachable"})
				}
				all = append(all, v1alpha1.Candidate{Name: "west", Eligible: true}, v1alpha1.Candidate{Name: "east", Priority: 7})
				o := &v1alpha1.NamespaceLeader{}
				ledger.Store(r, &o.Spec)
				o.Status.Candidates = explain.ShownCandidates(all, "east")
				var counted, shown []string
				for _, p := range o.Spec.ObservedPriorities {
					counted = append(counted, p.Name)
				}
				for _, c := range o.Status.Candidates {
					shown = append(shown, c.Name)
				}
				bytes := size(t, o) + managedFields(counted, "priority") +
					managedFields(shown, "priority", "eligible", "reason", "message", "readers")
				t.Logf("%d priorities, %d candidates, %d bytes", len(counted), len(shown), bytes)
				if bytes > etcdTakes-etcdTakes/8 {
					t.Errorf("%d bytes: etcd takes %d", bytes, etcdTakes)
				}
				if !slices.Contains(counted, "east") || !slices.IsSorted(counted) {
					t.Error("the leader's priority is left out, or they are not in order")
				}
				if n := len(shown); n < 2 || shown[n-2] != "west" || shown[n-1] != "east" {
					t.Errorf("of %d that are shown the last are not those that lead or may", n)
				}
			})
		}
	}
}
