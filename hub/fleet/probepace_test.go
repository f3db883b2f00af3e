package fleet

import (
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/leasecast/leasecast/hub/health"
)

// On a busy machine a probe is sent some milliseconds after its round began. The next one is due an interval later all
// the same: one that fails then must not have twice the interval behind it.
func TestProbesThatAreSentLateAreDueAfterTheirInterval(t *testing.T) {
	s := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/namespaces/kube-system") {
			answerWith(w, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "u"}})
			return
		}
		answerWith(w, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: probeName, ResourceVersion: "1"}})
	})
	const interval = time.Second
	m, clock := newTestMember(t)
	c := connectionOf(t, m)
	target := targetTo(t, accessTo(t, s), nil)
	target.UID = "u"
	c.use(target)
	m.state.spec.pin, m.state.cluster = "u", struct{ cluster.Cluster }{}
	m.state.demand = demand{interval, []time.Duration{30 * time.Second}}
	p := newProber(m)
	p.lease.Store(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}})
	for range 3 {
		start := clock.Now()
		for _, kind := range []health.Kind{health.Read, health.Write} {
			if !p.isDue(m.get(), kind, start) {
				t.Errorf("no %v is due", kind)
			}
		}
		clock.Advance(5 * time.Millisecond)
		p.round(t.Context(), start)
		p.sending.Wait()
		if track := m.get().tracks.MostPatient(); !track.Answering() {
			t.Fatalf("not all is answered: %+v", track.Failure())
		}
		clock.Advance(interval - 5*time.Millisecond)
	}
}
