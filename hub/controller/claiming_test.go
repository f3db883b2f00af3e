package controller

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
)

// owned is a record that names the policy that owned the namespace last.
func owned(by string) *v1alpha1.NamespaceLeader {
	o := &v1alpha1.NamespaceLeader{}
	o.Spec.Policy = by
	return o
}

// seenIn is a member that has been read, with namespace shop or without it.
func seenIn(name string, has bool) memberView {
	m := memberView{Member: fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: name}}, isRead: true}
	if has {
		m.namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "shops"}}}
	}
	return m
}

// claims are policies by name, the oldest first; one whose name ends with a ! is invalid.
func claims(names ...string) (ps []*policy) {
	for _, name := range names {
		p := parsePolicy(policyOf("fleet", name, "shop"))
		if name[len(name)-1] == '!' {
			p.invalid, p.unknown = errors.New("its timings"), true
		}
		ps = append(ps, p)
	}
	return ps
}

func TestWhoOwnsANamespace(t *testing.T) {
	here := []memberView{seenIn("east", true)}
	nowhere := []memberView{seenIn("east", false)}
	unread := []memberView{changed(seenIn("east", true), func(m *memberView) { m.isRead, m.namespace = false, nil })}
	for name, test := range map[string]struct {
		members  []memberView
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
			v := &view{key: shop, members: test.members}
			v.state.Record = election.Record{State: election.Leading, Leader: "east", Duration: 15 * time.Second, Skew: time.Second}
			v.own(claims(test.policies...), test.recorded)
			owner := ""
			if v.policy != nil {
				owner = v.policy.object.Name
			}
			if owner != test.owner || len(v.losers) != test.losers || (v.stop != "") != test.stops {
				t.Errorf("owned by %q, %d losers, stops %q; want %q, %d, %v", owner, len(v.losers), v.stop, test.owner, test.losers, test.stops)
			}
		})
	}
}

// Whoever is invalid keeps what it claims, and nothing more. That is known unless a selector is what is invalid.
func TestAnInvalidOwnerGivesUpWhatItDoesNotClaim(t *testing.T) {
	v := &view{key: types.NamespacedName{Namespace: "fleet", Name: "till"}, members: []memberView{seenIn("east", true)}}
	ps := claims("a!", "b")
	ps[1].names["till"] = true
	if v.own(ps, "a!"); v.policy != ps[1] || v.stop != "" {
		t.Errorf("owned by %+v, stops %q", v.policy, v.stop)
	}
}

// What is invalid may be what says where it claims, and which Clusters it is about.
func TestAnOwnerWithAnUnreadableSelectorKeepsItsNamespaces(t *testing.T) {
	bad := &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "no value"}}
	for name, change := range map[string]func(*v1alpha1.LeadershipPolicy){
		"that of Clusters":   func(o *v1alpha1.LeadershipPolicy) { o.Spec.ClusterSelector = bad },
		"that of namespaces": func(o *v1alpha1.LeadershipPolicy) { o.Spec.Namespaces = v1alpha1.NamespaceSelection{Selector: bad} },
	} {
		t.Run(name, func(t *testing.T) {
			o := policyOf("fleet", "a", "shop")
			change(o)
			for recorded, owns := range map[string]bool{"a": true, "": false} {
				v := &view{key: shop, members: []memberView{seenIn("east", true)}}
				v.state.Record = election.Record{State: election.Leading, Leader: "east", Duration: 15 * time.Second}
				v.own([]*policy{parsePolicy(o)}, recorded)
				if (v.policy != nil) != owns || v.stop != "" {
					t.Errorf("recorded is %q: owned by %+v, stops %q; want %v", recorded, v.policy, v.stop, owns)
				}
			}
		})
	}
}

