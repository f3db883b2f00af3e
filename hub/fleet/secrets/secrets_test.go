package secrets

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
)

// world is an API server, and who listens to a Store.
type world struct {
	*Store
	ctx context.Context
	api *fake.Clientset

	mu       sync.Mutex
	granted  map[string]bool // verbs
	fails    error
	wanted   bool
	unneeded map[string]bool // Secrets that no Cluster needs
	seen     []string
	news     []string
	asked    int
}

// inWorld runs a test in a bubble of synctest. The hub is user there.
func inWorld(t *testing.T, user string, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{wanted: true, granted: map[string]bool{}, unneeded: map[string]bool{}, api: fake.NewClientset(secret("a", "east-kubeconfig"))}
		w.api.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.asked++
			review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
			review.Status.Allowed = w.granted[review.Spec.ResourceAttributes.Verb] && review.Spec.ResourceAttributes.Namespace == "a"
			return true, review, w.fails
		})
		w.api.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{
				UserInfo: authenticationv1.UserInfo{Username: user},
			}}, nil
		})
		w.Store = New(Options{
			Client: w.api, Timers: clock.RealClock{}, Log: logr.Discard(),
			Seen: func(_ context.Context, fleet, name string) { w.note(&w.seen, fleet+"/"+name) },
			News: func(_ context.Context, fleet string) { w.note(&w.news, fleet) },
			Wanted: func(context.Context, string) bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.wanted
			},
			Needed: func(_ context.Context, _, name string) (time.Time, bool) {
				w.mu.Lock()
				defer w.mu.Unlock()
				return time.Time{}, !w.unneeded[name]
			},
		})
		var cancel context.CancelFunc
		w.ctx, cancel = context.WithCancel(t.Context())
		w.Open(w.ctx, "a")
		synctest.Wait()
		test(t, w)
		cancel()
		w.Wait()
	})
}

// pass lets time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (w *world) note(list *[]string, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*list = append(*list, what)
}

func (w *world) grant(verbs ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range verbs {
		w.granted[v] = true
	}
}

func secret(fleet, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet, Name: name}}
}

const account = "system:serviceaccount:leasecast-system:leasecast-hub"

func TestAMissingGrantIsNamedUntilItIsGiven(t *testing.T) {
	inWorld(t, account, func(t *testing.T, w *world) {
		if m := w.Missing("a"); !strings.Contains(m, "may not get, list, watch, create, update Secrets in namespace a") || !strings.HasSuffix(m,
			"kubectl -n a create rolebinding leasecast-hub-fleet --clusterrole=leasecast-hub-fleet --serviceaccount=leasecast-system:leasecast-hub") {
			t.Fatalf("missing: %q", m)
		}
		if !w.Settled("a") || !w.AllSettled() || w.Get("a", "east-kubeconfig") != nil || !slices.Equal(w.news, []string{"a"}) {
			t.Fatalf("settled %v, news %v", w.Settled("a"), w.news)
		}
		w.grant("get", "list", "watch", "create")
		pass(askSlowest)
		if m := w.Missing("a"); !strings.Contains(m, "may not update Secrets") || w.Get("a", "east-kubeconfig") != nil {
			t.Fatalf("without the seal: %q", m)
		}
		w.grant("update")
		pass(askSlowest)
		if m := w.Missing("a"); m != "" || w.Get("a", "east-kubeconfig") == nil || !slices.Equal(w.seen, []string{"a/east-kubeconfig"}) {
			t.Errorf("missing %q, seen %v", m, w.seen)
		}
	})
}

func TestWhoeverIsNoServiceAccountIsNamedAsAUser(t *testing.T) {
	inWorld(t, "jane", func(t *testing.T, w *world) {
		if m := w.Missing("a"); !strings.HasSuffix(m, "--user=jane") {
			t.Errorf("missing: %q", m)
		}
	})
}

func TestASilentAPIServerSettlesNothing(t *testing.T) {
	inWorld(t, account, func(t *testing.T, w *world) {
		w.mu.Lock()
		w.fails = errors.New("silent")
		w.mu.Unlock()
		w.Open(w.ctx, "b")
		synctest.Wait()
		if w.Settled("b") || w.AllSettled() || w.Missing("b") != "" {
			t.Errorf("settled %v, missing %q", w.Settled("b"), w.Missing("b"))
		}
		w.mu.Lock()
		w.fails, w.wanted = nil, false
		w.mu.Unlock()
		pass(askSlowest) // b ends here
	})
}

func TestNobodyAsksForAFleetThatNobodyWants(t *testing.T) {
	inWorld(t, account, func(t *testing.T, w *world) {
		w.mu.Lock()
		w.wanted = false
		w.mu.Unlock()
		pass(askSlowest)
		before := w.asked
		pass(10 * askSlowest)
		if w.asked != before || w.Settled("a") {
			t.Errorf("asked %d times since", w.asked-before)
		}
		w.grant("get", "list", "watch", "create", "update")
		w.Open(w.ctx, "a")
		synctest.Wait()
		if w.Get("a", "east-kubeconfig") == nil {
			t.Error("a fleet that is wanted again is not shown")
		}
	})
}
