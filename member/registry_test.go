package member_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/member"
)

// home is the namespace of the registrations.
const home = "home"

// account is who every caller of the server is.
const account = "system:serviceaccount:home:controller"

// fate is what becomes of a write.
type fate int

const (
	stored     fate = iota
	late            // it takes slow before it is carried out and answered
	unanswered      // it is carried out, and the answer gets lost
	delayed         // it is carried out after slow, but the connection breaks at once
	dropped         // it never arrives
	silent          // it never arrives, and the connection does not break
	unseen          // it is carried out and answered, but nobody can read what is stored
	forbidden
	overtaken // it is carried out after the connection broke, and after the next look at what is stored
	unnamed   // it is carried out, but nobody is told who they are
)

// slow is how long a late or delayed write takes.
const slow = 2 * time.Second

var errBroken = errors.New("connection reset by peer")

// write is a request for one object, with what was decoded of its body.
type write struct {
	method, namespace, name string
	sent                    *coordinationv1.Lease
	preconditions           *metav1.Preconditions
}

// object answers what is asked about one Lease, and who asks.
func (s *server) object(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	f := s.fate
	s.mu.Unlock()
	if strings.Contains(req.URL.Path, "selfsubjectreviews") {
		if f == unnamed {
			return answer(http.StatusForbidden, status(http.StatusForbidden, metav1.StatusReasonForbidden)), nil
		}
		return answer(http.StatusCreated, &authenticationv1.SelfSubjectReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"},
			Status:   authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: account}},
		}), nil
	}
	w, err := decoded(req)
	if err != nil {
		panic(err)
	}
	if w.method == http.MethodGet {
		if f == unseen {
			return answer(http.StatusForbidden, status(http.StatusForbidden, metav1.StatusReasonForbidden)), nil
		}
		seen := answer(s.do(w))
		if held := s.release(); held != nil {
			s.do(held)
		}
		return seen, nil
	}
	switch f {
	case overtaken:
		s.hold(w)
		return nil, errBroken
	case late:
		pass(slow)
	case delayed:
		go func() {
			pass(slow)
			s.do(w)
		}()
		return nil, errBroken
	case dropped:
		return nil, errBroken
	case silent:
		<-req.Context().Done()
		return nil, req.Context().Err()
	case forbidden:
		return answer(http.StatusForbidden, status(http.StatusForbidden, metav1.StatusReasonForbidden)), nil
	}
	code, object := s.do(w)
	if f == unanswered {
		return nil, errBroken
	}
	return answer(code, object), nil
}

// hold keeps a write for later.
func (s *server) hold(w *write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = w
}

// release returns the write that is kept, once.
func (s *server) release() *write {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.held
	s.held = nil
	return held
}

func decoded(req *http.Request) (*write, error) {
	parts := strings.Split(strings.TrimPrefix(req.URL.Path, "/apis/coordination.k8s.io/v1/namespaces/"), "/")
	w := &write{method: req.Method, namespace: parts[0]}
	if len(parts) > 2 {
		w.name = parts[2]
	}
	if req.Body == nil {
		return w, nil
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	switch o := object.(type) {
	case *coordinationv1.Lease:
		w.sent, w.name = o, o.Name
	case *metav1.DeleteOptions:
		w.preconditions = o.Preconditions
	default:
		return nil, fmt.Errorf("a %T in a %s of %s", object, req.Method, req.URL.Path)
	}
	return w, nil
}

// do carries out a request.
func (s *server) do(w *write) (code int, object any) {
	code, object = s.carryOut(w)
	s.mu.Lock()
	after := s.after
	s.mu.Unlock()
	if after != nil && code < http.StatusBadRequest {
		after(*w)
	}
	return code, object
}

// carryOut does what an API server does: compare-and-swap, and finalizers.
func (s *server) carryOut(w *write) (code int, object any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := w.namespace + "/" + w.name
	have := s.leases[key]
	if w.method != http.MethodPost && have == nil {
		return http.StatusNotFound, status(http.StatusNotFound, metav1.StatusReasonNotFound)
	}
	conflict := status(http.StatusConflict, metav1.StatusReasonConflict)
	switch w.method {
	case http.MethodGet:
		return http.StatusOK, have
	case http.MethodPost:
		if w.sent.ResourceVersion != "" {
			return http.StatusBadRequest, status(http.StatusBadRequest, metav1.StatusReasonBadRequest)
		}
		if have != nil {
			return http.StatusConflict, status(http.StatusConflict, metav1.StatusReasonAlreadyExists)
		}
		s.uids++
		w.sent.UID = types.UID(fmt.Sprint("uid-", s.uids))
		w.sent.CreationTimestamp = metav1.Unix(1, 0)
	case http.MethodPut:
		if w.sent.ResourceVersion != have.ResourceVersion || w.sent.UID != have.UID {
			return http.StatusConflict, conflict
		}
		w.sent.DeletionTimestamp = have.DeletionTimestamp
	case http.MethodDelete:
		if p := w.preconditions; p != nil && p.UID != nil && *p.UID != have.UID {
			return http.StatusConflict, conflict
		}
		w.sent = have.DeepCopy()
		w.sent.DeletionTimestamp = &metav1.Time{Time: time.Unix(2, 0)}
	}
	s.writes = append(s.writes, *w)
	w.sent.TypeMeta = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
	if w.sent.DeletionTimestamp != nil && len(w.sent.Finalizers) == 0 {
		delete(s.leases, key)
		s.record("DELETED", w.sent)
	} else {
		s.leases[key] = w.sent
		s.record("MODIFIED", w.sent)
	}
	return http.StatusOK, w.sent
}

// meet has writes from now on meet this fate.
func (s *server) meet(f fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fate = f
}

// registrations are all that exist.
func (s *server) registrations(t *testing.T) (all []lease.Registration) {
	t.Helper()
	for _, l := range s.registered() {
		r, err := wire.ReadRegistration(l)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// registered are the Leases of the registrations that exist.
func (s *server) registered() (all []*coordinationv1.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.leases {
		if l.Labels[v1alpha1.ReaderLabel] != "" {
			all = append(all, l)
		}
	}
	return all
}

// registration is the only one that exists.
func (s *server) registration(t *testing.T) lease.Registration {
	t.Helper()
	all := s.registrations(t)
	if len(all) != 1 {
		t.Fatalf("%d registrations exist, want 1: %+v", len(all), all)
	}
	return all[0]
}

// watchOver has f called for every request that is carried out from now on.
func (s *server) watchOver(f func(write)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = f
}

// wrote returns the writes after the first so many.
func (s *server) wrote(before int) []write {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes[before:])
}

// written is how many writes there were so far.
func (s *server) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.writes)
}

// registration is one in home, of clients that CapWrites caps.
func registration(t *testing.T) *member.Registration {
	t.Helper()
	return &member.Registration{Namespace: home, Client: client(t, member.CapWrites)}
}

// client is that of a configuration with these wrappers.
func client(t *testing.T, wrap ...func(http.RoundTripper) http.RoundTripper) *http.Client {
	t.Helper()
	cfg := &rest.Config{Host: "http://member", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	for _, w := range wrap {
		cfg.Wrap(w)
	}
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
