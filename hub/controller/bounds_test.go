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

func TestATextTakesNoMoreInJSONThanIsCountedForIt(t *testing.T) {
	for b := range 256 {
		text := "text" + string([]byte{byte(b)})
		if stored := size(t, text) - len(`""`); escaped(text) < stored {
			t.Errorf("%q: %d bytes are counted, and %d stored", text, escaped(text), stored)
		}
	}
}

func TestCandidatesAreShownUpToABound(t *testing.T) {
	for more, want := range map[int]int{0: 2, 1: 1} {
		first := v1alpha1.Candidate{Name: "a", Message: strings.Repeat("x", 1000)}
		rest := maxShown - 2*len(first.Name) - len(first.Message) - ofShown
		second := v1alpha1.Candidate{Name: "b", Message: strings.Repeat("x", rest-2*len("b")-ofShown+more)}
		if got := len(showable([]v1alpha1.Candidate{first, second}, "")); got != want {
			t.Errorf("with %d bytes more than the bound %d are shown, want %d", more, got, want)
		}
	}
}

func TestWhatJSONKeepsAsItIsCountsAsItIs(t *testing.T) {
	for text, want := range map[string]int{"no answer since 12:00 ~": 23, "<": len(`\u003c`), "\x1f": len(`\u001f`)} {
		if stored := size(t, text) - len(`""`); escaped(text) != want || stored != want {
			t.Errorf("%q: %d bytes are counted, and %d stored, want %d", text, escaped(text), stored, want)
		}
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
	var all []v1alpha1.Candidate
	for n := range 1000 {
		name := fmt.Sprintf("cluster-%d", n)
		r.Observed[name] = int32(n)
		all = append(all, v1alpha1.Candidate{Name: name, Reason: "NamespaceMissing", Message: "the namespace does not exist there, or does not match the policy", Hint: "Provisioned Available=True"})
	}
	var s v1alpha1.NamespaceLeaderSpec
	store(r, &s)
	if len(s.ObservedPriorities) != 1000 || len(showable(all, "")) != 1000 {
		t.Errorf("%d priorities, %d candidates", len(s.ObservedPriorities), len(showable(all, "")))
	}
}
