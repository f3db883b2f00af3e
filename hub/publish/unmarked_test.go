package publish

import (
	"slices"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

func TestALabelAloneMakesNoLeaseAHubs(t *testing.T) {
	for name, tt := range map[string]struct {
		annotations map[string]string
		concerns    bool
	}{
		"a Lease with the label only asks for no decision":   {nil, false},
		"a Lease with the mark of a hub asks for a decision": {map[string]string{v1alpha1.HubAnnotation: "hub"}, true},
		"a relinquished Lease asks for a decision":           {map[string]string{v1alpha1.ClusterAnnotation: "east"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, map[string]func(*world){"": func(w *world) {
				w.start()
				w.changed = nil
				w.Observe(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
					Namespace: "a", Name: "other", UID: "uid", ResourceVersion: "7",
					Labels: map[string]string{v1alpha1.ManagedLabel: "true"}, Annotations: tt.annotations,
				}})
				after(second)
				if asked := slices.Contains(w.changed, "a"); asked != tt.concerns {
					t.Errorf("a decision was asked for: %v, want %v", asked, tt.concerns)
				}
				if listed := len(w.LeasesIn("a")) > 0; listed != tt.concerns {
					t.Errorf("it is listed: %v, want %v", listed, tt.concerns)
				}
				w.stop()
			}})
		})
	}
}
