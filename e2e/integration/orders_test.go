package integration

import (
	"fmt"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must"
)

// order orders to move a namespace, as kubectl annotate does.
func (w *world) order(namespace, to string) {
	o := &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: namespace}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:"the database is there"}}}`,
		v1alpha1.MoveToAnnotation, to, v1alpha1.MoveReasonAnnotation)
	w.Must(w.Hub.Patch(w.T.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// awaitNoOrder waits until the hub has removed the order, and an event says why.
func (w *world) awaitNoOrder(namespace string, why reason.Reason, words string) {
	w.T.Helper()
	w.Eventually("the order has ended", soon, func() error {
		r, err := w.Record(namespace)
		if err != nil {
			return err
		}
		if to, ordered := r.Annotations[v1alpha1.MoveToAnnotation]; ordered {
			return fmt.Errorf("it is still there, to %s", to)
		}
		var events eventsv1.EventList
		must.Do(w.Hub.List(w.T.Context(), &events, client.InNamespace(w.Fleet)))
		for _, e := range events.Items {
			if e.Regarding.Name == namespace && e.Reason == string(why) && strings.Contains(e.Note, words) {
				return nil
			}
		}
		return fmt.Errorf("no event %s with %q", why, words)
	})
}

// editPolicy edits the spec of a policy.
func (w *world) editPolicy(name string, edit func(*v1alpha1.LeadershipPolicySpec)) {
	p := &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: name}}
	w.Must(w.Hub.Get(w.T.Context(), client.ObjectKeyFromObject(p), p))
	base := p.DeepCopy()
	edit(&p.Spec)
	w.Must(w.Hub.Patch(w.T.Context(), p, client.MergeFrom(base)))
}

func TestAnOrderedMoveGoesAgainstPrioritiesOnce(t *testing.T) {
	t.Parallel()
	w, a, epoch := eastLeads(t, brief)
	last := w.follow("east", a)
	w.order(a, "south")
	w.handedOver(a, "south", epoch, last, all...)
	w.awaitNoOrder(a, reason.Ordered, "south leads, as ordered")
	w.awaitHistory(a, reason.Ordered, "the database is there")
	j := w.keeps("south", a)
	w.order(a, "nowhere")
	w.awaitNoOrder(a, reason.OrderRefused, "no Cluster of that name takes part")
	w.drain("west", inAnHour())
	w.awaitUnfit("west", a, reason.Drained)
	w.order(a, "west")
	w.awaitNoOrder(a, reason.OrderRefused, "Drained")
	j.outlive()
	j.check()
	w.setPriority("east", "400")
	w.Leads("east", a, w.ordered(), all...)
	w.awaitHistory(a, reason.PriorityChanged, "")
}

func TestWhereOperatorsFailOverTheHubReplacesNobody(t *testing.T) {
	t.Parallel()
	w, a, epoch := eastLeads(t, brief)
	w.editPolicy("p", func(s *v1alpha1.LeadershipPolicySpec) { s.Failover = v1alpha1.Manual })
	w.Eventually("the hub has seen the policy", soon, func() error {
		r, err := w.Record(a)
		return must.ErrorIf(err == nil && r.Status.ObservedPolicyGeneration < 2, "of %v: %v", r, err)
	})
	w.Servers.Member("east").Proxy().BlackHole()
	command := "leasecast.dev/move-to=west"
	w.Eventually("the record has the command", w.lost(), func() error {
		r, err := w.Record(a)
		if err != nil {
			return err
		}
		is := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionFailoverPending)
		return must.ErrorIf(is == nil || !strings.HasSuffix(is.Message, command), "its conditions are %+v",
			r.Status.Conditions)
	})
	w.comesBack("east", a, epoch)
	w.Servers.Member("east").Proxy().BlackHole()
	w.awaitUnfit("east", a, reason.Unreachable)
	w.order(a, "south")
	w.Leads("south", a, w.lost(), "west", "south")
	w.Servers.Member("east").Proxy().Heal()
}

func TestPolicyFailsBackAndPrefersAsItSays(t *testing.T) {
	t.Parallel()
	w, a, _ := eastLeads(t, brief)
	w.editPolicy("p", func(s *v1alpha1.LeadershipPolicySpec) {
		s.Overrides = []v1alpha1.Override{{Namespace: a, Cluster: "south"}}
	})
	w.Leads("south", a, w.ordered(), all...)
	w.editPolicy("p", func(s *v1alpha1.LeadershipPolicySpec) {
		s.Failback, s.FailbackAfterSeconds = v1alpha1.Automatic, 3
	})
	w.Servers.Member("south").Proxy().BlackHole()
	w.Leads("east", a, w.lost(), "east", "west")
	w.Servers.Member("south").Proxy().Heal()
	w.Leads("south", a, w.lost()+w.ordered(), all...)
	w.awaitHistory(a, reason.Failback, "")
}