// A policy claims what matches in a member that it speaks of.
func TestWhereAPolicyClaimsANamespace(t *testing.T) {
	away := func(m *memberView) { m.isRead, m.namespace = false, nil }
	gone := func(m *memberView) { m.Gone = true }
	apart := func(m *memberView) { m.PriorityReason = reason.NoPriority }
	elsewhere := func(m *memberView) { m.Labels = map[string]string{"region": "there"} }
	with := func(m memberView, change func(*memberView)) memberView { return changed(m, change) }
	for name, test := range map[string]struct {
		members  []memberView
		recorded string
		want     bool
	}{
		"it matches":                                    {[]memberView{seenIn("east", true)}, "", true},
		"it matches in the last one":                    {[]memberView{seenIn("a", false), seenIn("east", true)}, "", true},
		"in one that is gone":                           {[]memberView{with(seenIn("east", true), gone)}, "", false},
		"in one that takes no part":                     {[]memberView{with(seenIn("east", true), apart)}, "", false},
		"in one that is not selected":                   {[]memberView{with(seenIn("east", true), elsewhere)}, "", false},
		"its owner, in one that is not selected":        {[]memberView{with(seenIn("east", true), elsewhere)}, "shops", false},
		"none was reached":                              {[]memberView{with(seenIn("east", true), away)}, "", false},
		"in one whose Leases were not read yet":         {[]memberView{with(seenIn("east", true), func(m *memberView) { m.isRead = false })}, "", false},
		"its owner, where none was reached":             {[]memberView{with(seenIn("east", true), away)}, "shops", true},
		"its owner, where one was not reached":          {[]memberView{seenIn("a", false), with(seenIn("east", true), away)}, "shops", true},
		"one was not reached, and it matches in others": {[]memberView{with(seenIn("a", true), away), seenIn("east", true)}, "another", true},
		"its owner, where it is nowhere":                {[]memberView{seenIn("east", false)}, "shops", false},
		"its owner, where there are no members":         {nil, "shops", true},
		"another one, where there are no members":       {nil, "another", false},
		"a namespace with other labels":                 {[]memberView{with(seenIn("east", true), func(m *memberView) { m.namespace.Labels = nil })}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			o := policyOf("fleet", "shops", "another-namespace")
			o.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shops"}}
			o.Spec.ClusterSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: "region", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"there"},
			}}}
			v := &view{key: shop, members: test.members}
			if got := v.claimedBy(parsePolicy(o), test.recorded); got != test.want {
				t.Errorf("claimed: %v, want %v", got, test.want)
			}
		})
	}
}

func TestWhatIsDecidedOfWhoOwnsANamespace(t *testing.T) {
	unread := func(name string) memberView {
		return changed(seenIn(name, false), func(m *memberView) { m.isRead = false })
	}
	apart := changed(unread("west"), func(m *memberView) { m.PriorityReason = reason.NoPriority })
	for name, test := range map[string]struct {
		namespace string
		record    *v1alpha1.NamespaceLeader
		members   []memberView
		unsynced  bool
		owner     bool
		takesPart int
		stops     bool
	}{
		"a namespace of tenants": {"shop", owned(""), []memberView{seenIn("east", true), seenIn("west", false)}, false, true, 2, false},
		"the hub's own":          {"leasecast-system", owned(""), []memberView{seenIn("east", true)}, false, false, 0, false},
		"one of the system":      {"kube-shop", owned(""), []memberView{seenIn("east", true)}, false, false, 0, false},
		"one of the system, of which somebody made a record": {"kube-shop", owned("shops"), []memberView{unread("east")}, false, false, 0, false},
		"one that some take part in": {"shop", nil, []memberView{
			seenIn("east", true), changed(seenIn("west", true), func(m *memberView) { m.PriorityReason = reason.NoPriority }),
		}, false, true, 1, false},
		"a lost record, before all were read":                   {"shop", nil, []memberView{seenIn("east", false), unread("west")}, false, false, 0, true},
		"a record without a policy, before all were read":       {"shop", owned(""), []memberView{seenIn("east", false), unread("west")}, false, false, 0, true},
		"a lost record, before one was read that takes no part": {"shop", nil, []memberView{seenIn("east", false), apart}, false, false, 0, false},
		"a lost record that somebody claims, before all were":   {"shop", nil, []memberView{seenIn("east", true), unread("west")}, false, true, 2, false},
		"a record of another policy, before all were read":      {"shop", owned("another"), []memberView{seenIn("east", false), unread("west")}, false, false, 0, false},
		"a lost record that nobody claims":                      {"shop", nil, []memberView{seenIn("east", false)}, false, false, 0, false},
		"before the Clusters are known":                         {"shop", owned("shops"), []memberView{seenIn("east", true)}, true, true, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, s, _ := onScene(t)
			s.unsynced = test.unsynced
			o := policyOf("fleet", "shops", "shop")
			o.Spec.Namespaces.Names = []string{"shop", "leasecast-system", "kube-shop"}
			p := parsePolicy(o)
			v := &view{key: types.NamespacedName{Namespace: "fleet", Name: test.namespace}, object: test.record, members: test.members}
			c.claim(t.Context(), v, []*policy{p})
			takesPart := 0
			for _, m := range v.members {
				if m.takesPart {
					takesPart++
				}
			}
			if (v.policy != nil) != test.owner || takesPart != test.takesPart || (v.stop != "") != test.stops {
				t.Errorf("owned %v, %d take part, stops %q; want %v, %d, %v", v.policy != nil, takesPart, v.stop, test.owner, test.takesPart, test.stops)
			}
		})
	}
}
