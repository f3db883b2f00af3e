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
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/hub/seal"
)

// sealKey is what the Leases of the world are sealed with.
func (w *world) sealKey() seal.Key {
	s := &corev1.Secret{}
	w.Must(w.Hub.Get(w.T.Context(), types.NamespacedName{Namespace: w.Fleet, Name: "leasecast-seal"}, s))
	return s.Data["key"]
}

// edits are what an administrator of a member can do to a Lease: the guard refuses it to
// everybody else.
var edits = map[string]func(l *coordinationv1.Lease){
	"another holder": func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("somebody.else") },
	"no holder":      func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("") },
	"this member as holder": func(l *coordinationv1.Lease) {
		l.Spec.HolderIdentity = ptr.To(l.Annotations[v1alpha1.ClusterAnnotation])
	},
	"a renewTime in the future": func(l *coordinationv1.Lease) {
		l.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(time.Hour)}
	},
	"a renewTime in the past": func(l *coordinationv1.Lease) {
		l.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-time.Hour)}
	},
	"another start":   func(l *coordinationv1.Lease) { l.Spec.AcquireTime = &metav1.MicroTime{Time: time.Now()} },
	"an absurd epoch": func(l *coordinationv1.Lease) { *l.Spec.LeaseTransitions = 2147483647 },
	"no label":        func(l *coordinationv1.Lease) { l.Labels = nil },
	"another label value": func(l *coordinationv1.Lease) {
		metav1.SetMetaDataLabel(&l.ObjectMeta, v1alpha1.ManagedLabel, "false")
	},
	"no seal":                 func(l *coordinationv1.Lease) { delete(l.Annotations, v1alpha1.SealAnnotation) },
	"another seal":            func(l *coordinationv1.Lease) { l.Annotations[v1alpha1.SealAnnotation] = "v1.AAAA" },
	"another cluster":         func(l *coordinationv1.Lease) { l.Annotations[v1alpha1.ClusterAnnotation] = "some.other" },
	"another cluster's UID":   func(l *coordinationv1.Lease) { l.Annotations[v1alpha1.ClusterUIDAnnotation] = "0000" },
	"another hub":             func(l *coordinationv1.Lease) { l.Annotations[v1alpha1.HubAnnotation] = "0000" },
	"no label, no annotation": func(l *coordinationv1.Lease) { l.Labels, l.Annotations = nil, nil },
}

// burning are edits after which readers, who know no seal, no longer believe the truth.
var burning = map[string]func(l *coordinationv1.Lease){
	"a longer duration": func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = ptr.To[int32](3600) },
	"a higher epoch":    func(l *coordinationv1.Lease) { *l.Spec.LeaseTransitions += 7 },
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
	after := harness.Get(w.Record(before.Name))(w.T)
	was, is := before.Spec, after.Spec
	if is.Leader != was.Leader || is.Epoch != was.Epoch || is.State != was.State || !is.Since.Equal(was.Since) {
		w.T.Errorf("%s moved: history %+v", before.Name, after.Status.History)
	}
}

func TestWhateverSomebodyEditsInALeaseIsRepairedWithinASecond(t *testing.T) {
	t.Parallel()
	w, a, b, epoch := eastLeadsTwo(t, patient) // and a renewal seldom comes before the repair
	j, key := w.keeps("east", b), w.sealKey()
	before := harness.Get(w.Record(a))(w.T)
	repairs, reader := w.seeRepairs(a), w.reader("east", a)
	for name, edit := range edits {
		for _, m := range []string{"east", "west"} {
			t.Run(name+" in "+m, func(t *testing.T) {
				inner := w.on(t)
				inner.spoil(m, a, key, epoch, edit)
				inner.unmoved(before)
				inner.leadsByReader(reader, a, epoch) // in its term, which gets no longer
			})
		}
	}
	for _, m := range all {
		t.Run("deleted in "+m, func(t *testing.T) {
			inner := w.on(t)
			l := harness.Get(inner.LeaseIn(m, a))(inner.T)
			inner.Must(inner.Members[m].Delete(t.Context(), l))
			inner.repaired(m, a, key, "east", epoch)
			inner.unmoved(before)
		})
	}
	// In east the edit that names this member changes nothing.
	w.areQuick(repairs(key, epoch), 2*len(edits)-1+len(all))
	// Renewals go on, in the same term.
	w.follow("east", a)
	w.keeps("east", a).check()
	j.check()
}

