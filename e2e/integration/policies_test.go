package integration

import (
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

func TestAPolicyWithAnotherLeaseNameTakesOverInANewTermAfterTheBound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brief, three)
	a, b := w.namespace("a", all...), w.namespace("b", all...)
	older := w.Policy("older", a)
	w.Eventually("what is created next is younger, as API servers count seconds", soon, func() error {
		return must.ErrorIf(time.Since(older.CreationTimestamp.Time) < time.Second, "not yet")
	})
	newer := w.NewPolicy("newer", a, b)
	newer.Spec.LeaseName = "other"
	w.Must(w.Hub.Create(t.Context(), newer))
	w.startHub()
	epoch := w.Leads("east", a, firstElection, all...)
	w.awaitPolicy("newer", v1alpha1.ConditionAccepted, metav1.ConditionFalse, "Conflict", a)

	last := w.follow("east", a)
	w.deletePolicy("older")
	other := &coordinationv1.Lease{}
	w.Eventually("the other Lease names east", w.ordered(), func() error {
		err := w.Members["east"].Get(t.Context(), types.NamespacedName{Namespace: a, Name: "other"}, other)
		if err == nil && *other.Spec.HolderIdentity != "east."+w.Fleet {
			err = fmt.Errorf("holder %q", *other.Spec.HolderIdentity)
		}
		return err
	})
	if *other.Spec.LeaseTransitions <= int32(epoch) {
		t.Errorf("epoch %d after %d", *other.Spec.LeaseTransitions, epoch)
	}
	if bound := last().Add(w.term()); other.Spec.AcquireTime.Time.Before(bound) {
		t.Errorf("granted at %v, before the bound %v", other.Spec.AcquireTime, bound)
	}
	for _, m := range all {
		w.noLease(m, a, soon)
	}
	w.awaitPolicy("newer", v1alpha1.ConditionAccepted, metav1.ConditionTrue, "Accepted")
}

// namespaceGone waits until a namespace has really gone from members.
func (w *world) namespaceGone(namespace string, members ...string) {
	for _, m := range members {
		w.Eventually(namespace+" is gone from "+m, 30*time.Second, func() error {
			ns := &corev1.Namespace{}
			err := w.Members[m].Get(w.T.Context(), types.NamespacedName{Name: namespace}, ns)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("%w, %+v", unawaited(err), ns.Status)
		})
	}
}

func TestANamespaceThatTerminatesInItsLeaderIsHandedOverAndGoes(t *testing.T) {
	t.Parallel()
	w, a, b, epoch := eastLeadsTwo(t, brief)
	j := w.keeps("east", b)
	// Content with a finalizer holds the namespace in Terminating for as long as we like.
	anchor := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace:  a,
		Name:       "anchor",
		Finalizers: []string{"e2e.leasecast.dev/hold"},
	}}
	w.Must(w.Members["east"].Create(t.Context(), anchor))
	last := w.follow("east", a)
	w.deleteNamespace(a, "east")
	w.awaitUnfit("east", a, reason.NamespaceTerminating, "is being deleted there")
	w.handedOver(a, "west", epoch, last, "west", "south")
	w.noLease("east", a, soon)
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	w.Must(w.Members["east"].Patch(t.Context(), anchor, client.RawPatch(types.MergePatchType, patch)))
	w.namespaceGone(a, "east")
	w.awaitUnfit("east", a, reason.NamespaceMissing)

	// The namespace comes back: its Lease too, the leadership does not.
	w.Must(w.Members["east"].Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a}}))
	w.Leads("west", a, soon, all...)
	w.awaitEligible("east", a)
	j.check()
}

// foreignLease is one that somebody else made.
func foreignLease(namespace string) *coordinationv1.Lease {
	now := metav1.NowMicro()
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      v1alpha1.DefaultLeaseName,
			Labels:    map[string]string{"app": "somebody-else"},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       ptr.To("somebody-else"),
			RenewTime:            &now,
			LeaseDurationSeconds: ptr.To[int32](60),
		},
	}
}

