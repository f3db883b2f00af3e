package integration

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/e2e/must"
)

var three = map[string]string{"east": "100", "west": "50", "south": "10"}

// atOnce is how long a hub may take to stop: after h its successor would go on without that.
const atOnce = 6 * time.Second

// TestAHubWithMuchToDoStopsAtOnce stops hubs in the midst of their work, because what they
// give up in order is what their successors need not wait for.
func TestAHubWithMuchToDoStopsAtOnce(t *testing.T) {
	w := newWorld(t, steady, three)
	for i := range 60 {
		w.namespace(fmt.Sprintf("n%d", i), all...)
	}
	for i := range 4 {
		t.Run(fmt.Sprintf("round %d", i), func(t *testing.T) {
			w := newWorld(t, steady, three)
			p := w.NewPolicy("p")
			p.Spec.Namespaces.Selector = &metav1.LabelSelector{}
			w.Must(w.Hub.Create(t.Context(), p))
			w.startHub()
			w.Eventually("a cluster leads default", firstElection, func() error {
				record := must.Get(w.Record("default"))
				_, err := w.Leading(record.Spec.Leader, "default", record.Spec.Leader)
				return err
			})
			within(t, "the hub stops in", took(w.StopHub), atOnce)
		})
	}
}
