package integration

import (
	"fmt"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// A finalizer holds the namespace in Terminating. API servers reject what is created in it then, and accept renewals.
func TestANamespaceThatTerminatesInItsLeaderIsHandedOverAndComesBack(t *testing.T) {
	t.Parallel()
	w, a, epoch := eastLeads(t, brief)
	east := w.Members["east"]
	anchor := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: a, Name: "anchor", Finalizers: []string{"e2e.leasecast.dev/hold"},
	}}
	w.Must(east.Create(t.Context(), anchor))
	last := w.follow("east", a)
	w.Must(east.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a}}))
	w.awaitUnfit("east", a, reason.NamespaceTerminating, "is being deleted there")
	w.handedOver(a, "west", epoch, last, "west", "south")
	w.noLease("east", a, soon)
	free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	w.Must(east.Patch(t.Context(), anchor, free))
	w.awaitUnfit("east", a, reason.NamespaceMissing)

	t.Log("the namespace comes back: its Lease too, the leadership does not")
	w.Eventually("the namespace is created again", soon, func() error {
		err := east.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a}})
		if apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("it terminates: %w", err)
		}
		return err
	})
	w.Leads("west", a, soon, all...)
	w.awaitEligible("east", a)
}

func TestALeaseOfAnotherClientIsNeverOverwritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brief, three)
	a := w.namespace("a", all...)
	now := metav1.NowMicro()
	foreign := map[string]*coordinationv1.Lease{} // in the best cluster, and in a follower
	for _, m := range []string{"east", "south"} {
		foreign[m] = &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: v1alpha1.DefaultLeaseName},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("an-elector"), RenewTime: &now},
		}
		w.Must(w.Members[m].Create(t.Context(), foreign[m]))
	}
	unwritten := func(m string) {
		if is := musttest.Get(w.LeaseIn(m, a))(w.T); is.ResourceVersion != foreign[m].ResourceVersion {
			t.Errorf("the Lease in %s was written: %+v", m, is)
		}
	}
	w.Policy("p", a)
	w.startHub()
	epoch := w.Leads("west", a, firstElection, "west")
	j := w.keeps("west", a)
	for m := range foreign {
		w.awaitUnfit(m, a, reason.ForeignLease,
			"Lease "+a+"/leasecast", "made by somebody else", "delete it, or use another leaseName")
	}
	j.grow(3)
	unwritten("east")
	unwritten("south")

	t.Log("a cluster without it follows; a cluster with it leaves all the same")
	w.Must(w.Members["south"].Delete(t.Context(), foreign["south"]))
	w.awaitEligible("south", a)
	if got := w.Leads("west", a, soon, "west", "south"); got != epoch {
		t.Errorf("epoch %d, was %d", got, epoch)
	}
	j.check()
	w.removePriority("east")
	w.left("east")
	w.awaitUnpinned("east")
	unwritten("east")
}

func TestASelectorManagesWhatMatchesWhereItMatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brief, three)
	a, b := w.namespace("a", all...), w.namespace("b", all...)
	label := func(member, value string) {
		patch := []byte(`{"metadata":{"labels":{"led":` + value + `}}}`)
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a}}
		w.Must(w.Members[member].Patch(t.Context(), ns, client.RawPatch(types.MergePatchType, patch)))
	}
	label("west", `"yes"`)
	p := w.NewPolicy("p")
	p.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"led": "yes"}}
	w.Must(w.Hub.Create(t.Context(), p))
	w.startHub()
	t.Log("it matches in one member: there it is led, the others hold followers' Leases")
	epoch := w.Leads("west", a, firstElection, all...)
	j := w.keeps("west", a)
	w.awaitUnfit("east", a, reason.NamespaceMissing, "does not match")
	if _, err := w.Record(b); !apierrors.IsNotFound(err) {
		t.Errorf("the record of a namespace that matches nowhere: %v", err)
	}
	label("east", `"yes"`)
	w.awaitEligible("east", a)
	j.check()
	last := w.follow("west", a)
	label("west", "null")
	w.handedOver(a, "east", epoch, last, all...)
}
