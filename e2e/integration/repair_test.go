package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/seal"
)

// sealKey is what the Leases of the world are sealed with.
func (w *world) sealKey() seal.Key {
	s := &corev1.Secret{}
	w.Must(w.Hub.Get(w.T.Context(), types.NamespacedName{Namespace: w.Fleet, Name: "leasecast-seal"}, s))
	return s.Data["key"]
}

// edits are what an administrator of a member can do to a Lease: the guard refuses it to everybody else. The tests of
// hub/publish and hub/seal have one for each field.
var edits = map[string]func(l *coordinationv1.Lease){
	"another holder": func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("somebody.else") },
	"a renewTime in the future": func(l *coordinationv1.Lease) {
		l.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(time.Hour)}
	},
	"an absurd epoch":         func(l *coordinationv1.Lease) { *l.Spec.LeaseTransitions = 2147483647 },
	"no seal":                 func(l *coordinationv1.Lease) { delete(l.Annotations, v1alpha1.SealAnnotation) },
	"another hub":             func(l *coordinationv1.Lease) { l.Annotations[v1alpha1.HubAnnotation] = "0000" },
	"no label, no annotation": func(l *coordinationv1.Lease) { l.Labels, l.Annotations = nil, nil },
}

// intact reports what is wrong with a Lease of a term. It knows the seal.
func (w *world) intact(l *coordinationv1.Lease, key seal.Key, leader string, epoch int64) error {
	c, seal := wire.Read(l)
	switch {
	case !key.Sealed(c, seal):
		return fmt.Errorf("not sealed: %+v", c)
	case c.Holder != leader+"."+w.Fleet, c.Epoch != epoch, c.Duration != w.duration():
		return fmt.Errorf("says %+v, want %s in epoch %d for %v", c, leader, epoch, w.duration())
	case l.Labels[v1alpha1.ManagedLabel] != "true", l.Labels[v1alpha1.ManagedByLabel] != v1alpha1.ManagedByValue:
		return fmt.Errorf("has the labels %v", l.Labels)
	case c.RenewTime.After(time.Now()):
		return fmt.Errorf("is stamped in the future: %v", c.RenewTime)
	}
	return nil
}

// repaired waits until a Lease is intact again.
func (w *world) repaired(member, namespace string, key seal.Key, leader string, epoch int64) {
	w.Eventually("the Lease in "+member+" is repaired", soon, func() error {
		l := must.Get(w.LeaseIn(member, namespace))
		return w.intact(l, key, leader, epoch)
	})
}

// unmoved fails the test if a record is not what it was.
func (w *world) unmoved(before *v1alpha1.NamespaceLeader) {
	w.T.Helper()
	after := musttest.Get(w.Record(before.Name))(w.T)
	was, is := before.Spec, after.Spec
	if is.Leader != was.Leader || is.Epoch != was.Epoch || is.State != was.State || !is.Since.Equal(was.Since) {
		w.T.Errorf("%s was disturbed: %s epoch %d %s (%s) since %v; was %s epoch %d since %v; history %+v", after.Name,
			is.Leader, is.Epoch, is.State, is.Reason, is.Since, was.Leader, was.Epoch, was.Since, after.Status.History)
	}
}

func TestAnEditOfALeaseIsRepairedWithinASecond(t *testing.T) {
	t.Parallel()
	w, a, epoch := eastLeads(t, patient) // and a renewal seldom comes before the repair
	j, key, reader := w.keeps("east", a), w.sealKey(), w.reader("east", a)
	var repairs []time.Duration
	for name, edit := range edits {
		for _, m := range []string{"east", "west"} {
			t.Run(name+" in "+m, func(t *testing.T) {
				inner := w.on(t)
				repairs = append(repairs, took(func() { inner.spoil(m, a, key, epoch, edit) }))
				inner.leadsByReader(reader, a, epoch) // in its term, which gets no longer
			})
		}
	}
	for _, m := range all {
		l := musttest.Get(w.LeaseIn(m, a))(t)
		w.Must(w.Members[m].Delete(t.Context(), l))
		repairs = append(repairs, took(func() { w.repaired(m, a, key, "east", epoch) }))
	}
	slices.Sort(repairs) // a busy machine delays a few
	within(t, "half of the repairs", repairs[len(repairs)/2], time.Second)
	w.unmoved(j.before)
	w.keeps("east", a).check() // renewals go on
}

// spoil edits a Lease and waits for its repair.
func (w *world) spoil(member, namespace string, key seal.Key, epoch int64, edit func(*coordinationv1.Lease)) {
	w.T.Helper()
	stamp := w.edit(member, namespace, edit)
	w.repaired(member, namespace, key, "east", epoch)
	if l := musttest.Get(w.LeaseIn(member, namespace))(w.T); l.Spec.RenewTime.Time.Before(stamp) {
		w.T.Errorf("the repair took back a renewTime: %v after %v", l.Spec.RenewTime, stamp)
	}
}

// edit edits a Lease, and returns its renewTime from before.
func (w *world) edit(member, namespace string, edit func(*coordinationv1.Lease)) (stamp time.Time) {
	w.Eventually("the edit is stored", soon, func() error { // a renewal may come in between
		l := must.Get(w.LeaseIn(member, namespace))
		stamp = l.Spec.RenewTime.Time
		edit(l)
		return w.Members[member].Update(w.T.Context(), l)
	})
	return stamp
}
