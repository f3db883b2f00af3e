package decide

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/ledger"
)

// Rule 9: a cluster that was not read yet says nothing of what is claimed. What the record says counts until it
// has been read; where that is lost, nothing is decided.
func TestWhoClaimsANamespaceThatNotAllClustersWereAskedFor(t *testing.T) {
	o := &v1alpha1.LeadershipPolicy{}
	o.Namespace, o.Name = "fleet", "p"
	p := &Policy{
		Object: o, Names: map[string]bool{"shop": true}, Clusters: labels.Everything(), Namespaces: labels.Nothing(),
	}
	member := func(name string, read bool, namespace *corev1.Namespace) Member {
		return Member{
			Member: fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: name}}, IsRead: read, Namespace: namespace,
		}
	}
	there := &corev1.Namespace{}
	for name, test := range map[string]struct {
		recorded        string
		west            Member
		claimed, waited bool
	}{
		"the record names the policy": {"p", member("west", false, nil), true, false},
		"the record is lost":          {"", member("west", false, nil), false, true},
		"the record is lost, and the cluster that was read last has one": {"", member("west", true, there), true, false},
		"the record is lost, and no cluster has the namespace":           {"", member("west", true, nil), false, false},
		"the record names the policy, and no cluster has the namespace":  {"p", member("west", true, nil), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := &Snapshot{Entry: &ledger.Entry{Taken: ledger.Taken{Key: shop, Object: &v1alpha1.NamespaceLeader{}}}}
			v.Object.Spec.Policy = test.recorded
			v.Members = []Member{member("east", true, nil), test.west}
			v.Claim([]*Policy{p})
			if claimed, waited := v.Policy != nil, v.Stop != ""; claimed != test.claimed || waited != test.waited {
				t.Errorf("claimed %v, and nothing is decided: %v (%s); want %v, %v", claimed, waited, v.Stop, test.claimed,
					test.waited)
			}
		})
	}
}

func TestWhoOwnsANamespace(t *testing.T) {
	here := []Member{seenIn("east", true)}
	nowhere := []Member{seenIn("east", false)}
	unread := []Member{changed(seenIn("east", true), func(m *Member) { m.IsRead, m.Namespace = false, nil })}
	for name, test := range map[string]struct {
		members  []Member
		policies []string
		recorded string
		owner    string
		losers   int
		stops    bool
	}{
		"the only one": {here, []string{"a"}, "", "a", 0, false},
		"the oldest":   {here, []string{"a", "b", "c"}, "", "a", 2, false},
		"the one that owned it, whatever is older":   {here, []string{"a", "b", "c"}, "b", "b", 2, false},
		"the oldest valid one":                       {here, []string{"a!", "b"}, "", "b", 0, false},
		"nobody, where it does not exist":            {nowhere, []string{"a"}, "", "", 0, false},
		"nor whoever owned it":                       {nowhere, []string{"a"}, "a", "", 0, false},
		"the owner that is invalid, by the record":   {here, []string{"a!"}, "a!", "a!", 0, false},
		"the same, when another one could take it":   {here, []string{"a!", "b"}, "a!", "a!", 1, false},
		"the owner, while the member is not reached": {unread, []string{"a", "b"}, "b", "b", 0, false},
		"the owner, where there are no members":      {nil, []string{"a", "b"}, "b", "b", 0, false},
		"nobody new, where there are no members":     {nil, []string{"a"}, "x", "", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := &Snapshot{Entry: takenOf(shop), Members: test.members}
			v.Record = election.Record{State: election.Leading, Leader: "east", Duration: 15 * time.Second, Skew: time.Second}
			v.Object = owned(test.recorded)
			v.Claim(claims(test.policies...))
			owner := ""
			if v.Policy != nil {
				owner = v.Policy.Object.Name
			}
			if owner != test.owner || len(v.Losers) != test.losers || (v.Stop != "") != test.stops {
				t.Errorf("owned by %q, %d losers, stops %q; want %q, %d, %v", owner, len(v.Losers), v.Stop, test.owner, test.losers,
					test.stops)
			}
		})
	}
}

// Whoever is invalid keeps what it claims, and nothing more. That is known unless a selector is what is invalid.
func TestAnInvalidOwnerGivesUpWhatItDoesNotClaim(t *testing.T) {
	v := &Snapshot{
		Entry:   takenOf(types.NamespacedName{Namespace: "fleet", Name: "till"}),
		Members: []Member{seenIn("east", true)},
	}
	ps := claims("a!", "b")
	ps[1].Names["till"] = true
	v.Object = owned("a!")
	if v.Claim(ps); v.Policy != ps[1] || v.Stop != "" {
		t.Errorf("owned by %+v, stops %q", v.Policy, v.Stop)
	}
}

