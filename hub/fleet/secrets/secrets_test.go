package secrets

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// world is an API server, and who listens to a Store.
type world struct {
	*Store
	ctx      context.Context
	api      *fake.Clientset
	metadata *metadatafake.FakeMetadataClient
	version  int // of the Secret that was written last

	mu      sync.Mutex
	granted map[string]bool // verbs
	fails   error
	user    string // who the hub is
	wanted  bool
	seen    []string
	news    []string
	asked   int
}

var resource = corev1.SchemeGroupVersion.WithResource("secrets")

// inWorld runs a test in a bubble of synctest, with one Secret.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		scheme := metadatafake.NewTestScheme()
		musttest.Do(t, metav1.AddMetaToScheme(scheme))
		w := &world{
			user:     "system:serviceaccount:leasecast-system:leasecast-hub",
			wanted:   true,
			granted:  map[string]bool{},
			api:      fake.NewClientset(),
			metadata: metadatafake.NewSimpleMetadataClient(scheme),
		}
		w.write(t, "east-kubeconfig", "first")
		w.api.PrependReactor("create", "selfsubjectaccessreviews",
			func(a clienttesting.Action) (bool, runtime.Object, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.asked++
				review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
				review.Status.Allowed = w.granted[review.Spec.ResourceAttributes.Verb]
				return true, review, w.fails
			})
		w.api.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return true, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{
				UserInfo: authenticationv1.UserInfo{Username: w.user},
			}}, nil
		})
		w.Store = New(Options{
			Client: w.api, Metadata: w.metadata, Timers: clock.RealClock{}, Log: logr.Discard(),
			Seen:    func(_ context.Context, fleet, name string) { w.note(&w.seen, fleet+"/"+name) },
			Changed: func(_ context.Context, fleet string) { w.note(&w.news, fleet) },
			Wanted: func(context.Context, string) bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.wanted
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

// inGrantedWorld runs a test where nothing is missing.
func inGrantedWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	inWorld(t, func(t *testing.T, w *world) {
		w.grant("get", "list", "watch", "create", "update")
		pass(askSlowest)
		w.told()
		test(t, w)
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

// told returns which Secrets were seen since it was called last.
func (w *world) told() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.seen = nil }()
	return w.seen
}

func (w *world) grant(verbs ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range verbs {
		w.granted[v] = true
	}
}

// write makes a Secret, or changes it.
func (w *world) write(t *testing.T, name, kubeconfig string) {
	t.Helper()
	w.put(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Data:       map[string][]byte{KubeconfigKey: []byte(kubeconfig)},
	})
}

func (w *world) put(t *testing.T, s *corev1.Secret) {
	t.Helper()
	w.version++
	s.Namespace, s.ResourceVersion = "a", strconv.Itoa(w.version)
	write := func(to clienttesting.ObjectTracker, o runtime.Object) {
		err := to.Create(resource, o, "a")
		if apierrors.IsAlreadyExists(err) {
			err = to.Update(resource, o, "a")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(w.api.Tracker(), s)
	write(w.metadata.Tracker(), &metav1.PartialObjectMetadata{ObjectMeta: s.ObjectMeta})
}

func (w *world) remove(t *testing.T, name string) {
	t.Helper()
	for _, from := range []clienttesting.ObjectTracker{w.api.Tracker(), w.metadata.Tracker()} {
		musttest.Do(t, from.Delete(resource, "a", name))
	}
}

// shows is what is shown of the kubeconfig of a Cluster.
func (w *world) shows(cluster string) string {
	k := w.Kubeconfig("a", cluster)
	return k.Value + k.Missing + k.Refused
}

// reads are the names of the Secrets that were read.
func (w *world) reads() (names []string) {
	for _, a := range w.api.Actions() {
		if get, ok := a.(clienttesting.GetAction); ok && a.Matches("get", "secrets") {
			names = append(names, get.GetName())
		}
	}
	return names
}

func TestAMissingGrantIsNamedUntilItIsGiven(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		if m := w.Missing("a"); !strings.Contains(m, "may not get, list, watch, create, update Secrets in namespace a") ||
			!strings.HasSuffix(m, "kubectl -n a create rolebinding leasecast-hub-fleet --clusterrole=leasecast-hub-fleet "+
				"--serviceaccount=leasecast-system:leasecast-hub") {
			t.Fatalf("missing: %q", m)
		}
		if !w.Settled("a") || !w.AllSettled() || w.shows("east") != w.Missing("a") ||
			!slices.Equal(w.news, []string{"a"}) {
			t.Fatalf("settled %v, news %v", w.Settled("a"), w.news)
		}
		w.mu.Lock()
		w.user = "jane"
		w.mu.Unlock()
		w.grant("get", "list", "watch", "create")
		pass(askSlowest)
		if m := w.Missing("a"); !strings.Contains(m, "may not update Secrets") || w.shows("east") != m ||
			!strings.HasSuffix(m, "--user=jane") {
			t.Fatalf("without the seal: %q", m)
		}
		w.grant("update")
		pass(askSlowest)
		told := w.told()
		if m := w.Missing("a"); m != "" || w.shows("east") != unread ||
			!slices.Equal(told, []string{"a/east-kubeconfig"}) {
			t.Errorf("missing %q, told of %v", m, told)
		}
	})
}

func TestASilentAPIServerSettlesNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
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

// As where the API server cannot decrypt one of them.
func TestSecretsThatCannotBeListedDelayOtherFleetsForSeconds(t *testing.T) {
	inGrantedWorld(t, func(t *testing.T, w *world) {
		var cause atomic.Pointer[string]
		cause.Store(new("unable to transform key"))
		w.metadata.PrependReactor("list", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
			why := cause.Load()
			if a.GetNamespace() != "b" || why == nil {
				return false, nil, nil
			}
			return true, nil, apierrors.NewInternalError(errors.New(*why))
		})
		w.Open(w.ctx, "b")
		if pass(listTimeout - time.Second); w.AllSettled() || w.Missing("b") != "" {
			t.Errorf("settled %v, missing %q", w.AllSettled(), w.Missing("b"))
		}
		pass(2 * time.Second)
		m := w.Missing("b")
		if !w.Settled("b") || !w.AllSettled() || !strings.HasPrefix(m, "the Secrets in namespace b cannot be listed: ") ||
			!strings.HasSuffix(m, "unable to transform key") || w.Kubeconfig("b", "west").Missing != m ||
			w.Missing("a") != "" || !slices.Equal(w.news[len(w.news)-1:], []string{"b"}) {
			t.Errorf("settled %v, missing %q, news %v", w.AllSettled(), m, w.news)
		}
		cause.Store(new("no quorum"))
		pass(2 * time.Minute)
		if m := w.Missing("b"); !strings.HasSuffix(m, "no quorum") {
			t.Errorf("the cause has changed: missing %q", m)
		}
		cause.Store(nil)
		pass(2 * time.Minute)
		if none := w.Kubeconfig("b", "west").Missing; w.Missing("b") != "" || none != "there is no Secret west-kubeconfig" {
			t.Errorf("missing %q, and %q", w.Missing("b"), none)
		}
	})
}

func TestNobodyAsksForAFleetThatNobodyWants(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.mu.Lock()
		w.wanted = false
		w.mu.Unlock()
		pass(askSlowest)
		before := w.asked
		pass(10 * askSlowest)
		if w.asked != before || w.Settled("a") || !slices.Equal(w.news, []string{"a", "a"}) {
			t.Errorf("asked %d times since, announced %v", w.asked-before, w.news)
		}
		w.grant("get", "list", "watch", "create", "update")
		w.Open(w.ctx, "a")
		synctest.Wait()
		if w.shows("east") != unread {
			t.Error("a fleet that is wanted again is not shown")
		}
	})
}
