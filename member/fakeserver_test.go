package member_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/member/internal/musttest"
)

// fakeServer is as much of an API server as a reader of Leases sees, in the time of a bubble.
type fakeServer struct {
	mu      sync.Mutex
	does    behavior
	leases  map[string]*coordinationv1.Lease // by namespace/name
	history []change                         // of all changes; its length is the resourceVersion
	streams map[*stream]bool
	asked   []string      // verb, path and selector of each request
	lag     time.Duration // how old a list is when it arrives
	uids    int
	writes  []apiCall     // all that were carried out
	after   func(apiCall) // is called when a call was carried out, before its answer
}

// behavior is what the server does with requests.
type behavior int

const (
	works      behavior = iota
	hangs               // accepts requests and never answers
	clings              // never answers, and ends a request a second after its context
	lingers             // answers lists a second after their context
	broken              // refuses connections
	refuses             // 403 to everything
	listsOnly           // 403 to watches
	deaf                // lets watches begin, but they show nothing and never end
	hasty               // ends watches at once
	late                // takes slow before it carries out a write and answers
	unanswered          // carries out writes, and their answers get lost
	delayed             // carries out writes after slow, but the connection breaks at once
	dropped             // gets no write, and the connection breaks
	silent              // gets no write, and the connection does not break
	forbidden           // 403 to writes
	unseen              // 403 to reads of one Lease
)

// slow is how long a late or delayed write takes.
const slow = 2 * time.Second

const (
	account = "system:serviceaccount:home:controller" // of every caller
	home    = "home"                                  // the namespace of the registrations
)

var errBroken = errors.New("connection reset by peer")

// change is one event, in the form in which it is sent.
type change struct {
	namespace string
	event     []byte
}

type stream struct {
	namespace string
	events    chan []byte
	stranded  atomic.Bool // its connection is dead, without notice
}

// apiCall is a request for one object, with what was decoded of its body.
type apiCall struct {
	method, namespace, name string
	sent                    *coordinationv1.Lease
	preconditions           *metav1.Preconditions
}

func newFakeServer() *fakeServer {
	return &fakeServer{leases: map[string]*coordinationv1.Lease{}, streams: map[*stream]bool{}}
}

// locked runs a function that reads or changes the server.
func (s *fakeServer) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// become changes how new requests are treated, and what ends of those under way.
func (s *fakeServer) become(b behavior) { s.locked(func() { s.does = b }) }

// delay has every list arrive that much after it was made.
func (s *fakeServer) delay(lag time.Duration) { s.locked(func() { s.lag = lag }) }

func (s *fakeServer) put(l *coordinationv1.Lease) {
	s.locked(func() {
		l = l.DeepCopy()
		s.leases[l.Namespace+"/"+l.Name] = l
		s.record("MODIFIED", l)
	})
}

func (s *fakeServer) remove(namespace, name string) {
	s.locked(func() {
		l := s.leases[namespace+"/"+name]
		delete(s.leases, namespace+"/"+name)
		s.record("DELETED", l)
	})
}

// watches calls f for every watch under way.
func (s *fakeServer) watches(f func(st *stream)) {
	s.locked(func() {
		for st := range s.streams {
			f(st)
		}
	})
}

// fail ends every watch under way with an error. New requests work.
func (s *fakeServer) fail() {
	s.watches(func(st *stream) { st.events <- watchEvent("ERROR", failure(metav1.StatusReasonExpired)) })
}

// hangUp ends every watch under way, as a connection does that is found dead.
func (s *fakeServer) hangUp() {
	s.watches(func(st *stream) { close(st.events); delete(s.streams, st) })
}

// strand has the connection of every watch under way die without notice.
func (s *fakeServer) strand() { s.watches(func(st *stream) { st.stranded.Store(true) }) }

func (s *fakeServer) record(kind string, l *coordinationv1.Lease) {
	l.TypeMeta = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
	l.ResourceVersion = strconv.Itoa(len(s.history) + 1)
	c := change{l.Namespace, watchEvent(kind, l)}
	if l.Labels[v1alpha1.ReaderLabel] != "" {
		c.event = nil // readers watch for another label
	}
	s.history = append(s.history, c)
	for st := range s.streams {
		st.offer(c)
	}
}

func (st *stream) offer(c change) {
	if !st.stranded.Load() && c.event != nil && (st.namespace == "" || st.namespace == c.namespace) {
		st.events <- c.event
	}
}

// requests returns the requests so far of one verb, each with its path and selector. An empty verb stands for all.
func (s *fakeServer) requests(verb string) (all []string) {
	s.locked(func() {
		for _, asked := range s.asked {
			if strings.HasPrefix(asked, verb) {
				all = append(all, asked)
			}
		}
	})
	return all
}

