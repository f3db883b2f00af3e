package guard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/hub/guard"
)

// otherServer starts an API server with more flags and returns its administrator.
func otherServer(t *testing.T, flags ...string) *kubernetes.Clientset {
	t.Helper()
	f := fleet.NewWith(t, fleet.Options{Uninstalled: true, APIServerFlags: flags})
	return clientFor(t, f.Hub().AdminConfig())
}

func TestNoAnswerTellsNothing(t *testing.T) {
	config := member.AdminConfig()
	config.Host = "https://127.0.0.1:1" // nobody listens
	err := guard.Verify(t.Context(), clientFor(t, config))
	if err == nil || errors.Is(err, guard.ErrNotEnforced) || errors.Is(err, guard.ErrForbidden) {
		t.Fatalf("Verify = %v, want an error that says neither", err)
	}
}

func TestAMemberThatDoesNotKnowTheKind(t *testing.T) {
	config := member.AdminConfig()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return olderServer{next} })
	client := clientFor(t, config)
	h := newHub(client, "fleet")
	if err := h.guards(t.Context()); !errors.Is(err, guard.ErrUnsupported) {
		t.Fatalf("the guard: %v, want ErrUnsupported", err)
	}
	if err := h.Remove(t.Context()); err != nil {
		t.Fatalf("Remove = %v where nothing can be", err)
	}
}

// olderServer asks for a version of the kinds that the API server does not serve, and so gets its true answer.
type olderServer struct{ next http.RoundTripper }

func (o olderServer) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.URL.Path = strings.Replace(request.URL.Path, "/admissionregistration.k8s.io/v1/", "/admissionregistration.k8s.io/v0/", 1)
	return o.next.RoundTrip(request)
}

// Where the API server can elect a holder by itself, a Lease must not ask for it. Elsewhere the API server drops
// these fields.
func TestCoordinatedElectionIsKeptAway(t *testing.T) {
	client := otherServer(t, "--feature-gates=CoordinatedLeaderElection=true", "--runtime-config=coordination.k8s.io/v1beta1=true")
	h := newHub(client, "fleet")
	eventually(t, "the guard is in force", func(ctx context.Context) error { return h.guards(ctx) })
	tests := map[string]struct {
		change  func(*coordinationv1.Lease)
		refused bool
	}{
		"a Lease": {change: asIs},
		"a Lease with a strategy": {refused: true, change: func(l *coordinationv1.Lease) {
			l.Spec.Strategy = ptr.To(coordinationv1.OldestEmulationVersion)
		}},
		"a Lease with a preferred holder": {refused: true, change: func(l *coordinationv1.Lease) {
			l.Spec.Strategy = ptr.To(coordinationv1.OldestEmulationVersion)
			l.Spec.PreferredHolder = ptr.To("west.default")
		}},
		"a Lease with a preferred holder and no strategy": {refused: true, change: func(l *coordinationv1.Lease) {
			l.Spec.PreferredHolder = ptr.To("")
		}},
	}
	n := 0
	for name, test := range tests {
		n++
		lease := fmt.Sprintf("lease-%d", n)
		t.Run(name, func(t *testing.T) {
			err := create(test.change)(t.Context(), t, client.CoordinationV1().Leases("default"), "default", lease)
			const want = "must not set spec.strategy or spec.preferredHolder"
			if test.refused != (err != nil && strings.Contains(err.Error(), want)) || !test.refused && err != nil {
				t.Fatalf("error: %v, want refused = %v", err, test.refused)
			}
		})
	}
}
