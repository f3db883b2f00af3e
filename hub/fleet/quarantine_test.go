package fleet

import (
	"errors"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	batchclient "k8s.io/client-go/kubernetes/typed/batch/v1"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet/transport"
)

func TestAMemberInQuarantineIsDisconnected(t *testing.T) {
	s := apiServer(t, nil)
	m, clock := newTestMember(t)
	m.state.spec.labels = map[string]string{v1alpha1.PriorityLabel: "1"}
	c := connectionOf(t, m)
	c.use(targetTo(t, accessTo(t, s, "", "token"), nil))
	interrupted := false
	m.change(func(s *state) { s.interrupt = func() { interrupted = true } })
	m.sentTooMuch(errors.New("a flood"))
	until := m.get().quarantine.until
	clock.Advance(time.Second)
	m.sentTooMuch(errors.New("the same flood")) // as another request has noticed it
	if !interrupted {
		t.Error("what is under way goes on")
	}
	for range 2 { // the second look changes nothing
		wait, done := c.step(t.Context())
		now := m.get()
		if now.target != nil || done || wait < 59*time.Second || now.quarantine.until != until {
			t.Errorf("it is connected: %v; looked at again in %v", now.target != nil, wait)
		}
		if p := now.problem(testKey, nil); p.Reason != reason.SendsTooMuch {
			t.Errorf("shown as %+v", p)
		}
	}
	clock.Advance(66 * time.Second)
	if wait, _ := c.step(t.Context()); wait > 30*time.Second {
		t.Errorf("after its end nothing is asked of it for %v", wait)
	}
}

// Whoever is no admin of a member cannot have it disconnected.
func TestWhatTenantsWriteDisconnectsNobody(t *testing.T) {
	large := append([]byte("k8s\x00\x12\xff\xff\xff\x7f\x12\xff\xff\xff\x3f"), 0) // a list with an object of 128 MB
	s := apiServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		_, _ = w.Write(large) // nobody reads all of it
	})
	m, _ := newTestMember(t)
	m.requests.Lead(targetTo(t, accessTo(t, s, "", "t"), nil))
	all, o := metav1.NamespaceAll, metav1.ListOptions{}
	for name, list := range map[string]func() error{
		"CronJobs": func() error {
			_, err := batchclient.NewForConfigOrDie(Member{live: m}.Tenants()).CronJobs(all).List(t.Context(), o)
			return err
		},
		"registrations of readers": func() error {
			ofReaders := metav1.ListOptions{LabelSelector: m.requests.ReadersSelector}
			_, err := m.writer.CoordinationV1().Leases(all).List(t.Context(), ofReaders)
			return err
		},
		"admission policies": func() error {
			_, err := m.writer.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(t.Context(), o)
			return err
		},
		"service accounts": func() error {
			_, err := m.writer.CoreV1().ServiceAccounts(all).List(t.Context(), o)
			return err
		},
	} {
		if err := list(); !errors.Is(err, transport.ErrTooLarge) || m.get().quarantine.until > 0 {
			t.Errorf("%s: %v: %+v", name, err, m.get().quarantine)
		}
	}
}
