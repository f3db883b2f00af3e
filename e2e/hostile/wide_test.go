package hostile

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

const (
	// many is how many namespaces of one member match the selector of one policy.
	many = 14_000
	// mostBesideMany is how much later than D + ε a lost leader is replaced while they are looked at.
	mostBesideMany = 5 * time.Second
)

// It is played last, because nobody removes so many namespaces again.
func TestManyNamespacesOfOnePolicyHoldUpNoOther(t *testing.T) {
	if !*full {
		t.Skip("make hostile plays it")
	}
	const managed = 500 // at most, of those in one member: see hub/controller
	a := attack{name: "14,000 namespaces of one member match a policy", before: manyNamespaces, makes: managed}
	shared.play(t, a, mostBesideMany)
}

// manyNamespaces makes them, and then a policy that selects them.
func manyNamespaces(ctx context.Context, s *testbed) error {
	selected := map[string]string{"example.com/many": "true"}
	p, err := s.policyOf(ctx, "many")
	if err != nil {
		return err
	}
	p.Spec.Timings = v1alpha1.Timings{} // the defaults: leaders are renewed each 5 s
	p.Spec.Namespaces.Names, p.Spec.Namespaces.Selector = nil, &metav1.LabelSelector{MatchLabels: selected}
	return errors.Join(s.Hub.Create(ctx, p), each(ctx, many, func(ctx context.Context, n int) error {
		return s.Members[far].Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name:   fmt.Sprint("many-", n),
			Labels: selected,
		}})
	}))
}
