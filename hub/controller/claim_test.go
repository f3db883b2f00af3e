package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
)

// knowing is a sight of the Clusters that has seen them all.
type knowing struct{ memberSource }

func (knowing) synced() bool { return true }

// Rule 9: a cluster that was not read yet says nothing of what is claimed. What the record says counts until it
// has been read; where that is lost, nothing is decided.
func TestWhoClaimsANamespaceThatNotAllClustersWereAskedFor(t *testing.T) {
	o := &v1alpha1.LeadershipPolicy{}
	o.Namespace, o.Name = "fleet", "p"
	p := &policy{object: o, names: map[string]bool{"shop": true}, clusters: labels.Everything(), namespaces: labels.Nothing()}
	member := func(name string, read bool, namespace *corev1.Namespace) memberView {
		return memberView{Member: fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: name}}, isRead: read, namespace: namespace}
	}
	there := &corev1.Namespace{}
	for name, test := range map[string]struct {
		recorded        string
		west            memberView
		claimed, waited bool
	}{
		"the record names the policy": {"p", member("west", false, nil), true, false},
		"the record is lost":          {"", member("west", false, nil), false, true},
		"the record is lost, and the cluster that was read last has one": {"", member("west", true, there), true, false},
		"the record is lost, and no cluster has the namespace":           {"", member("west", true, nil), false, false},
		"the record names the policy, and no cluster has the namespace":  {"p", member("west", true, nil), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := &view{key: types.NamespacedName{Namespace: "fleet", Name: "shop"}, object: &v1alpha1.NamespaceLeader{}}
			v.object.Spec.Policy = test.recorded
			v.members = []memberView{member("east", true, nil), test.west}
			(&Controller{source: knowing{}}).claim(t.Context(), v, []*policy{p})
			if claimed, waited := v.policy != nil, v.stop != ""; claimed != test.claimed || waited != test.waited {
				t.Errorf("claimed %v, and nothing is decided: %v (%s); want %v, %v", claimed, waited, v.stop, test.claimed, test.waited)
			}
		})
	}
}
