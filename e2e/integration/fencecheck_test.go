package integration

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// People check a fence while it only warns, and again when it refuses. A stock elector in each cluster holds its lock
// until then.
func TestThePluginChecksAFenceBeforeItRefusesAndAfter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, steady, three)
	w.allow("fencing", all...)
	a := w.namespace("a", all...)
	lock := v1alpha1.LockFence{
		Namespace: a, Name: "stock", LeaseDurationSeconds: 6, RenewDeadlineSeconds: 4, RetryPeriodSeconds: 1,
		RequestTimeoutSeconds: 2, ReleaseTimeoutSeconds: ptr.To[int32](0),
	}
	p := w.NewPolicy("p", a)
	p.Spec.Fencing = fencing.DeepCopy()
	p.Spec.Fencing.Writes[0].ServiceAccounts[0].Name = "mistyped" // no namespace has it
	p.Spec.Fencing.Enforcement = v1alpha1.EnforcementWarn
	p.Spec.Fencing.LeaderElectionLocks = []v1alpha1.LockFence{lock}
	w.Must(w.Hub.Create(t.Context(), p))
	w.startHub()
	w.Leads("east", a, firstElection, all...)
	w.awaitPolicy("p", v1alpha1.ConditionFencesInForce, metav1.ConditionTrue, "Warns")
	w.shows(2, []string{"p: 9 fences in 3 clusters, problems: 1", "AccountMissing",
		"there is no ServiceAccount mistyped in east, south, west"}, "fence", "check", "p")
	w.editPolicy("p", func(s *v1alpha1.LeadershipPolicySpec) {
		s.Fencing.Writes[0].ServiceAccounts[0].Name = "default" // every namespace has it
	})
	w.shows(0, []string{"p: 9 fences in 3 clusters, problems: 0", "every cluster warns"}, "fence", "check", "p")
	if out, _ := w.plugin("", "fence", "check", "p"); strings.Contains(out, "Warning:") {
		t.Errorf("it prints the warnings that it asks for:\n%s", out)
	}
	w.elect(lock, all...)
	w.shows(2, []string{"p: 9 fences in 3 clusters, problems: 2", "HeldElsewhere",
		"stock-in-west holds the lock " + a + "/stock",
		"stock-in-south holds", "with enforcement Deny the fence stops it", "stock-in-east"}, "fence", "check", "p")
	w.shows(2, []string{`"holder": "stock-in-west"`, `"reason": "HeldElsewhere"`}, "fence", "check", "p", "-o", "json")

	t.Log("the fence refuses, so the electors in followers stop")
	w.editPolicy("p", func(s *v1alpha1.LeadershipPolicySpec) { s.Fencing.Enforcement = v1alpha1.EnforcementDeny })
	w.shows(0, []string{"p: 9 fences in 3 clusters, problems: 0", "InForce: in force in all 3 clusters"},
		"fence", "check", "p")

	t.Log("an administrator of west removes the fences, and no hub restores them")
	w.StopHub()
	w.Must(w.Members["west"].DeleteAllOf(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{},
		client.MatchingLabels{v1alpha1.FenceLabel: w.Fleet}))
	w.shows(2, []string{"p: 9 fences in 3 clusters, problems: 3", "west", "NotEnforced", a + "/stock: in namespace " + a,
		"start the hub, which restores it", "was let through"}, "fence", "check", "p")

	w.runs(1, []string{`no policy "nothing"`}, "fence", "check", "nothing")
}
