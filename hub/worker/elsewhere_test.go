package worker

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

// elsewhere are the fences of a policy for namespace shop: of its Jobs, of an account of namespace ci, and of a lock there.
func elsewhere() []guard.Fence {
	return guard.Fences(us, &v1alpha1.LeadershipPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "shops"},
		Spec: v1alpha1.LeadershipPolicySpec{
			Namespaces: v1alpha1.NamespaceSelection{Names: []string{"shop"}},
			Fencing: &v1alpha1.Fencing{
				Schedules: &metav1.LabelSelector{},
				Writes: []v1alpha1.WriteFence{{
					ServiceAccounts: []v1alpha1.FencedServiceAccount{{Namespace: "ci", Name: "deployer"}},
					Resources:       []v1alpha1.FencedResources{{Names: []string{"configmaps"}}},
				}},
				LeaderElectionLocks: []v1alpha1.LockFence{{
					Namespace: "ci", Name: "stock", LeaseDurationSeconds: 15, RenewDeadlineSeconds: 10, RetryPeriodSeconds: 2,
				}},
			},
		},
	}, nil)
}

// An administrator allows what is fenced in a namespace that is not the policy's, and takes that back.
func TestWhatIsFencedElsewhereComesAndGoesWithTheLabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenced(t, elsewhere()...)
		labelled := func(labels map[string]string) {
			f.east.shows(func(a *memberAPI) {
				a.namespaces = map[string]map[string]string{"shop": nil, "ci": labels}
			})
		}
		labelled(nil)
		defer f.runs(f.keep)()
		for _, step := range []struct {
			labels map[string]string
			is     bool
		}{
			{nil, false}, {map[string]string{v1alpha1.FencingLabel: v1alpha1.FencingAllowed}, true},
			{map[string]string{v1alpha1.FencingLabel: "no"}, false}, {map[string]string{v1alpha1.FencingLabel: v1alpha1.FencingAllowed}, true},
		} {
			labelled(step.labels)
			pass(3 * time.Second)
			for _, fence := range f.wanted {
				own, err := fence.Schedules() != nil, f.Unfenced(fence, "shop")
				if want := own || step.is; (err == nil) != want || !want && !slices.Equal(guard.DeniedIn(err), []string{"ci"}) {
					t.Errorf("with the labels %v the fence %s misses %v", step.labels, fence.Name(), err)
				}
				if there := len(f.east.holds("bindings/"+fence.Name())) == 1; there != (own || step.is) {
					t.Errorf("with the labels %v the fence %s is there: %v", step.labels, fence.Name(), there)
				}
			}
		}
		if len(f.events) > 0 {
			t.Errorf("events are %q", f.events)
		}
	})
}
