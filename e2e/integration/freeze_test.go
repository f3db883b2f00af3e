package integration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must"
)

// freeze freezes a policy or a record until an instant, as kubectl annotate does; empty: no longer.
func (w *world) freeze(o client.Object, until string) {
	w.Must(w.Hub.Get(w.T.Context(), client.ObjectKeyFromObject(o), o))
	base := o.DeepCopyObject().(client.Object)
	annotations := map[string]string{v1alpha1.FrozenReasonAnnotation: "an incident"}
	if until != "" {
		annotations[v1alpha1.FrozenUntilAnnotation] = until
	}
	o.SetAnnotations(annotations)
	w.Must(w.Hub.Patch(w.T.Context(), o, client.MergeFrom(base)))
}

// awaitFrozen waits until the condition Frozen of a record is True, or is not there.
func (w *world) awaitFrozen(namespace string, want bool) {
	w.Eventually(namespace+" shows whether it is frozen", soon, func() error {
		r, err := w.Record(namespace)
		if err != nil {
			return err
		}
		is := false
		for _, c := range r.Status.Conditions {
			is = is || c.Type == v1alpha1.ConditionFrozen && c.Status == metav1.ConditionTrue
		}
		return must.ErrorIf(is != want, "its conditions are %+v", r.Status.Conditions)
	})
}

func TestAFrozenNamespaceKeepsItsLeaderThroughEditsAndLosses(t *testing.T) {
	t.Parallel()
	w, a, epoch := eastLeads(t, brief)
	p := &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: "p"}}
	w.freeze(p, inAnHour())
	w.awaitFrozen(a, true)
	j := w.keeps("east", a)
	w.setPriority("south", "200")
	w.drain("east", inAnHour())
	j.outlive()
	j.check()

	// A leader that is lost is replaced by itself only, in a new term.
	w.Servers.Member("east").Proxy().BlackHole()
	w.awaitUnfit("east", a, reason.Unreachable)
	w.awaitFrozen(a, true)
	w.comesBack("east", a, epoch)

	// What people have ordered meanwhile comes when the freeze ends.
	w.freeze(p, "")
	w.Leads("south", a, w.ordered(), all...)
	w.awaitFrozen(a, false)

	r := &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: a}}
	w.freeze(r, inAnHour())
	w.awaitFrozen(a, true)
	w.setPriority("west", "300")
	w.keeps("south", a).outlive()
	w.freeze(r, "")
	w.Leads("west", a, w.ordered(), all...)
}
