package decide_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/decide/decidetest"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
)

// member makes the rows of tables short.
type member = decide.Member

var (
	shop, start = decidetest.Shop, decidetest.Start
	measured    = decidetest.Member
	shopView    = decidetest.Snapshot
	agrees      = decidetest.Agrees
	leaseOf     = decidetest.Lease
)

// in is a member that was read and has namespace shop with the label that policies select, after some changes.
func in(name string, changes ...func(*member)) member {
	m := member{Member: fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: name}}, IsRead: true}
	m.Namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "shops"}}}
	for _, change := range changes {
		change(&m)
	}
	return m
}

func without(m *member)     { m.Namespace = nil }
func unread(m *member)      { m.IsRead, m.Namespace = false, nil }
func apart(m *member)       { m.PriorityReason = reason.NoPriority }
func outside(m *member)     { m.TakesPart = false }
func terminating(m *member) { m.Namespace.Status.Phase = corev1.NamespaceTerminating }

// owned is a record that names the policy that owned the namespace last.
func owned(by string) *v1alpha1.NamespaceLeader {
	return &v1alpha1.NamespaceLeader{Spec: v1alpha1.NamespaceLeaderSpec{Policy: by}}
}

// claimed is namespace shop, led by east, after the policies have claimed it. One of them may own it by the record.
func claimed(ps []*decide.Policy, recorded string, ms ...member) *decide.Snapshot {
	v := &decide.Snapshot{Entry: decidetest.Entry(shop), Members: ms}
	v.Record = election.Record{State: election.Leading, Leader: "east", Duration: 15 * time.Second, Skew: time.Second}
	v.Object = owned(recorded)
	v.Claim(ps)
	return v
}

// Rule 9: the record counts for a member that was not read. Where the record is lost, nothing is decided until then.
func TestOwnerOfANamespace(t *testing.T) {
	elsewhere := func(m *member) { m.Labels = map[string]string{"region": "there"} }
	gone := func(m *member) { m.Gone = true }
	unlabelled := func(m *member) { m.Namespace.Labels = nil }
	unsynced := func(m *member) { m.IsRead = false }
	one, two, three := []string{"a"}, []string{"a", "b"}, []string{"a", "b", "c"}
	here, nowhere := []member{in("east")}, []member{in("east", without)}
	partly, last := []member{in("a", without), in("b", unread)}, []member{in("a", unread), in("b")}
	none := []member{in("a", without), in("b", unread, apart)}
	for name, test := range map[string]struct {
		members  []member
		policies []string // oldest first
		recorded string
		owner    string
		losers   int
		stops    bool
	}{
		"the oldest policy":                               {here, three, "", "a", 2, false},
		"the recorded owner, although another is older":   {here, three, "b", "b", 2, false},
		"the oldest valid policy":                         {here, []string{"a!", "b"}, "", "b", 0, false},
		"an invalid owner, beside a valid policy":         {here, []string{"a!", "b"}, "a!", "a!", 1, false},
		"the recorded owner's namespace exists nowhere":   {nowhere, one, "a", "", 0, false},
		"the namespace has other labels":                  {[]member{in("east", unlabelled)}, one, "", "", 0, false},
		"the member is gone":                              {[]member{in("east", gone)}, one, "", "", 0, false},
		"the clusterSelector does not match":              {[]member{in("east", elsewhere)}, one, "", "", 0, false},
		"the recorded owner, one member is not read":      {partly, one, "a", "a", 0, false},
		"another recorded owner, one member is not read":  {partly, one, "x", "", 0, false},
		"another recorded owner, a read member has it":    {last, one, "x", "a", 0, false},
		"a lost record, one member is not read":           {partly, one, "", "", 0, true},
		"a lost record, the unread member takes no part":  {none, one, "", "", 0, false},
		"a lost record, the member's Leases are not read": {[]member{in("east", unsynced)}, one, "", "", 0, true},
		"the recorded owner, there are no members":        {nil, two, "b", "b", 0, false},
	} {
		ps := decidetest.Policies(test.policies...)
		for _, p := range ps {
			p.Names, p.Namespaces = nil, labels.SelectorFromSet(labels.Set{"team": "shops"})
			p.Clusters, _ = labels.Parse("region notin (there)")
		}
		v := claimed(ps, test.recorded, test.members...)
		owner := ""
		if v.Policy != nil {
			owner = v.Policy.Object.Name
		}
		if owner != test.owner || len(v.Losers) != test.losers || (v.Stop != "") != test.stops {
			t.Errorf("%s: owned by %q, %d losers, stops %q; want %q, %d, %v", name, owner, len(v.Losers), v.Stop,
				test.owner, test.losers, test.stops)
		}
		for _, m := range v.Members {
			if want := owner != "" && m.PriorityReason == "" && !m.Gone && m.Labels == nil; m.TakesPart != want {
				t.Errorf("%s: %s takes part: %v", name, m.Name, m.TakesPart)
			}
		}
	}
}

