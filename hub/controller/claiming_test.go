package controller

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/ledger"
)

// owned is a record that names the policy that owned the namespace last.
func owned(by string) *v1alpha1.NamespaceLeader {
	o := &v1alpha1.NamespaceLeader{}
	o.Spec.Policy = by
	return o
}

// seenIn is a member that has been read, with namespace shop or without it.
func seenIn(name string, has bool) decide.Member {
	m := decide.Member{Member: fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: name}}, IsRead: true}
	if has {
		m.Namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "shops"}}}
	}
	return m
}

// claims are policies by name, the oldest first; one whose name ends with a ! is invalid.
func claims(names ...string) (ps []*decide.Policy) {
	for _, name := range names {
		p := decide.ParsePolicy(policyOf("fleet", name, "shop"))
		if name[len(name)-1] == '!' {
			p.Invalid, p.Unknown = errors.New("its timings"), true
		}
		ps = append(ps, p)
	}
	return ps
}

func TestWhatIsDecidedOfWhoOwnsANamespace(t *testing.T) {
	unread := func(name string) decide.Member {
		return changed(seenIn(name, false), func(m *decide.Member) { m.IsRead = false })
	}
	apart := changed(unread("west"), func(m *decide.Member) { m.PriorityReason = reason.NoPriority })
	for name, test := range map[string]struct {
		namespace string
		record    *v1alpha1.NamespaceLeader
		members   []decide.Member
		owner     bool
		takesPart int
		stops     bool
	}{
		"a namespace of tenants": {
			"shop", owned(""), []decide.Member{seenIn("east", true), seenIn("west", false)}, true, 2, false,
		},
		"the hub's own":     {"leasecast-system", owned(""), []decide.Member{seenIn("east", true)}, false, 0, false},
		"one of the system": {"kube-shop", owned(""), []decide.Member{seenIn("east", true)}, false, 0, false},
		"one of the system, of which somebody made a record": {
			"kube-shop", owned("shops"), []decide.Member{unread("east")}, false, 0, false,
		},
		"one that some take part in": {"shop", nil, []decide.Member{
			seenIn("east", true), changed(seenIn("west", true), func(m *decide.Member) { m.PriorityReason = reason.NoPriority }),
		}, true, 1, false},
		"a lost record, before all were read": {
			"shop", nil, []decide.Member{seenIn("east", false), unread("west")}, false, 0, true,
		},
		"a record without a policy, before all were read": {
			"shop", owned(""), []decide.Member{seenIn("east", false), unread("west")}, false, 0, true,
		},
		"a lost record, before one was read that takes no part": {
			"shop", nil, []decide.Member{seenIn("east", false), apart}, false, 0, false,
		},
		"a lost record that somebody claims, before all were": {
			"shop", nil, []decide.Member{seenIn("east", true), unread("west")}, true, 2, false,
		},
		"a record of another policy, before all were read": {
			"shop", owned("another"), []decide.Member{seenIn("east", false), unread("west")}, false, 0, false,
		},
		"a lost record that nobody claims": {
			"shop", nil, []decide.Member{seenIn("east", false)}, false, 0, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, _ := onScene(t)
			o := policyOf("fleet", "shops", "shop")
			o.Spec.Namespaces.Names = []string{"shop", "leasecast-system", "kube-shop"}
			p := decide.ParsePolicy(o)
			v := &decide.Snapshot{
				Entry: &ledger.Entry{
					Taken: ledger.Taken{Key: types.NamespacedName{Namespace: "fleet", Name: test.namespace}, Object: test.record},
				},
				Members: test.members,
			}
			v.Claim(c.claimable(t.Context(), v, []*decide.Policy{p}))
			takesPart := 0
			for _, m := range v.Members {
				if m.TakesPart {
					takesPart++
				}
			}
			if (v.Policy != nil) != test.owner || takesPart != test.takesPart || (v.Stop != "") != test.stops {
				t.Errorf("owned %v, %d take part, stops %q; want %v, %d, %v", v.Policy != nil, takesPart, v.Stop, test.owner,
					test.takesPart, test.stops)
			}
		})
	}
}
