package publish

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/hub/assign"
)

// patience bounds every wait for a real API server.
const patience = 30 * time.Second

// renewal is an update that was kept back.
type renewal struct {
	request *http.Request
	body    string
}

// slowLink keeps back updates while it is asked to. Their senders give up before they arrive.
type slowLink struct {
	next http.RoundTripper
	hold atomic.Bool
	kept chan renewal
}

func (l *slowLink) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPut || !l.hold.CompareAndSwap(true, false) {
		return l.next.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	l.kept <- renewal{r, string(body)}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// server is a real API server with a publisher at work.
type server struct {
	t      *testing.T
	client *kubernetes.Clientset // of an administrator
	link   *slowLink
	p      *Publisher
}

func newServer(t *testing.T) *server {
	t.Helper()
	log.SetLogger(logr.Discard()) // it complains otherwise
	config := fleet.NewWith(t, fleet.Options{Uninstalled: true}).Hub().AdminConfig()
	config.Timeout = patience
	s := &server{t: t, client: kubernetes.NewForConfigOrDie(config), link: &slowLink{kept: make(chan renewal, 1)}}
	slow := rest.CopyConfig(config)
	slow.ContentType, slow.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON // to be edited on its way
	slow.Wrap(func(next http.RoundTripper) http.RoundTripper {
		s.link.next = next
		return s.link
	})
	s.p = New(Options{
		Client: kubernetes.NewForConfigOrDie(slow).CoordinationV1(),
		Fleet:  fleetName, Cluster: "east.fleet", ClusterUID: "uid-of-east", Hub: "hub", Key: testKey,
		Clock: &clock.System{}, Promises: NewPromises(), Log: logr.Discard(),
		Queue:    workqueue.NewTypedDelayingQueue[types.NamespacedName](),
		MayWrite: func(lease.Reading) bool { return true },
		Report:   func(bool, lease.Reading, error) {},
		Changed:  func(string) {},
	})
	return s
}

func (s *server) run() {
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.p.Run(ctx)
	}()
	s.t.Cleanup(func() {
		cancel()
		<-ended
	})
}

func (s *server) namespace(name string) types.NamespacedName {
	s.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := s.client.CoreV1().Namespaces().Create(s.t.Context(), ns, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	return keyOf(name)
}

func (s *server) get(key types.NamespacedName) (*coordinationv1.Lease, error) {
	return s.client.CoordinationV1().Leases(key.Namespace).Get(s.t.Context(), key.Name, metav1.GetOptions{})
}

func (s *server) eventually(what string, is func() bool) {
	s.t.Helper()
	if err := wait.PollUntilContextTimeout(s.t.Context(), 10*time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			return is(), nil
		}); err != nil {
		s.t.Fatalf("not in %v: %s", patience, what)
	}
}

// lead makes the member lead, renewed often, with short timeouts.
func (s *server) lead(key types.NamespacedName) {
	s.t.Helper()
	t := term("east", 20)
	t.AcquireTime = s.p.Clock.Now().Wall
	s.p.Assign(key, assign.Assignment{Role: assign.Lead, Term: t, First: true},
		Timings{Renew: 300 * time.Millisecond, Timeout: 500 * time.Millisecond})
	s.eventually("the member leads", func() bool { return s.p.SyncStatus(key).InPlace })
}

// A real API server is asked what the rules of this package rest on.
func TestOnARealServer(t *testing.T) {
	s := newServer(t)
	s.run()
	t.Run("a late update does not re-create a deleted Lease", func(t *testing.T) { lateUpdate(t, s) })
	t.Run("a Lease is removed, but not one that was made since", func(t *testing.T) { removeOnServer(t, s) })
}

// deliver sends an update at last, and returns the status it gets.
func (s *server) deliver(u renewal) int {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	r := u.request.Clone(ctx)
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(u.body)), int64(len(u.body))
	answer, err := s.link.next.RoundTrip(r)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// keepBack keeps back the next renewal of what leads.
func (s *server) keepBack() renewal {
	s.t.Helper()
	s.link.hold.Store(true)
	select {
	case u := <-s.link.kept:
		return u
	case <-time.After(patience):
		s.t.Fatal("no Lease is renewed")
		return renewal{}
	}
}

func lateUpdate(t *testing.T, s *server) {
	key := s.namespace("late")
	s.lead(key)
	late := s.keepBack()
	s.p.Assign(key, assign.Assignment{Role: assign.Absent}, testTimings)
	s.eventually("the Lease is removed", func() bool {
		_, err := s.get(key)
		return apierrors.IsNotFound(err)
	})
	if status := s.deliver(late); status != http.StatusConflict {
		t.Errorf("the late update got the status %d", status)
	}
	if _, err := s.get(key); !apierrors.IsNotFound(err) {
		t.Fatalf("the late update left %v", err)
	}
	// This is what the UID is for.
	uid := regexp.MustCompile(`"uid":"[^"]*",`)
	if !uid.MatchString(late.body) {
		t.Fatalf("the update has no UID: %s", late.body)
	}
	late.body = uid.ReplaceAllString(late.body, "")
	late.body = regexp.MustCompile(`"resourceVersion":"[^"]*",`).ReplaceAllString(late.body, "")
	if status := s.deliver(late); status != http.StatusCreated {
		t.Errorf("without the UID it got the status %d", status)
	}
}

func removeOnServer(t *testing.T, s *server) {
	key := s.namespace("removed")
	s.p.Assign(key, assign.Assignment{Role: assign.Follow, Term: term("west", 20)}, testTimings)
	s.eventually("the Lease is written", func() bool { return s.p.SyncStatus(key).InPlace })
	// Another client replaces it, which no watch shows.
	if err := s.client.CoordinationV1().Leases(key.Namespace).Delete(t.Context(), key.Name,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	theirs := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: key.Name}}
	if _, err := s.client.CoordinationV1().Leases(key.Namespace).Create(t.Context(), theirs,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.p.Assign(key, assign.Assignment{Role: assign.Absent}, testTimings)
	s.eventually("it is reported", func() bool { return s.p.SyncStatus(key).Problem != "" })
	if _, err := s.get(key); err != nil {
		t.Errorf("another client's Lease: %v", err)
	}
}
