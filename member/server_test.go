package member_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// server is as much of an API server as a reader of Leases sees, in the time of a
// bubble.
type server struct {
	mu      sync.Mutex
	mode    mode
	leases  map[string]*coordinationv1.Lease // by namespace/name
	history []change                         // of all changes; its length is the resourceVersion
	streams map[*stream]bool
	asked   []string      // path and selector of each request
	lists   int           // how many of these were lists
	lag     time.Duration // how old a list is when it arrives

	// Of the requests for single objects, see registry_test.go.
	fate   fate
	uids   int
	writes []write
	held   *write                    // one that is overtaken
	begun  []context.Context         // of all requests but watches
	after  func(write)               // a write was carried out and is about to be answered
	behind *coordinationv1.LeaseList // what the cache shows to who does not ask for more; nil: all
}

type mode int

const (
	answers   mode = iota
	hangs          // accepts requests and never answers
	refuses        // 403 to everything
	lists          // lists, but refuses to watch
	deaf           // lets watches begin, but they say nothing and never end
	hasty          // ends watches at once
	clings         // never answers, and lets go of a request a second after it was given up
	broken         // nobody listens
	missing        // 404 to everything, as from another kind of server
	strangers      // 401 to everything
)

// change is one event, in the form in which it is sent.
type change struct {
	namespace string
	event     []byte
}

type stream struct {
	namespace string
	events    chan []byte
	stranded  bool // its connection is dead, and nobody is told
}

func newServer() *server {
	return &server{leases: map[string]*coordinationv1.Lease{}, streams: map[*stream]bool{}}
}

func (s *server) config() *rest.Config {
	return &rest.Config{Host: "http://member", Transport: s}
}

// become changes how new requests are treated, and whether watches under way go on.
func (s *server) become(m mode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode = m
}

func (s *server) put(l *coordinationv1.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l = l.DeepCopy()
	l.TypeMeta = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
	s.leases[l.Namespace+"/"+l.Name] = l
	s.record("MODIFIED", l)
}

func (s *server) remove(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[namespace+"/"+name]
	delete(s.leases, namespace+"/"+name)
	s.record("DELETED", l)
}

// fail ends every watch under way with an error.
func (s *server) fail() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.streams {
		st.events <- event("ERROR", status(http.StatusGone, metav1.StatusReasonExpired))
	}
}

// hangUp ends every watch under way, as a connection does that is found dead.
func (s *server) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.streams {
		close(st.events)
		delete(s.streams, st)
	}
}

func (s *server) record(kind string, l *coordinationv1.Lease) {
	l.ResourceVersion = strconv.Itoa(len(s.history) + 1)
	c := change{l.Namespace, event(kind, l)}
	if l.Labels[v1alpha1.ReaderLabel] != "" {
		c.event = nil // readers watch for another label
	}
	s.history = append(s.history, c)
	for st := range s.streams {
		st.offer(c)
	}
}

func (st *stream) offer(c change) {
	if !st.stranded && c.event != nil && (st.namespace == "" || st.namespace == c.namespace) {
		st.events <- c.event
	}
}

// snapshot returns what restore takes the server back to.
func (s *server) snapshot() *server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &server{leases: maps.Clone(s.leases), history: slices.Clone(s.history)}
}

func (s *server) restore(past *server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases, s.history = past.leases, past.history
}

// strand has the connection of every watch under way die without a word. New requests work.
func (s *server) strand() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.streams {
		st.stranded = true
	}
}

// delay has every list arrive that much after it was made.
func (s *server) delay(lag time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lag = lag
}

// asks is how many lists were asked for so far.
func (s *server) asks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists
}

// watching is how many watches are under way.
func (s *server) watching() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

func (s *server) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	query := req.URL.Query()
	s.mu.Lock()
	s.asked = append(s.asked, req.URL.Path+"?"+query.Get("labelSelector"))
	m, lag, watches := s.mode, s.lag, query.Get("watch") != ""
	if !watches {
		s.lists++
		s.begun = append(s.begun, req.Context())
	}
	s.mu.Unlock()
	switch {
	case m == hangs:
		<-req.Context().Done()
		return nil, req.Context().Err()
	case m == clings:
		<-req.Context().Done()
		pass(time.Second)
		return nil, req.Context().Err()
	case m == broken:
		return nil, errBroken
	case m == missing:
		return answer(http.StatusNotFound, status(http.StatusNotFound, metav1.StatusReasonNotFound)), nil
	case m == strangers:
		return answer(http.StatusUnauthorized, status(http.StatusUnauthorized, metav1.StatusReasonUnauthorized)), nil
	case m == refuses, m == lists && watches:
		return answer(http.StatusForbidden, status(http.StatusForbidden, metav1.StatusReasonForbidden)), nil
	case !strings.HasSuffix(req.URL.Path, "/leases") || req.Method != http.MethodGet:
		return s.object(req)
	case !watches:
		list := s.list(namespaceIn(req.URL.Path), query.Get("resourceVersion"))
		select {
		case <-time.After(lag):
			return list, nil
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	body, w := io.Pipe()
	go s.stream(req, m, w)
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       body,
		Request:    req,
	}, nil
}

// list answers with what is stored, unless who asks is content with the server's cache.
func (s *server) list(namespace, version string) *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version == "0" && s.behind != nil {
		return answer(http.StatusOK, s.behind)
	}
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
func (s *server) stream(req *http.Request, m mode, w *io.PipeWriter) {
	defer func() { _ = w.Close() }()
	switch m {
	case deaf:
		<-req.Context().Done()
		return
	case hasty:
		return
	}
	query := req.URL.Query()
	seconds, _ := strconv.Atoi(query.Get("timeoutSeconds"))
	ends := time.NewTimer(time.Duration(seconds) * time.Second)
	defer ends.Stop()
	st := s.open(namespaceIn(req.URL.Path), query.Get("resourceVersion"))
	defer s.close(st)
	for {
		select {
		case next, open := <-st.events:
			if !open {
				return
			}
			if _, err := w.Write(next); err != nil {
				return
			}
		case <-ends.C:
			if s.dead(st) {
				<-req.Context().Done()
			}
			return
		case <-req.Context().Done():
			return
		}
	}
}

func (s *server) dead(st *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return st.stranded
}

func (s *server) open(namespace, version string) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &stream{namespace: namespace, events: make(chan []byte, 1000)}
	from, err := strconv.Atoi(version)
	if err != nil {
		panic("a watch must go on from the version of its list: " + err.Error())
	}
	for _, c := range s.history[from:] {
		st.offer(c)
	}
	s.streams[st] = true
	return st
}

func (s *server) close(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st)
}

func status(code int32, reason metav1.StatusReason) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Reason: reason, Code: code,
	}
}

func event(kind string, object any) []byte {
	raw, err := json.Marshal(map[string]any{"type": kind, "object": object})
	if err != nil {
		panic(err)
	}
	return append(raw, '\n')
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

func namespaceIn(path string) string {
	_, rest, _ := strings.Cut(path, "/namespaces/")
	namespace, _, _ := strings.Cut(rest, "/")
	return namespace
}