// What is invalid may be what says where it claims, and which Clusters it is about.
func TestAnOwnerWithAnUnreadableSelectorKeepsItsNamespaces(t *testing.T) {
	bad := &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "no value"}}
	for name, change := range map[string]func(*v1alpha1.LeadershipPolicy){
		"that of Clusters": func(o *v1alpha1.LeadershipPolicy) { o.Spec.ClusterSelector = bad },
		"that of namespaces": func(o *v1alpha1.LeadershipPolicy) {
			o.Spec.Namespaces = v1alpha1.NamespaceSelection{Selector: bad}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := policyOf("fleet", "a", "shop")
			change(o)
			for recorded, owns := range map[string]bool{"a": true, "": false} {
				v := &Snapshot{Entry: takenOf(shop), Members: []Member{seenIn("east", true)}}
				v.Record = election.Record{State: election.Leading, Leader: "east", Duration: 15 * time.Second}
				v.Object = owned(recorded)
				v.Claim([]*Policy{ParsePolicy(o)})
				if (v.Policy != nil) != owns || v.Stop != "" {
					t.Errorf("recorded is %q: owned by %+v, stops %q; want %v", recorded, v.Policy, v.Stop, owns)
				}
			}
		})
	}
}

// A policy claims what matches in a member that it speaks of.
func TestWhereAPolicyClaimsANamespace(t *testing.T) {
	away := func(m *Member) { m.IsRead, m.Namespace = false, nil }
	gone := func(m *Member) { m.Gone = true }
	apart := func(m *Member) { m.PriorityReason = reason.NoPriority }
	elsewhere := func(m *Member) { m.Labels = map[string]string{"region": "there"} }
	with := func(m Member, change func(*Member)) Member { return changed(m, change) }
	for name, test := range map[string]struct {
		members  []Member
		recorded string
		want     bool
	}{
		"it matches": {[]Member{seenIn("east", true)}, "", true},
		"it matches in the last one": {
			[]Member{seenIn("a", false), seenIn("east", true)}, "", true,
		},
		"in one that is gone":         {[]Member{with(seenIn("east", true), gone)}, "", false},
		"in one that takes no part":   {[]Member{with(seenIn("east", true), apart)}, "", false},
		"in one that is not selected": {[]Member{with(seenIn("east", true), elsewhere)}, "", false},
		"its owner, in one that is not selected": {
			[]Member{with(seenIn("east", true), elsewhere)}, "shops", false,
		},
		"none was reached": {[]Member{with(seenIn("east", true), away)}, "", false},
		"in one whose Leases were not read yet": {
			[]Member{with(seenIn("east", true), func(m *Member) { m.IsRead = false })}, "", false,
		},
		"its owner, where none was reached": {[]Member{with(seenIn("east", true), away)}, "shops", true},
		"its owner, where one was not reached": {
			[]Member{seenIn("a", false), with(seenIn("east", true), away)}, "shops", true,
		},
		"one was not reached, and it matches in others": {
			[]Member{with(seenIn("a", true), away), seenIn("east", true)}, "another", true,
		},
		"its owner, where it is nowhere":          {[]Member{seenIn("east", false)}, "shops", false},
		"its owner, where there are no members":   {nil, "shops", true},
		"another one, where there are no members": {nil, "another", false},
		"a namespace with other labels": {
			[]Member{with(seenIn("east", true), func(m *Member) { m.Namespace.Labels = nil })}, "", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := policyOf("fleet", "shops", "another-namespace")
			o.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shops"}}
			o.Spec.ClusterSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: "region", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"there"},
			}}}
			v := &Snapshot{Entry: takenOf(shop), Members: test.members}
			v.Object = owned(test.recorded)
			if v.Claim([]*Policy{ParsePolicy(o)}); (v.Policy != nil) != test.want {
				t.Errorf("claimed: %v, want %v", v.Policy != nil, test.want)
			}
		})
	}
}

// owned is a record that names the policy that owned the namespace last.
func owned(by string) *v1alpha1.NamespaceLeader {
	o := &v1alpha1.NamespaceLeader{}
	o.Spec.Policy = by
	return o
}

// seenIn is a member that has been read, with namespace shop or without it.
func seenIn(name string, has bool) Member {
	m := Member{Member: fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: name}}, IsRead: true}
	if has {
		m.Namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "shops"}}}
	}
	return m
}

// claims are policies by name, the oldest first; one whose name ends with a ! is invalid.
func claims(names ...string) (ps []*Policy) {
	for _, name := range names {
		p := ParsePolicy(policyOf("fleet", name, "shop"))
		if name[len(name)-1] == '!' {
			p.Invalid, p.Unknown = errors.New("its timings"), true
		}
		ps = append(ps, p)
	}
	return ps
}