// RoundTrip implements http.RoundTripper.
func (s *fakeServer) RoundTrip(req *http.Request) (*http.Response, error) {
	query, verb, ctx := req.URL.Query(), req.Method, req.Context()
	if verb == http.MethodGet && strings.HasSuffix(req.URL.Path, "/leases") {
		if verb = "list"; query.Get("watch") != "" {
			verb = "watch"
		}
	}
	var b behavior
	var lag time.Duration
	s.locked(func() {
		s.asked = append(s.asked, verb+" "+req.URL.Path+"?"+query.Get("labelSelector"))
		b, lag = s.does, s.lag
	})
	switch {
	case b == hangs, b == clings:
		<-ctx.Done()
		if b == clings {
			pass(time.Second)
		}
		return nil, ctx.Err()
	case b == broken:
		return nil, errBroken
	case b == refuses, b == listsOnly && verb == "watch":
		return forbids(), nil
	case b == lingers && verb == "list":
		<-ctx.Done()
		pass(time.Second)
		return s.list(namespaceIn(req.URL.Path)), nil
	case verb == "list":
		if query.Get("resourceVersion") != "" {
			panic("a list must be as new as etcd")
		}
		list := s.list(namespaceIn(req.URL.Path))
		select {
		case <-time.After(lag):
			return list, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case verb != "watch":
		return s.object(req, b)
	}
	body, w := io.Pipe()
	go s.stream(req, b, w)
	resp := answer(http.StatusOK, nil)
	resp.Body, resp.Request = body, req
	return resp, nil
}

// list answers with what is stored.
func (s *fakeServer) list(namespace string) *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := coordinationv1.LeaseList{
		TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "LeaseList"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(len(s.history))},
	}
	for _, l := range s.leases {
		if (namespace == "" || namespace == l.Namespace) && l.Labels[v1alpha1.ManagedLabel] != "" {
			list.Items = append(list.Items, *l)
		}
	}
	return answer(http.StatusOK, list)
}

// stream plays one watch from the version that it asks for, as long as it asks for.
func (s *fakeServer) stream(req *http.Request, b behavior, w *io.PipeWriter) {
	defer func() { _ = w.Close() }()
	ctx, query := req.Context(), req.URL.Query()
	if b == deaf {
		<-ctx.Done()
	}
	if b == deaf || b == hasty {
		return
	}
	seconds, _ := strconv.Atoi(query.Get("timeoutSeconds"))
	from, err := strconv.Atoi(query.Get("resourceVersion"))
	if err != nil {
		panic("a watch must go on from the version of its list: " + err.Error())
	}
	st := &stream{namespace: namespaceIn(req.URL.Path), events: make(chan []byte, 1000)}
	s.locked(func() {
		for _, c := range s.history[from:] {
			st.offer(c)
		}
		s.streams[st] = true
	})
	defer s.locked(func() { delete(s.streams, st) })
	ends := time.After(time.Duration(seconds) * time.Second)
	for {
		select {
		case next, open := <-st.events:
			if !open {
				return
			}
			if _, err := w.Write(next); err != nil {
				return
			}
		case <-ends:
			if st.stranded.Load() {
				<-ctx.Done()
			}
			return
		case <-ctx.Done():
			return
		}
	}
}

// object answers a request for one Lease, and the question who the caller is.
func (s *fakeServer) object(req *http.Request, b behavior) (*http.Response, error) {
	reviews := strings.HasSuffix(req.URL.Path, "/selfsubjectreviews")
	reads := req.Method == http.MethodGet
	switch {
	case reads && b == unseen, !reads && !reviews && b == forbidden:
		return forbids(), nil
	case reviews:
		return answer(http.StatusCreated, &authenticationv1.SelfSubjectReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"},
			Status:   authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: account}},
		}), nil
	}
	w := decoded(req)
	if reads {
		return answer(s.do(w)), nil
	}
	switch b {
	case late:
		pass(slow)
	case delayed:
		time.AfterFunc(slow, func() { s.do(w) })
		return nil, errBroken
	case dropped:
		return nil, errBroken
	case silent:
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	code, object := s.do(w)
	if b == unanswered {
		return nil, errBroken
	}
	return answer(code, object), nil
}

