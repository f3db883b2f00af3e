package guard_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/leasecast/leasecast/hub/guard"
)

const (
	policies = "validatingadmissionpolicies"
	bindings = "validatingadmissionpolicybindings"
)

// answering is a member that answers one kind of request with this error, and holds these objects.
func answering(verb, resource string, err error, there ...runtime.Object) *fake.Clientset {
	client := fake.NewClientset(there...)
	client.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
	return client
}

func forbids(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "any", errors.New("no rule"))
}

// inPlace are the objects that Ensure writes, after an edit of each.
func inPlace(edit func(guard.Policy)) (all []runtime.Object) {
	for _, p := range guard.Policies() {
		edit(p)
		all = append(all, p.Policy, p.Binding)
	}
	return all
}

func asBuilt(guard.Policy) {}

func unlabelled(p guard.Policy) { p.Policy.Labels, p.Binding.Labels = nil, nil }

func TestVerifyTellsAnswersApart(t *testing.T) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	invalid := func(why string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Message: why}}
	}
	signed := func(p guard.Policy) string {
		for _, v := range p.Policy.Spec.Validations {
			if strings.Contains(v.Message, "(guard ") {
				return v.Message
			}
		}
		return ""
	}
	notTheHub := guard.Policies()[0].Policy.Spec.Validations[0].Message
	for name, tc := range map[string]struct {
		probed func(p guard.Policy) error // the answer to the write that Verify asks for
		want   error                      // nil: none of ours
		stands bool
	}{
		"it is refused by the policy as it is":   {probed: func(p guard.Policy) error { return invalid(signed(p)) }, stands: true},
		"it is let through":                      {probed: func(guard.Policy) error { return nil }, want: guard.ErrNotEnforced},
		"it is refused as somebody else's write": {probed: func(guard.Policy) error { return invalid(notTheHub) }, want: guard.ErrForbidden},
		"it is refused by another version": {probed: func(p guard.Policy) error {
			text, _, _ := strings.Cut(signed(p), "(guard ")
			return invalid(text + "(guard 00000000)")
		}, want: guard.ErrNotEnforced},
		"it is refused by another policy": {probed: func(guard.Policy) error { return invalid("no Lease on a Sunday") }, want: guard.ErrNotEnforced},
		"it is forbidden":                 {probed: func(guard.Policy) error { return forbids("leases") }, want: guard.ErrNotEnforced},
		"it is not understood":            {probed: func(guard.Policy) error { return apierrors.NewBadRequest("what?") }, want: guard.ErrNotEnforced},
		"its name is taken":               {probed: func(guard.Policy) error { return apierrors.NewAlreadyExists(leases, "probe") }, want: guard.ErrNotEnforced},
		"the member is busy":              {probed: func(guard.Policy) error { return apierrors.NewTooManyRequests("later", 1) }},
		"the member has an error":         {probed: func(guard.Policy) error { return apierrors.NewInternalError(errors.New("etcd")) }},
		"nobody answers":                  {probed: func(guard.Policy) error { return context.DeadlineExceeded }},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			all, asked := guard.Policies(), 0
			client.PrependReactor("create", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
				asked++
				return true, nil, tc.probed(all[asked-1])
			})
			err := guard.Verify(t.Context(), client)
			if tc.stands != (err == nil) || tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("Verify = %v, want nil = %v, or %v", err, tc.stands, tc.want)
			}
			if tc.want == nil && (errors.Is(err, guard.ErrNotEnforced) || errors.Is(err, guard.ErrForbidden)) {
				t.Errorf("Verify = %v, which no answer has told", err)
			}
		})
	}
}

func TestEnsureSaysWhatItCouldNotDo(t *testing.T) {
	gone := apierrors.NewNotFound(schema.GroupResource{}, "any")
	busy := apierrors.NewConflict(schema.GroupResource{}, "any", errors.New("another version"))
	for name, tc := range map[string]struct {
		verb, resource string
		answer         error
		there          []runtime.Object
		want           error
		wrote          bool // the policy, before
	}{
		"it may not read a policy":       {verb: "get", resource: policies, answer: forbids(policies), want: guard.ErrForbidden},
		"it may not read a binding":      {verb: "get", resource: bindings, answer: forbids(bindings), want: guard.ErrForbidden, wrote: true},
		"it may not create a policy":     {verb: "create", resource: policies, answer: forbids(policies), want: guard.ErrForbidden},
		"it may not create a binding":    {verb: "create", resource: bindings, answer: forbids(bindings), want: guard.ErrForbidden, wrote: true},
		"nobody knows policies":          {verb: "create", resource: policies, answer: gone, want: guard.ErrUnsupported},
		"nobody knows bindings":          {verb: "create", resource: bindings, answer: gone, want: guard.ErrUnsupported, wrote: true},
		"somebody else writes a policy":  {verb: "update", resource: policies, answer: busy, there: inPlace(unlabelled), want: busy},
		"somebody else writes a binding": {verb: "update", resource: bindings, answer: busy, there: inPlace(unlabelled), want: busy, wrote: true},
		"it may not update a policy":     {verb: "update", resource: policies, answer: forbids(policies), there: inPlace(unlabelled), want: guard.ErrForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			client := answering(tc.verb, tc.resource, tc.answer, tc.there...)
			if changed, err := guard.Ensure(t.Context(), client); !errors.Is(err, tc.want) || changed != tc.wrote {
				t.Errorf("Ensure = %v, %v, want %v, %v", changed, err, tc.wrote, tc.want)
			}
		})
	}
}

func TestRemoveSaysWhatItCouldNotRemove(t *testing.T) {
	for name, tc := range map[string]struct {
		resource string
		answer   error
		want     error
	}{
		"it may not delete a binding":  {bindings, forbids(bindings), guard.ErrForbidden},
		"it may not delete a policy":   {policies, forbids(policies), guard.ErrForbidden},
		"nobody answers for a binding": {bindings, context.DeadlineExceeded, context.DeadlineExceeded},
		"nobody answers for a policy":  {policies, context.DeadlineExceeded, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			client := answering("delete", tc.resource, tc.answer, inPlace(asBuilt)...)
			err := guard.Remove(t.Context(), client)
			if !errors.Is(err, tc.want) || errors.Is(err, guard.ErrForbidden) != errors.Is(tc.want, guard.ErrForbidden) {
				t.Errorf("Remove = %v, want one that wraps %v", err, tc.want)
			}
		})
	}
}

func TestRemoveDeletesAllThatEnsureWrites(t *testing.T) {
	client := fake.NewClientset(inPlace(asBuilt)...)
	if err := guard.Remove(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	for _, p := range guard.Policies() {
		if _, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), p.Policy.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("policy %s: %v", p.Policy.Name, err)
		}
		if _, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(t.Context(), p.Binding.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("binding %s: %v", p.Binding.Name, err)
		}
	}
}
