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
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/leasecast/leasecast/hub/guard"
)

// edit is what somebody does to the stored objects.
type edit func(ctx context.Context, client *kubernetes.Clientset) error

func editPolicy(name string, change func(*admissionv1.ValidatingAdmissionPolicy)) edit {
	return func(ctx context.Context, client *kubernetes.Clientset) error {
		policies := client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
		policy, err := policies.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(policy)
		_, err = policies.Update(ctx, policy, metav1.UpdateOptions{})
		return err
	}
}

func editBinding(name string, change func(*admissionv1.ValidatingAdmissionPolicyBinding)) edit {
	return func(ctx context.Context, client *kubernetes.Clientset) error {
		bindings := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
		binding, err := bindings.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(binding)
		_, err = bindings.Update(ctx, binding, metav1.UpdateOptions{})
		return err
	}
}

func toAudit(b *admissionv1.ValidatingAdmissionPolicyBinding) {
	b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Audit}
}

func TestWhatSomebodyEditsOrDeletesIsRepaired(t *testing.T) {
	client := administrator(t)
	// Each edit ends the protection, so that the test can await that it took effect, and then that the repair did.
	edits := map[string]func(name string) edit{
		"the policy is deleted": func(name string) edit {
			return func(ctx context.Context, client *kubernetes.Clientset) error {
				return client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{})
			}
		},

		"the binding only audits": func(name string) edit { return editBinding(name, toAudit) },

		"the policy matches nothing": func(name string) edit {
			return editPolicy(name, func(p *admissionv1.ValidatingAdmissionPolicy) {
				p.Spec.MatchConditions = []admissionv1.MatchCondition{{Name: "nothing", Expression: "false"}}
			})
		},
		"the policy is of another version": func(name string) edit {
			return editPolicy(name, func(p *admissionv1.ValidatingAdmissionPolicy) {
				for i, v := range p.Spec.Validations {
					if before, _, told := strings.Cut(v.Message, "(guard "); told {
						p.Spec.Validations[i].Message = before + "(guard 00000000)"
					}
				}
			})
		},
	}
	for _, p := range guard.Policies() {
		name := p.Policy.Name
		for what, edit := range edits {
			t.Run(name+"/"+what, func(t *testing.T) {
				standing(t)
				eventuallyNotStanding(t, client, func() { mustEdit(t, client, edit(name)) })
				standing(t)
				mustBeAsBuilt(t, client)
			})
		}
	}
}

func TestLabelsAreRepairedAndThoseOfOthersStay(t *testing.T) {
	standing(t)
	client := administrator(t)
	mustEdit(t, client, editPolicy(guard.Name, func(p *admissionv1.ValidatingAdmissionPolicy) {
		p.Labels = map[string]string{"example.com/team": "security"}
	}))
	standing(t)
	policy, _ := stored(t, client, guard.Name)
	if got := fmt.Sprint(policy.Labels); got != "map[app.kubernetes.io/managed-by:leasecast example.com/team:security]" {
		t.Fatalf("labels: %v", got)
	}
}

func TestRemoveLeavesNothingAndMayBeRepeated(t *testing.T) {
	standing(t)
	client := administrator(t)
	eventuallyNotStanding(t, client, func() {
		for range 2 {
			if err := hubOf(t).Remove(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
	for _, p := range guard.Policies() {
		_, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), p.Policy.Name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("the policy %s is still there: %v", p.Policy.Name, err)
		}
		_, err = client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(t.Context(), p.Binding.Name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("the binding %s is still there: %v", p.Binding.Name, err)
		}
	}
	leases, err := client.CoordinationV1().Leases(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(leases.Items) > 0 {
		t.Errorf("Verify was let through and left Leases behind: %v", leases.Items)
	}
}

func TestAMemberThatForbidsSaysWhatIsMissing(t *testing.T) {
	standing(t)
	about := func(resource string) func(rbacv1.PolicyRule) bool {
		return func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Resources, resource) }
	}
	publishing := func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Verbs, guard.Verb) }
	creating := func(rule rbacv1.PolicyRule) bool {
		return about("validatingadmissionpolicies")(rule) && slices.Contains(rule.Verbs, "create")
	}
	tests := map[string]struct {
		without func(rbacv1.PolicyRule) bool
		removed bool // beforehand
		do      func(ctx context.Context, client *kubernetes.Clientset) error
		want    error
	}{
		"Ensure may not read": {
			without: about("validatingadmissionpolicies"), do: guards, want: guard.ErrForbidden,
		},
		"Ensure may not create": {
			without: creating, removed: true, do: guards, want: guard.ErrForbidden,
		},
		"Remove may not delete": {
			without: about("validatingadmissionpolicies"), do: func(ctx context.Context, client *kubernetes.Clientset) error {
				return newHub(client, "fleet").Remove(ctx)
			},
			want: guard.ErrForbidden,
		},
		"Verify may not publish": {
			without: publishing, do: func(ctx context.Context, client *kubernetes.Clientset) error { return guard.Verify(ctx, client) },
			want: guard.ErrForbidden,
		},
		"Verify may not write Leases, so it cannot tell": {
			without: func(rule rbacv1.PolicyRule) bool { return about("leases")(rule) && !publishing(rule) },
			do:      func(ctx context.Context, client *kubernetes.Clientset) error { return guard.Verify(ctx, client) },
			want:    guard.ErrNotEnforced,
		},
	}
	n := 0
	for name, test := range tests {
		n++
		client := serviceAccount(t, fmt.Sprintf("hub-%d", n), test.without)
		t.Run(name, func(t *testing.T) {
			standing(t)
			if test.removed {
				eventuallyNotStanding(t, administrator(t), func() {
					if err := hubOf(t).Remove(t.Context()); err != nil {
						t.Fatal(err)
					}
				})
			}
			if err := test.do(t.Context(), client); !errors.Is(err, test.want) {
				t.Fatalf("error: %v, want one that wraps %q", err, test.want)
			}
		})
	}
}

func guards(ctx context.Context, client *kubernetes.Clientset) error {
	return newHub(client, "fleet").guards(ctx)
}

func stored(t *testing.T, client kubernetes.Interface, name string) (*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {
	t.Helper()
	policy, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return policy, binding
}

func mustBeAsBuilt(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	for _, want := range guard.Policies() {
		policy, binding := stored(t, client, want.Policy.Name)
		if diff := cmp.Diff(want.Policy.Spec, policy.Spec); diff != "" {
			t.Errorf("policy (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want.Binding.Spec, binding.Spec); diff != "" {
			t.Errorf("binding (-want +got):\n%s", diff)
		}
	}
}

func mustEdit(t *testing.T, client *kubernetes.Clientset, edit edit) {
	t.Helper()
	if err := edit(t.Context(), client); err != nil {
		t.Fatal(err)
	}
}

// eventuallyNotStanding does what ends the protection and waits until Verify notices.
func eventuallyNotStanding(t *testing.T, client kubernetes.Interface, do func()) {
	t.Helper()
	do()
	eventually(t, "Verify notices that the policy is not in force", func(ctx context.Context) error {
		if err := guard.Verify(ctx, client); !errors.Is(err, guard.ErrNotEnforced) {
			return fmt.Errorf("Verify = %w", err)
		}
		return nil
	})
}