func decoded(req *http.Request) *apiCall {
	parts := strings.Split(strings.TrimPrefix(req.URL.Path, "/apis/coordination.k8s.io/v1/namespaces/"), "/")
	w := &apiCall{method: req.Method, namespace: parts[0]}
	if len(parts) > 2 {
		w.name = parts[2]
	}
	if req.Body == nil {
		return w
	}
	body, _ := io.ReadAll(req.Body)
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		panic(err)
	}
	switch o := object.(type) {
	case *coordinationv1.Lease:
		w.sent, w.name = o, o.Name
	case *metav1.DeleteOptions:
		w.preconditions = o.Preconditions
	}
	return w
}

// do carries out a call.
func (s *fakeServer) do(w *apiCall) (code int, object any) {
	object, reason := s.carryOut(w)
	if reason != "" {
		return int(failure(reason).Code), failure(reason)
	}
	var after func(apiCall)
	if s.locked(func() { after = s.after }); after != nil {
		after(*w)
	}
	return http.StatusOK, object
}

// carryOut does what an API server does: compare-and-swap, and finalizers. It returns the object, or why it refuses.
func (s *fakeServer) carryOut(w *apiCall) (object any, refused metav1.StatusReason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := w.namespace + "/" + w.name
	have := s.leases[key]
	switch {
	case w.method != http.MethodPost && have == nil:
		return nil, metav1.StatusReasonNotFound
	case w.method == http.MethodGet:
		return have, ""
	case w.method == http.MethodPost && w.sent.ResourceVersion != "":
		return nil, metav1.StatusReasonBadRequest
	case w.method == http.MethodPost && have != nil:
		return nil, metav1.StatusReasonAlreadyExists
	case w.method == http.MethodPut && (w.sent.ResourceVersion != have.ResourceVersion || w.sent.UID != have.UID),
		w.preconditions != nil && w.preconditions.UID != nil && *w.preconditions.UID != have.UID:
		return nil, metav1.StatusReasonConflict
	}
	switch w.method {
	case http.MethodPost:
		s.uids++
		w.sent.UID, w.sent.CreationTimestamp = types.UID(fmt.Sprint("uid-", s.uids)), metav1.Unix(1, 0)
	case http.MethodPut:
		w.sent.DeletionTimestamp = have.DeletionTimestamp
	case http.MethodDelete:
		w.sent = have.DeepCopy()
		w.sent.DeletionTimestamp = &metav1.Time{Time: time.Unix(2, 0)}
	}
	s.writes = append(s.writes, *w)
	if w.sent.DeletionTimestamp != nil && len(w.sent.Finalizers) == 0 {
		delete(s.leases, key)
		s.record("DELETED", w.sent)
	} else {
		s.leases[key] = w.sent
		s.record("MODIFIED", w.sent)
	}
	return w.sent, ""
}

// registered returns the Leases of the registrations that exist.
func (s *fakeServer) registered() (all []*coordinationv1.Lease) {
	s.locked(func() {
		for _, l := range s.leases {
			if l.Labels[v1alpha1.ReaderLabel] != "" {
				all = append(all, l)
			}
		}
	})
	return all
}

// registration returns the only one that exists.
func (s *fakeServer) registration(t *testing.T) lease.Registration {
	t.Helper()
	all := s.registered()
	if len(all) != 1 {
		t.Fatalf("%d registrations exist, want 1: %+v", len(all), all)
	}
	r := musttest.Get(wire.ReadRegistration(all[0]))(t)
	return r
}

// wrote returns the calls that were carried out after the first so many.
func (s *fakeServer) wrote(before int) (calls []apiCall) {
	s.locked(func() { calls = slices.Clone(s.writes[before:]) })
	return calls
}

func failure(reason metav1.StatusReason) *metav1.Status {
	code := map[metav1.StatusReason]int32{
		metav1.StatusReasonBadRequest: 400, metav1.StatusReasonForbidden: 403, metav1.StatusReasonNotFound: 404,
		metav1.StatusReasonConflict: 409, metav1.StatusReasonAlreadyExists: 409,
		metav1.StatusReasonExpired: 410,
	}[reason]
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Reason: reason, Code: code,
	}
}

func forbids() *http.Response {
	return answer(http.StatusForbidden, failure(metav1.StatusReasonForbidden))
}

func answer(code int, object any) *http.Response {
	raw, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return &http.Response{
		StatusCode: code,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(bytes.NewReader(raw)),
	}
}

func watchEvent(kind string, object any) []byte {
	raw, err := json.Marshal(map[string]any{"type": kind, "object": object})
	if err != nil {
		panic(err)
	}
	return append(raw, '\n')
}

func namespaceIn(path string) string {
	_, rest, _ := strings.Cut(path, "/namespaces/")
	namespace, _, _ := strings.Cut(rest, "/")
	return namespace
}
