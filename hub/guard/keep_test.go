package guard_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/guard"
)

// stored is a policy and its binding, as the API server stores them.
type stored struct {
	Policy  *admissionv1.ValidatingAdmissionPolicy
	Binding *admissionv1.ValidatingAdmissionPolicyBinding
}

// diff returns how the specs differ.
func (s stored) diff(want stored) string {
	return cmp.Diff(want.Policy.Spec, s.Policy.Spec) + cmp.Diff(want.Binding.Spec, s.Binding.Spec)
}

func read(ctx context.Context, client *kubernetes.Clientset, name string) (s stored, err error) {
	v1 := client.AdmissionregistrationV1()
	if s.Policy, err = v1.ValidatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{}); err == nil {
		s.Binding, err = v1.ValidatingAdmissionPolicyBindings().Get(ctx, name, metav1.GetOptions{})
	}
	return s, err
}

// edits are what others do to a policy and its binding.
var edits = map[string]func(stored){
	"the binding only audits": func(s stored) {
		s.Binding.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Audit}
	},
	"the policy matches nothing": func(s stored) {
		nothing := admissionv1.MatchCondition{Name: "nothing", Expression: "false"}
		s.Policy.Spec.MatchConditions = append(s.Policy.Spec.MatchConditions, nothing)
	},
	"labels are replaced": func(s stored) {
		s.Policy.Labels = map[string]string{"example.com/team": "security"}
	},
	"annotations are replaced": func(s stored) {
		s.Policy.Annotations = map[string]string{v1alpha1.HubAnnotation: "another"}
	},
}

// edited edits a policy and its binding, and reports whether a generation rose.
func edited(t *testing.T, client *kubernetes.Clientset, name string, edit func(stored)) (changed bool) {
	t.Helper()
	s := musttest.Get(read(t.Context(), client, name))(t)
	before := s.Policy.Generation + s.Binding.Generation
	edit(s)
	v1, o := client.AdmissionregistrationV1(), metav1.UpdateOptions{}
	policy := musttest.Get(v1.ValidatingAdmissionPolicies().Update(t.Context(), s.Policy, o))(t)
	binding := musttest.Get(v1.ValidatingAdmissionPolicyBindings().Update(t.Context(), s.Binding, o))(t)
	return policy.Generation+binding.Generation > before
}

func TestKeeper_RevertsEdits(t *testing.T) {
	guarded(t)
	ns, client, h := newNamespace(t), administrator(t), hubOf(t)
	fence := fences(t, checkoutWrites, map[string]*state{ns: &westLeads})
	objects := append(fence.Names(), guard.AnchorName, guard.Name, guard.RegistrationsName)
	for _, name := range objects {
		before := musttest.Get(read(t.Context(), client, name))(t)
		restored := func(ctx context.Context) error {
			if h.turn(ctx); h.Unguarded() != nil {
				return h.Unguarded()
			}
			now, err := read(ctx, client, name)
			if err != nil {
				return err
			}
			for key, value := range before.Policy.Annotations {
				if now.Policy.Annotations[key] != value {
					err = fmt.Errorf("annotations are %v", now.Policy.Annotations)
				}
			}
			if now.Policy.Labels[v1alpha1.ManagedByLabel] != v1alpha1.ManagedByValue {
				err = fmt.Errorf("labels are %v", now.Policy.Labels)
			}
			if diff := now.diff(before); diff != "" {
				err = errors.New(diff)
			}
			return errors.Join(err, h.Unfenced(fence, ns))
		}
		for what, edit := range edits {
			t.Run(name+"/"+what, func(t *testing.T) {
				mended := h.mended
				since, _ := h.FencedSince(fence, ns)
				changed := edited(t, client, name, edit) || what == "labels are replaced" // the hub lists by its label
				eventually(t, "it is restored", restored)
				again, _ := h.FencedSince(fence, ns)
				isEdit := changed && slices.Contains(fence.Names(), name)
				if reported := h.mended > mended; reported != isEdit || (again > since) != isEdit {
					t.Errorf("an edit of a fence is reported: %v; in force since %v, and since %v", reported, since, again)
				}
				now, err := read(t.Context(), client, name)
				if team := now.Policy.Labels["example.com/team"]; err != nil || what == "labels are replaced" && team == "" {
					t.Errorf("the label of others is %q, %v", team, err)
				}
			})
		}
		v1 := client.AdmissionregistrationV1()
		for what, remove := range map[string]func(context.Context, string, metav1.DeleteOptions) error{
			"policy": v1.ValidatingAdmissionPolicies().Delete, "binding": v1.ValidatingAdmissionPolicyBindings().Delete,
		} {
			t.Run(name+"/its "+what+" is deleted", func(t *testing.T) {
				musttest.Do(t, remove(t.Context(), name, metav1.DeleteOptions{}))
				eventually(t, "it is restored", restored)
			})
		}
	}
	for _, p := range guard.Policies() {
		now, err := read(t.Context(), client, p.Policy.Name)
		if diff := now.diff(stored{p.Policy, p.Binding}); err != nil || diff != "" {
			t.Errorf("%v; policy (-want +got):\n%s", err, diff)
		}
		if *p.Policy.Spec.FailurePolicy != admissionv1.Fail {
			t.Errorf("%s accepts a request that it cannot evaluate", p.Policy.Name)
		}
	}
}

