package steady

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/hub"
)

const (
	// minute is how long nothing may happen.
	minute = time.Minute
	// leaseDuration is patient enough for a busy machine.
	leaseDuration = 10 * time.Second
)

// watchedWhatMatters guards against a discovery that finds too little.
func watchedWhatMatters(t *testing.T, watched map[string][]schema.GroupResource) {
	t.Helper()
	everywhere := []schema.GroupResource{
		{Resource: "namespaces"}, {Resource: "secrets"}, {Resource: "configmaps"}, {Resource: "events"},
		{Group: "events.k8s.io", Resource: "events"},
		{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"},
		{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"},
	}
	onTheHub := []schema.GroupResource{
		{Group: "cluster.x-k8s.io", Resource: "clusters"},
		{Group: v1alpha1.GroupVersion.Group, Resource: "leadershippolicies"},
		{Group: v1alpha1.GroupVersion.Group, Resource: "namespaceleaders"},
	}
	for server, resources := range watched {
		want := everywhere
		if server == "hub" {
			want = slices.Concat(everywhere, onTheHub)
		}
		for _, r := range want {
			if !slices.Contains(resources, r) {
				t.Errorf("%s: %s were not watched", server, r)
			}
		}
	}
}

// of selects the writes of the Lease of a namespace in a member.
func of(seen []change, member, namespace string) (copies []change) {
	for _, c := range seen {
		if c.server == member && c.name() == namespace+"/"+v1alpha1.DefaultLeaseName {
			copies = append(copies, c)
		}
	}
	return copies
}

// onlyKnownLeases fails the test for every write of a Lease other than the leaders'
// Leases, the hub's election, its probes of members' write path, and the Leases by
// which API servers tell each other that they live.
func onlyKnownLeases(t *testing.T, seen []change, leaders map[string]string) {
	t.Helper()
	for _, c := range seen {
		namespace, name := c.object.GetNamespace(), c.object.GetName()
		known := false
		switch {
		case namespace == metav1.NamespaceSystem &&
			c.object.GetLabels()["apiserver.kubernetes.io/identity"] == "kube-apiserver":
			known = true
		case c.server == "hub":
			known = namespace == harness.HubNamespace && name == hub.ElectionName
		case name == v1alpha1.DefaultLeaseName:
			known = leaders[namespace] == c.server
		default:
			known = namespace == metav1.NamespaceSystem && name == "leasecast-hub-probe"
		}
		if !known || c.verb != "MODIFIED" {
			t.Errorf("a Lease that should not be: %s", c)
		}
	}
}

// renewed checks that a leader's Lease never expired, was renewed about as often as the
// policy says (a busy machine may miss some) and no more, and that a renewal is all that
// happened to it.
func renewed(t *testing.T, from time.Time, writes []change) {
	t.Helper()
	nominal := int(minute / renewInterval)
	if least, most := nominal/2, nominal*11/10; len(writes) < least || len(writes) > most {
		t.Errorf("%d renewals in %v, want %d to %d", len(writes), minute, least, most)
		return
	}
	expires := from.Add(leaseDuration)
	longest := time.Duration(0)
	for i, c := range writes {
		l := c.object.(*coordinationv1.Lease)
		if c.at.After(expires) {
			t.Errorf("%s: the Lease had expired at %s", c, expires.Format("15:04:05.000"))
		}
		expires = l.Spec.RenewTime.Add(leaseDuration)
		if i == 0 {
			continue
		}
		before := writes[i-1].object.(*coordinationv1.Lease)
		longest = max(longest, l.Spec.RenewTime.Sub(before.Spec.RenewTime.Time))
		if !equality.Semantic.DeepEqual(lasting(before), lasting(l)) {
			t.Errorf("%s: more than a renewal:\n%+v\n%+v", c, before, l)
		}
	}
	if end := from.Add(minute); expires.Before(end) {
		t.Errorf("%s: the last renewal; the Lease expired at %s", writes[len(writes)-1], expires.Format("15:04:05.000"))
	}
	t.Logf("%s in %s: %d renewals, at most %.2f s apart", writes[0].name(), writes[0].server, len(writes),
		longest.Seconds())
}

// lasting is what a renewal leaves as it is.
func lasting(l *coordinationv1.Lease) *coordinationv1.Lease {
	l = l.DeepCopy()
	l.ResourceVersion, l.ManagedFields, l.Spec.RenewTime = "", nil, nil
	delete(l.Annotations, v1alpha1.SealAnnotation)
	return l
}

// canaries writes an object into every server and waits until the watch shows it: it
// was able to show the rest.
func (w *world) canaries(seen *changes) {
	begin := seen.count()
	clients := maps.Clone(w.Members)
	clients["hub"] = w.Hub
	for server, c := range clients {
		w.Must(c.Create(w.T.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "canary"},
		}))
		w.Eventually("the watches of "+server+" see a write", 10*time.Second, func() error {
			if !slices.ContainsFunc(seen.after(begin), func(c change) bool {
				return c.server == server && c.resource.Resource == "configmaps" && c.name() == "default/canary"
			}) {
				return errors.New("they have not shown it")
			}
			return nil
		})
	}
}
