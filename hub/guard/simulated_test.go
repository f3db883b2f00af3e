package guard_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

// simulated is a member that stores what is written, and enforces the fences that it stores. All its namespaces allow
// fences from outside.
type simulated struct {
	*fake.Clientset
	open  []string // "gate shop": where it does not, or not yet
	asked []string // the same: where it was tried whether it does
	// fails answers a request instead, unless it returns nil.
	fails func(verb, resource, name string) error
}

func simulate() *simulated {
	s := &simulated{Clientset: fake.NewClientset()}
	s.PrependReactor("create", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, s.tries(a.GetNamespace(), a.(clienttesting.CreateAction).GetObject().(*coordinationv1.Lease).Name)
	})
	s.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if s.fails == nil {
			return false, nil, nil
		}
		err := s.fails(a.GetVerb(), a.GetResource().Resource, nameOf(a))
		return err != nil, nil, err
	})
	return s
}

// nameOf is the name of the object that a request is about.
func nameOf(a clienttesting.Action) string {
	switch a := a.(type) {
	case clienttesting.GetAction: // a deletion is one of these, too
		return a.GetName()
	case clienttesting.CreateAction:
		return a.GetObject().(metav1.Object).GetName()
	}
	return ""
}

// tries answers a probe.
func (s *simulated) tries(namespace, probe string) error {
	part, version, _ := strings.Cut(strings.TrimPrefix(probe, "leasecast-"), "-probe-")
	s.asked = append(s.asked, part+" "+namespace)
	if slices.Contains(s.open, part+" "+namespace) {
		return nil
	}
	kind := admissionv1.SchemeGroupVersion
	list, err := s.Tracker().List(kind.WithResource(bindings), kind.WithKind("ValidatingAdmissionPolicyBinding"), "")
	if err != nil {
		return err
	}
	for _, b := range list.(*admissionv1.ValidatingAdmissionPolicyBindingList).Items {
		if !strings.Contains(b.Name, "."+part+"-"+version+".") {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.MatchResources.NamespaceSelector)
		if err != nil {
			return err
		}
		if selector.Matches(labels.Set{corev1.LabelMetadataName: namespace, v1alpha1.FencingLabel: v1alpha1.FencingAllowed}) {
			return apierrors.NewForbidden(coordinationv1.Resource("leases"), probe, errors.New("ValidatingAdmissionPolicy '"+b.Name+"' with binding '"+b.Name+
				"' denied request: nobody may create this Lease: it is asked for to see whether the fence is in force"))
		}
	}
	return nil
}

// settles keeps a fence until it is settled, and forgets what was asked.
func (s *simulated) settles(t *testing.T, f guard.Fence, active map[string]bool) {
	t.Helper()
	for range 2 {
		if state, err := f.Keep(t.Context(), s, active, nil, false); err != nil || !state.Settled {
			t.Fatalf("the state is %+v, %v", state, err)
		}
	}
	s.asked = nil
	s.ClearActions()
}

// edits changes a binding.
func (s *simulated) edits(t *testing.T, name string, change func(*admissionv1.ValidatingAdmissionPolicyBinding)) {
	t.Helper()
	all := s.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	b, err := all.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b = b.DeepCopy()
	change(b)
	if _, err := all.Update(t.Context(), b, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// loses deletes a policy, or a binding.
func (s *simulated) loses(t *testing.T, resource, name string) {
	t.Helper()
	if err := s.Tracker().Delete(admissionv1.SchemeGroupVersion.WithResource(resource), "", name); err != nil {
		t.Fatal(err)
	}
}

// last is the last request: what it does, to what.
func (s *simulated) last() string {
	all := s.Actions()
	if len(all) == 0 {
		return ""
	}
	a := all[len(all)-1]
	return strings.Join([]string{a.GetVerb(), a.GetResource().Resource, nameOf(a)}, " ")
}