// An invalid policy keeps what it claims, and nothing more. What it claims is known unless a selector is invalid.
func TestInvalidOwnerKeepsWhatItClaims(t *testing.T) {
	ps := decidetest.Policies("a!", "b")
	ps[0].Names = map[string]bool{"till": true}
	if v := claimed(ps, "a!", in("east")); v.Policy != ps[1] || v.Stop != "" {
		t.Errorf("owned by %+v, stops %q", v.Policy, v.Stop)
	}
	bad := &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "no value"}}
	for name, change := range map[string]func(*v1alpha1.LeadershipPolicySpec){
		"clusterSelector": func(s *v1alpha1.LeadershipPolicySpec) { s.ClusterSelector = bad },
		"namespace selector": func(s *v1alpha1.LeadershipPolicySpec) {
			s.Namespaces.Names, s.Namespaces.Selector = nil, bad
		},
	} {
		o := decidetest.PolicyFor("fleet", "a", "shop")
		change(&o.Spec)
		for recorded, owns := range map[string]bool{"a": true, "": false} {
			v := claimed([]*decide.Policy{decide.ParsePolicy(o)}, recorded, in("east"))
			if (v.Policy != nil) != owns || v.Stop != "" {
				t.Errorf("%s, recorded %q: owned by %+v, stops %q; want %v", name, recorded, v.Policy, v.Stop, owns)
			}
		}
	}
}

// API servers compare the labels of a fence, so what such a policy claims is known.
func TestPolicyWithAnInvalidFenceKeepsNothingElse(t *testing.T) {
	o := decidetest.PolicyFor("fleet", "a", "till")
	fencesObjects(map[string]string{"led": "no value!"})(&o.Spec)
	if v := claimed([]*decide.Policy{decide.ParsePolicy(o)}, "a", in("east")); v.Policy != nil {
		t.Errorf("owned by %+v", v.Policy)
	}
}

// A policy has no effect in a namespace that another one owns, and still claims.
func TestNamespaceThatAnotherPolicyOwns(t *testing.T) {
	ps := decidetest.Policies("a", "b", "c!")
	retired := owned("b")
	retired.Spec.State = v1alpha1.StateRetired
	for name, test := range map[string]struct {
		record *v1alpha1.NamespaceLeader
		claims string // the policy that claims the namespace
		want   bool
	}{
		"another one owns it":                         {owned("b"), "b", true},
		"another one owned it, and claims it no more": {owned("b"), "a", false},
		"the owner is invalid, its claim not known":   {owned("c!"), "a", true},
		"it owns it itself":                           {owned("a"), "a", false},
		"the owner is deleted":                        {owned("x"), "x", false},
		"the record is retired":                       {retired, "b", false},
	} {
		claims := func(p *decide.Policy) bool { return p.Object.Name == test.claims }
		if got := decide.OwnedByOther(test.record, ps[0], ps, claims); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
