package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
)

// With the hub's own cases, what-if says within what time another cluster leads, also where planned changes take turns.
// D is 15 s, ε is 1 s, and a cluster is lost after 10 s.
func TestWhatIfSaysWithinWhatTime(t *testing.T) {
	edited := func(edit func(*v1alpha1.LeadershipPolicySpec)) change {
		p := well().policies[0].DeepCopy()
		edit(&p.Spec)
		return change{policy: decide.ParsePolicy(p)}
	}
	lowered := edited(prefer("east"))
	lowered.priorities = map[string]int32{"east": 1}
	for name, test := range map[string]struct {
		renewed time.Duration // before now
		assumed change
		next    string
		within  int64
	}{
		"the leader is drained: a term from now":     {4 * time.Second, change{drain: "east"}, "west", 16},
		"it is lost: a term after that is certain":   {4 * time.Second, change{without: "east"}, "west", 26},
		"the other one is lost":                      {4 * time.Second, change{without: "west"}, "east", 0},
		"the policy prefers the other one":           {0, edited(prefer("west")), "west", 16},
		"a low label where the policy prefers it":    {0, lowered, "east", 0},
		"the policy excludes the leader's cluster":   {0, edited(selects("west")), "west", 16},
		"the policy gives more time, nobody is lost": {0, edited(longer), "east", 0},
	} {
		s := well(leading("shop", "east"))
		is := s.caseOf(&s.records[0], decide.ParsePolicy(&s.policies[0]))
		is.State.Paced = true
		is.Patience, is.State.FleetDuration, is.State.FleetSkew = 10*time.Second, 15*time.Second, time.Second
		is.State.Sent.Until = now.Add(15*time.Second - test.renewed)
		is.State.Sent.BootUntil = is.Now.Boot + 15*time.Second - test.renewed
		is.State.Sent.Skew = time.Second
		s.cases = map[string]decide.Case{"shop": is}
		s.clusters[1].Labels["site"] = "west"
		got := s.whatIf(test.assumed)
		if len(got) != 1 || got[0].Next != test.next || got[0].WithinSeconds != test.within {
			t.Errorf("%s: %+v, want %s within %d s", name, got, test.next, test.within)
		}
	}
}

// The hub shows who is ordered now.
func TestWhatIfReplacesAnOrderOnlyByAnother(t *testing.T) {
	for name, test := range map[string]struct {
		assumed change
		next    string
	}{
		"another order":     {change{to: "south"}, "south"},
		"the same order":    {change{to: "west"}, "west"},
		"a loss, no order":  {change{without: "south"}, "west"},
		"a drain, no order": {change{drain: "south"}, "west"},
	} {
		s := well(leading("shop", "east", func(r *v1alpha1.NamespaceLeader) {
			r.Status.Candidates = append(r.Status.Candidates,
				v1alpha1.Candidate{Name: "south", Priority: 10, Eligible: true, Reason: reason.Eligible})
		}))
		is := s.caseOf(&s.records[0], decide.ParsePolicy(&s.policies[0]))
		is.Candidates[1].Ordered = true
		s.cases = map[string]decide.Case{"shop": is}
		if got := s.whatIf(test.assumed); len(got) != 1 || got[0].Next != test.next {
			t.Errorf("%s: %+v, want %s", name, got, test.next)
		}
	}
}

func prefer(cluster string) func(*v1alpha1.LeadershipPolicySpec) {
	return func(s *v1alpha1.LeadershipPolicySpec) {
		s.Overrides = []v1alpha1.Override{{Namespace: "shop", Cluster: cluster}}
	}
}

func selects(site string) func(*v1alpha1.LeadershipPolicySpec) {
	return func(s *v1alpha1.LeadershipPolicySpec) {
		s.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"site": site}}
	}
}

func names(namespaces ...string) func(*v1alpha1.LeadershipPolicySpec) {
	return func(s *v1alpha1.LeadershipPolicySpec) { s.Namespaces.Names = namespaces }
}

func requires(s *v1alpha1.LeadershipPolicySpec) { s.Requires = &v1alpha1.Requires{Reader: true} }

func longer(s *v1alpha1.LeadershipPolicySpec) { s.Timings.LeaseDurationMilliseconds = 60_000 }

// What the hub has no case of cannot be foreseen.
func TestWhatIfRefusesWhatItCannotForesee(t *testing.T) {
	for name, test := range map[string]struct {
		before, after func(*v1alpha1.LeadershipPolicySpec)
		refused       string
	}{
		"another override":   {longer, prefer("west"), ""},
		"fewer clusters":     {longer, selects("west"), ""},
		"one more Cluster":   {selects("west"), longer, "the Cluster east, which"},
		"another namespace":  {longer, names("till"), "namespaces"},
		"more that must run": {longer, requires, "requires"},
	} {
		s := well(leading("shop", "east"))
		s.clusters[1].Labels["site"] = "west"
		before, after := s.policies[0].DeepCopy(), s.policies[0].DeepCopy()
		test.before(&before.Spec)
		test.after(&after.Spec)
		err := s.foreseeable(before, after)
		if (err != nil) != (test.refused != "") || err != nil && !strings.Contains(err.Error(), test.refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A policy of another fleet that has the same name would be played with the wrong namespaces and Clusters.
func TestWhatIfRefusesThePolicyOfAnotherFleet(t *testing.T) {
	for name, test := range map[string]struct{ namespace, refused string }{
		"the file names no namespace":  {"", ""},
		"the file names the fleet":     {"namespace: default, ", ""},
		"the file names another fleet": {"namespace: fleet-b, ", `shops.yaml: it is of namespace "fleet-b": say -n fleet-b`},
	} {
		file := filepath.Join(t.TempDir(), "shops.yaml")
		if err := os.WriteFile(file, []byte("metadata: {"+test.namespace+"name: shops}\nspec: {}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := run(well(leading("shop", "east")), nil, "what-if", "--policy", file)
		if (err != nil) != (test.refused != "") || err != nil && !strings.HasSuffix(err.Error(), test.refused) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// The change that what-if assumes is written as Git holds it.
func TestWhatIfWritesThePriorities(t *testing.T) {
	p, out := &plugin{}, &bytes.Buffer{}
	p.Out = out
	err := p.printChange(well(), change{priorities: map[string]int32{"west": 200, "east": 0}})
	const want = `---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata:
  labels:
    leasecast.dev/priority: "0"
  name: east
  namespace: default
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata:
  labels:
    leasecast.dev/priority: "200"
  name: west
  namespace: default
`
	if out.String() != want || err != nil {
		t.Errorf("%v, got %s", err, out)
	}
	if err := p.printChange(well(), change{drain: "east"}); err == nil || !strings.Contains(err.Error(), "annotation") {
		t.Errorf("a drain: %v", err)
	}
}

// What nobody could lead needs attention, also where a program reads the outcomes.
func TestWhatIfEndsWithTwoWhereNobodyCouldLead(t *testing.T) {
	for name, test := range map[string]struct {
		flag string
		bad  bool
	}{
		"the leader is lost, and alone": {"--without=east", true},
		"another one is lost":           {"--without=west", false},
	} {
		for _, output := range []string{"", "json"} {
			alone := leading("shop", "east")
			alone.Status.Candidates[1].Eligible, alone.Status.Candidates[1].Reason = false, reason.Paused
			out, err := run(well(alone), nil, "what-if", test.flag, "-o", output)
			if test.bad != errors.Is(err, errAttention) || !test.bad && err != nil {
				t.Errorf("%s, -o %q: %v: %s", name, output, err, out)
			}
		}
	}
}