// verifySoon verifies the guard until the result is that.
func verifySoon(t *testing.T, client kubernetes.Interface, want error) {
	t.Helper()
	eventually(t, fmt.Sprint("the result is ", want), func(ctx context.Context) error {
		if err := guard.Verify(ctx, client); !errors.Is(err, want) {
			return fmt.Errorf("it is %w", err)
		}
		return nil
	})
}

func TestVerify_NoticesAnotherVersion(t *testing.T) {
	guarded(t)
	client := administrator(t)
	for _, p := range guard.Policies() {
		edited(t, client, p.Policy.Name, func(s stored) {
			for i, v := range s.Policy.Spec.Validations {
				s.Policy.Spec.Validations[i].Message, _, _ = strings.Cut(v.Message, "(guard ")
			}
		})
		verifySoon(t, client, guard.ErrNotEnforced)
		guarded(t)
	}
}

func TestVerify_NeedsTheRightsOfTheHub(t *testing.T) {
	guarded(t)
	for want, client := range map[error]kubernetes.Interface{
		guard.ErrNotEnforced: account(t, "hub-without-leases", everyURL),
		guard.ErrForbidden:   account(t, "lease-editor", onLeases("*")),
	} {
		if err := guard.Verify(t.Context(), client); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
}

func TestRemove_LeavesOnlyFencesOfOtherHubsAndFleets(t *testing.T) {
	guarded(t)
	client, ns := administrator(t), newNamespace(t)
	fence := fences(t, checkoutWrites, map[string]*state{ns: nil})
	other := hubOf(t).Options
	other.Hub = "another"
	for _, h := range []*guard.Keeper{guard.NewKeeper(other), newHub(client, "branch").Keeper} {
		musttest.Do(t, h.Remove(t.Context(), true))
		if _, err := read(t.Context(), client, fence.Names()[1]); err != nil {
			t.Errorf("a fence of another hub or fleet: %v", err)
		}
	}
	for range 2 { // what is missing counts as removed
		musttest.Do(t, hubOf(t).Remove(t.Context(), true))
	}
	verifySoon(t, client, guard.ErrNotEnforced)
	for _, p := range guard.Policies() {
		if _, err := read(t.Context(), client, p.Policy.Name); !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", p.Policy.Name, err)
		}
		_, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().
			Get(t.Context(), p.Policy.Name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("the binding of %s: %v", p.Policy.Name, err)
		}
	}
	leases, err := client.CoordinationV1().Leases(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(leases.Items) > 0 {
		t.Errorf("an accepted probe was stored: %v, %v", leases.Items, err)
	}
}

// A real API server accepts the selector.
func TestGuarded_ExcludesNamespacesOfTheCluster(t *testing.T) {
	admin := administrator(t)
	for _, ns := range []string{metav1.NamespaceSystem, metav1.NamespaceDefault} {
		mustSend(t, admin, ns, "selected", unmanaged+` ; update leases {"metadata":{"labels":{"guarded":"test"}}}`)
		t.Cleanup(func() { _ = send(context.Background(), admin, ns, "selected", "delete leases") })
	}
	leases, err := admin.CoordinationV1().Leases(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{
		LabelSelector: "guarded=test", FieldSelector: guard.Guarded().String(),
	})
	if err != nil || len(leases.Items) != 1 || leases.Items[0].Namespace != metav1.NamespaceDefault {
		t.Errorf("it selects %v, %v", leases.Items, err)
	}
}
