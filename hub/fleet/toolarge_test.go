package fleet

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease/clock"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet/transport"
)

// Tenants write registrations, and fill their annotations.
func TestListOfFilledRegistrationsIsTooLarge(t *testing.T) {
	for n, want := range map[int]error{100: nil, 200: transport.ErrTooLarge} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var page coordinationv1.LeaseList
			for range n {
				page.Items = append(page.Items, coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
					Annotations: map[string]string{v1alpha1.ReaderReleasedAnnotation: strings.Repeat("x", 96<<10)},
				}})
			}
			s := apiServer(t, func(w http.ResponseWriter, _ *http.Request) { answerWith(w, &page) })
			_, m := newTestProvider(&clock.System{})
			m.requests.Lead(targetTo(t, accessTo(t, s), nil))
			_, err := m.writer.CoordinationV1().Leases(metav1.NamespaceAll).List(t.Context(),
				metav1.ListOptions{LabelSelector: v1alpha1.ReaderLabel + "=true"})
			if !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		})
	}
}