// seeRepairs watches the Leases of a namespace until the returned function is called. That returns how long each Lease
// was not intact: from the edited version to the hub's, both as the watch observed them. A delay of all watches does
// not count.
func (w *world) seeRepairs(namespace string) func(key seal.Key, epoch int64) []time.Duration {
	var watches []*harness.Watch[*coordinationv1.Lease]
	for _, m := range all {
		watches = append(watches, w.watch(m, namespace))
	}
	return func(key seal.Key, epoch int64) (repairs []time.Duration) {
		for _, watch := range watches {
			watch.Stop()
			var spoilt *time.Duration
			for _, s := range watch.Seen() {
				switch intact := !s.Gone && w.intact(s.Object, key, "east", epoch) == nil; {
				case intact && spoilt != nil:
					repairs = append(repairs, s.At.Boot-*spoilt)
					spoilt = nil
				case !intact && spoilt == nil:
					spoilt = &s.At.Boot
				}
			}
		}
		return repairs
	}
}

// areQuick fails the test unless 90% of the wanted repairs were observed, and 90% of those within a second. A machine
// that pauses delays one or two.
func (w *world) areQuick(repairs []time.Duration, want int) {
	w.T.Helper()
	slices.Sort(repairs)
	n := len(repairs)
	if n < want*9/10 { // a watch that breaks may miss one
		w.T.Fatalf("%d repairs were seen of %d: %v", n, want, repairs)
	}
	w.T.Logf("%d repairs: median %v, slowest %v", n, repairs[n/2], repairs[n-1])
	if most := repairs[n*9/10]; most > time.Second {
		w.T.Errorf("nine of ten repairs took up to %v, want a second at most; all: %v", most, repairs)
	}
}

// spoil edits a Lease and waits for its repair.
func (w *world) spoil(member, namespace string, key seal.Key, epoch int64, edit func(*coordinationv1.Lease)) {
	w.T.Helper()
	stamp := w.edit(member, namespace, edit)
	w.repaired(member, namespace, key, "east", epoch)
	if l := harness.Get(w.LeaseIn(member, namespace))(w.T); l.Spec.RenewTime.Time.Before(stamp) {
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

func TestALeaseThatIsStrippedOfItsMarksIsRepairedByARestartedHubToo(t *testing.T) {
	t.Parallel()
	w, a, epoch := eastLeads(t, lasting)
	key := w.sealKey()
	before := harness.Get(w.Record(a))(w.T)
	w.StopHub()
	w.startHub()
	// The new hub has written nothing into a follower yet.
	w.keeps("east", a).grow(2)
	for _, m := range []string{"west", "east"} {
		w.spoil(m, a, key, epoch, edits["no label, no annotation"])
	}
	w.unmoved(before)
}

func TestALeaseThatAnotherHubHasSealedIsLeftAloneAndNobodyIsDeposed(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]string{"the leader's": "east", "a follower's": "west"} {
		t.Run(name, func(t *testing.T) {
			w, a, b, _ := eastLeadsTwo(t, brief)
			before := harness.Get(w.Record(a))(w.T)
			j, key := w.keeps("east", b), w.sealKey()
			var theirs *coordinationv1.Lease
			w.Eventually("the other hub writes", soon, func() error {
				theirs = must.Get(w.LeaseIn(m, a))
				c, _ := wire.Read(theirs)
				c.Hub = "11111111-2222-3333-4444-555555555555"
				w.Must(seal.Write(key, c, theirs))
				return w.Members[m].Update(t.Context(), theirs)
			})
			w.awaitUnfit(m, a, reason.OtherHub, "written by the hub 11111111-2222-3333-4444-555555555555", "stop that hub")
			w.awaitCondition(a, v1alpha1.ConditionLeasesInPlace, metav1.ConditionFalse, "OtherHub", m+": Lease")
			j.outlive()
			if now := harness.Get(w.LeaseIn(m, a))(w.T); now.ResourceVersion != theirs.ResourceVersion {
				t.Errorf("it was written: %+v", now)
			}
			w.unmoved(before)
			j.check()
		})
	}
}
