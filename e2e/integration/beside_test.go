package integration

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

// takeBack is for how long a hub leaves a mark to its owner that has gone from the seal.
const takeBack = 10 * time.Second

// runHub runs a hub in a namespace.
func (w *world) runHub(namespace string) (stop func()) {
	return w.RunHub(w.Servers.Hub().AdminConfig(), namespace)
}

// mark is that of a hub in a namespace.
func (w *world) mark(namespace string) string {
	ns := &corev1.Namespace{}
	w.Must(w.Hub.Get(w.T.Context(), types.NamespacedName{Name: metav1.NamespaceSystem}, ns))
	return string(ns.UID) + "/" + namespace
}

// says waits until an event on the policy reports that the hub in a namespace stands back, and what to do.
func (w *world) says(policy, own, other string) {
	w.Eventually("the hub in "+own+" says that it stands back", soon, func() error {
		var list eventsv1.EventList
		must.Do(w.Hub.List(w.T.Context(), &list, client.InNamespace(w.Fleet)))
		last := errors.New("there is no event")
		for _, e := range list.Items {
			if e.Regarding.Kind != "LeadershipPolicy" || e.Regarding.Name != policy || e.Reason != string(reason.OtherHub) {
				continue
			}
			if last = contains(e.Note, "the hub in namespace "+other+" serves", "the one in "+own+" changes nothing",
				"kubectl delete leases -A -l leasecast.dev/managed",
				"kubectl -n "+w.Fleet+" annotate secret leasecast-seal leasecast.dev/hub-"); last == nil {
				return nil
			}
		}
		return last
	})
}

// markGoes takes the mark off the seal, as the event says.
func (w *world) markGoes() {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: "leasecast-seal"}}
	patch := []byte(`{"metadata":{"annotations":{"leasecast.dev/hub":null}}}`)
	w.Must(w.Hub.Patch(w.T.Context(), s, client.RawPatch(types.MergePatchType, patch)))
}

// markedBy waits until the seal carries a mark.
func (w *world) markedBy(mark string, within time.Duration) {
	w.Eventually("the fleet is served by "+mark, within, func() error {
		s := &corev1.Secret{}
		err := w.Hub.Get(w.T.Context(), types.NamespacedName{Namespace: w.Fleet, Name: "leasecast-seal"}, s)
		if got := s.Annotations[v1alpha1.HubAnnotation]; err == nil && got != mark {
			err = fmt.Errorf("it carries %q", got)
		}
		return err
	})
}

// Of two installations on one management cluster, one serves the fleet. The other reports the reason in an event and
// leads nothing. The second takes over in order once the first is gone and the operator followed the event. If the
// first returns, it leads nothing.
func TestTwoInstallationsOnOneManagementCluster(t *testing.T) {
	w := newWorld(t, brief, map[string]string{"east": "100", "west": "50"})
	other := w.System + "-2"
	w.Must(w.Hub.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}))
	ns := w.namespace("a", "east", "west")
	w.Policy("p", ns)
	stopFirst := w.runHub(w.System)
	epoch := w.Leads("east", ns, firstElection, "east", "west")

	w.runHub(other)
	w.says("p", other, w.System)
	led := w.keeps("east", ns)
	led.grow(5)
	w.hubOf(ns, "east", w.mark(w.System))
	w.markGoes() // by mistake: the first is alive, and takes it back
	w.markedBy(w.mark(w.System), takeBack/2)
	led.check()
	last := w.follow("east", ns)
	w.setPriority("west", "200")
	w.handedOver(ns, "west", epoch, last, "east", "west")
	w.hubOf(ns, "west", w.mark(w.System))

	last = w.follow("west", ns)
	epoch = w.Leads("west", ns, soon, "west")
	stopFirst()
	bound := last().Add(w.term())
	w.clear() // the Leases in the members
	w.markGoes()
	gone := time.Now()
	after := w.Leads("west", ns, takeBack+w.ordered(), "east", "west")
	within(t, "the second installation leads", time.Since(gone), takeBack+w.term()+5*time.Second)
	w.hubOf(ns, "west", w.mark(other))
	if r := harness.Get(w.Record(ns))(w.T); after <= epoch || r.Spec.AcquireTime.Time.Before(bound) {
		t.Errorf("epoch %d after %d, granted at %v, but the first hub's terms ended at %v",
			after, epoch, r.Spec.AcquireTime, bound)
	}

	w.runHub(w.System)
	w.says("p", w.System, other)
	w.keeps("west", ns).check()
	w.hubOf(ns, "west", w.mark(other))
}

// hubOf waits until the record and a member's Lease carry this mark.
func (w *world) hubOf(namespace, member, mark string) {
	w.Eventually("the hub of "+namespace+" is "+mark, soon, func() error {
		r := must.Get(w.Record(namespace))
		l := must.Get(w.LeaseIn(member, namespace))
		a, b := r.Spec.Hub, l.Annotations[v1alpha1.HubAnnotation]
		return must.ErrorIf(a != mark || b != mark, "the record is of %q, the Lease of %q", a, b)
	})
}