func TestALeaseOfAnotherClientIsNeverOverwritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, steady, three)
	a, b := w.namespace("a", all...), w.namespace("b", all...)
	foreign := map[string]*coordinationv1.Lease{"east": foreignLease(a), "south": foreignLease(a)}
	for m, l := range foreign {
		w.Must(w.Members[m].Create(t.Context(), l))
	}
	w.Policy("p", a, b)
	w.startHub()
	// In the best cluster, and in a follower.
	epoch := w.Leads("west", a, firstElection, "west")
	w.Leads("east", b, firstElection, all...)
	ja, jb := w.keeps("west", a), w.keeps("east", b)
	for m := range foreign {
		w.awaitUnfit(m, a, reason.ForeignLease,
			"Lease "+a+"/leasecast", "made by somebody else", "delete it, or use another leaseName")
	}
	w.awaitCondition(a, v1alpha1.ConditionLeasesInPlace, metav1.ConditionFalse, "ForeignLease",
		"east: Lease "+a+"/leasecast", "south: Lease")
	w.awaitCondition(b, v1alpha1.ConditionLeasesInPlace, metav1.ConditionTrue, "InPlace")
	ja.grow(3)
	for m, l := range foreign {
		if now := harness.Get(w.LeaseIn(m, a))(w.T); now.ResourceVersion != l.ResourceVersion || now.UID != l.UID {
			t.Errorf("the Lease in %s was written: %+v", m, now)
		}
	}

	w.Must(w.Members["south"].Delete(t.Context(), foreign["south"]))
	w.awaitEligible("south", a)
	if got := w.Leads("west", a, soon, "west", "south"); got != epoch {
		t.Errorf("epoch %d, was %d", got, epoch)
	}
	w.awaitCondition(a, v1alpha1.ConditionLeasesInPlace, metav1.ConditionFalse, "ForeignLease", "east: Lease")
	ja.check()
	jb.check()
	// A cluster with such a Lease leaves all the same.
	w.removePriority("east")
	w.noLease("east", b, w.ordered())
	w.left("east")
	w.awaitUnpinned("east")
	if now := harness.Get(w.LeaseIn("east", a))(w.T); now.ResourceVersion != foreign["east"].ResourceVersion {
		t.Errorf("it was written: %+v", now)
	}
}

// policyBySelector makes a policy by labels, with the world's timings.
func (w *world) policyBySelector(name string, selector *metav1.LabelSelector) {
	p := w.NewPolicy(name)
	p.Spec.Namespaces.Selector = selector
	w.Must(w.Hub.Create(w.T.Context(), p))
}

// label sets or, with an empty value, removes a label of a namespace.
func (w *world) label(member, namespace, key, value string) {
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
	if value == "" {
		patch = fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, key)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	w.Must(w.Members[member].Patch(w.T.Context(), ns, client.RawPatch(types.MergePatchType, []byte(patch))))
}

func TestASelectorManagesWhatMatchesWhereItMatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brief, three)
	a := w.namespace("a", all...)
	b := w.namespace("b", all...)
	w.label("west", a, "led", "yes")
	w.policyBySelector("p", &metav1.LabelSelector{MatchLabels: map[string]string{"led": "yes"}})
	w.startHub()
	// It matches in one member only: there it is led, the others hold followers' Leases.
	epoch := w.Leads("west", a, firstElection, all...)
	j := w.keeps("west", a)
	w.awaitUnfit("east", a, reason.NamespaceMissing, "does not match")
	if _, err := w.Record(b); !apierrors.IsNotFound(err) {
		t.Errorf("the record of a namespace that matches nowhere: %v", err)
	}
	w.label("east", a, "led", "yes")
	w.awaitEligible("east", a)
	j.check()
	last := w.follow("west", a)
	w.label("west", a, "led", "")
	w.handedOver(a, "east", epoch, last, all...)
}
