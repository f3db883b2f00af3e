package controller

import (
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// A member can show a hundred thousand namespaces. None of them costs a call to the hub's API server.
func TestWhichNamespacesOfAMemberAreDecidedOn(t *testing.T) {
	for name, test := range map[string]struct {
		member, namespace string
		labels            map[string]string
		refused           bool // the policies cannot be listed
		want              bool
	}{
		"one that a policy names":               {"fleet/east", "shop", nil, false, true},
		"one that a policy selects":             {"fleet/east", "till", map[string]string{"team": "shops"}, false, true},
		"one that has a record":                 {"fleet/east", "kept", nil, false, true},
		"one that this tenure remembers":        {"fleet/east", "remembered", nil, false, true},
		"none that is nobody's":                 {"fleet/east", "flood", nil, false, false},
		"none for a policy of another fleet":    {"fleet/east", "desk", nil, false, false},
		"any if it is not known whose they are": {"fleet/east", "flood", nil, true, true},
		"none of what is no member":             {"no-member", "shop", nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: test.namespace, Labels: test.labels}}
				got := askedAbout(t, test.member, ns, test.refused)
				if want := []string{"fleet/" + test.namespace}; len(got) > 0 != test.want || test.want && !slices.Equal(got, want) {
					t.Errorf("asked for %q", got)
				}
			})
		})
	}
}

// askedAbout is what is asked for when a member shows a namespace, where a policy, a record and this tenure know of others.
func askedAbout(t *testing.T, member string, ns *corev1.Namespace, refused bool) []string {
	t.Helper()
	p := policyOf("fleet", "shops", "shop")
	p.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shops"}}
	record := &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "kept"}}
	m := newMuster(t, p, policyOf("others", "desks", "desk"), record)
	m.namespace(types.NamespacedName{Namespace: "fleet", Name: "remembered"})
	if refused {
		m.client = failing{Client: m.api, list: errRefused}
	}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
	defer q.ShutDown()
	h := m.mcNamespaces(multicluster.ClusterName(member), nil)
	h.Create(t.Context(), ctrlevent.TypedCreateEvent[*corev1.Namespace]{Object: ns}, q)
	return asked(&queue{q: q})
}
