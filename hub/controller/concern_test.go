package controller

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/publish"
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

// askedAbout is what is asked for when a member shows a namespace, where a policy, a record and this tenure know of
// others.
func askedAbout(t *testing.T, member string, ns *corev1.Namespace, refused bool) []string {
	t.Helper()
	p := policyOf("fleet", "shops", "shop")
	p.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shops"}}
	record := &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "kept"}}
	m := newMuster(t, p, policyOf("others", "desks", "desk"), record)
	entryOf(t, m.Controller, types.NamespacedName{Namespace: "fleet", Name: "remembered"})
	if refused {
		m.Client = failing{Client: m.api, list: errRefused}
	}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
	defer q.ShutDown()
	h := m.sources.mcNamespaces(multicluster.ClusterName(member), nil)
	h.Create(t.Context(), ctrlevent.TypedCreateEvent[*corev1.Namespace]{Object: ns}, q)
	return asked(&queue{q: q})
}

// A member shows any number of Leases. Only those count of which the hub knows something.
func TestWhichLeasesConcernTheHub(t *testing.T) {
	for name, test := range map[string]struct {
		namespace string
		want      bool
	}{
		"not one of a namespace that nobody claims":  {"nobody", false},
		"one of a namespace that a policy claims":    {"claimed", true},
		"one of a namespace that has a record":       {"recorded", true},
		"one of a namespace that the hub remembers":  {"remembered", true},
		"one that the hub itself may have written":   {"written", true},
		"not one of a namespace like one of another": {"writte", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				record := &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "recorded"}}
				m := newMuster(t, pinned("east"), policyOf("fleet", "shops", "claimed"), record)
				east := newMemberClient(t)
				m.writer = func(fleet.Member) kubernetes.Interface { return east }
				m.members.running = t.Context()
				defer m.engages(eastKey)()
				pass(time.Second)
				entryOf(t, m.Controller, types.NamespacedName{Namespace: "fleet", Name: "remembered"})
				m.atWorkIn(eastKey).Publisher().Assign(types.NamespacedName{Namespace: "written", Name: "leasecast"},
					assign.Assignment{Role: assign.Follow}, publish.Timings{Renew: time.Second, Timeout: time.Second})
				if got := m.sources.isConcerned(t.Context(),
					types.NamespacedName{Namespace: "fleet", Name: test.namespace}); got != test.want {
					t.Errorf("it is concerned: %v", got)
				}
			})
		})
	}
}
