package controller

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
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
		for text, message := range map[string]string{"words": "no answer", "long words": strings.Repeat("x", 1024), "words that JSON escapes": strings.Repeat("<", 1024)} {
			t.Run(name+" and "+text, func(t *testing.T) {
				r := election.Record{Leader: "east", Observed: map[string]int32{"east": 7}}
				all := []v1alpha1.Candidate{}
				for n := range 9_000 {
					name := fmt.Sprintf("a%d", n) + strings.Repeat("a", long)
					r.Observed[name] = 1_000_000_000
					all = append(all, v1alpha1.Candidate{Name: name, Priority: 1_000_000_000, Message: message, Hint: message[:min(256, len(message))], Reason: "Unreachable"})
				}
				all = append(all, v1alpha1.Candidate{Name: "west", Eligible: true}, v1alpha1.Candidate{Name: "east", Priority: 7})
				o := &v1alpha1.NamespaceLeader{}
				store(r, &o.Spec)
				o.Status.Candidates = showable(all, "east")
				var counted, shown []string
				for _, p := range o.Spec.ObservedPriorities {
					counted = append(counted, p.Name)
				}
				for _, c := range o.Status.Candidates {
					shown = append(shown, c.Name)
				}
				bytes := size(t, o) + managedFields(counted, "priority") + managedFields(shown, "priority", "eligible", "reason", "message", "hint", "readers")
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

func TestStatusShowsTheLeaderThenThoseThatMayLead(t *testing.T) {
	var all []v1alpha1.Candidate
	for n := range 100 {
		all = append(all, v1alpha1.Candidate{Name: fmt.Sprint(n), Eligible: n >= 50 && n < 60})
	}
	got := showable(all, "99")
	var want []v1alpha1.Candidate // the first of those that may not lead fill up
	want = append(append(append(want, all[:21]...), all[50:60]...), all[99])
	if !slices.Equal(got, want) {
		t.Errorf("shows %d: %+v", len(got), got)
	}
	if got := showable(all[:32], "0"); len(got) != 32 {
		t.Errorf("of 32 it shows %d", len(got))
	}
}

// Of names of one length the first in order count.
func TestPrioritiesAreCountedUpToABound(t *testing.T) {
	long := strings.Repeat("x", maxCounted/2-3*ofCounted/2-len("a")-len("b"))
	for name, test := range map[string]struct {
		leader string
		names  []string
		want   []string
	}{
		"as much as it takes":           {"", []string{"a", "b", long}, []string{"a", "b", long}},
		"one byte more":                 {"", []string{"a", "b", long + "x"}, []string{"a", "b"}},
		"one byte more in another name": {"", []string{"a", "bb", long}, []string{"a", "bb"}},
		"a long name of the leader":     {long + "x", []string{"b", long + "x", "a"}, []string{"a", long + "x"}},
		"room for one of two long ones": {"", []string{long + "b", long + "a", "a"}, []string{"a", long + "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := election.Record{Leader: test.leader, Observed: map[string]int32{}}
			for _, n := range test.names {
				r.Observed[n] = 7
			}
			if got := countable(r); !slices.Equal(got, test.want) {
				t.Errorf("%d names are counted, want %d", len(got), len(test.want))
			}
		})
	}
}

func TestARecordOfManyHonestClustersIsWhole(t *testing.T) {
	r := election.Record{Observed: map[string]int32{}}
	for n := range 1000 {
		name := fmt.Sprintf("cluster-%d", n)
		r.Observed[name] = int32(n)
	}
	var s v1alpha1.NamespaceLeaderSpec
	store(r, &s)
	if len(s.ObservedPriorities) != 1000 {
		t.Errorf("%d priorities", len(s.ObservedPriorities))
	}
}
