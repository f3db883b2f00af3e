package member_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
)

// A limit on the rate of errors that all of a process share remembers the time of
// the last one. Each bubble starts in the year 2000 again and would wait for it.
func init() { utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] }

// server is as much of an API server as a watch of Leases sees, in the time of a
// bubble: watches end when they asked to, with a bookmark shortly before.
type server struct {
	mu      sync.Mutex
	mode    mode
	leases  map[string]*coordinationv1.Lease // by namespace/name
	version int
	streams map[*stream]bool
	asked   []string // path and selector of each request
}

type mode int

const (
	answers mode = iota
	hangs        // accepts requests and never answers
	refuses      // 403 to everything
	deaf         // lets watches begin, but they say nothing and never end
	terse        // sends no bookmarks
	lists        // lists, but refuses to watch
)

type stream struct {
	namespace string
	events    chan []byte
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
	s.version++
	l = l.DeepCopy()
	l.TypeMeta = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
	l.ResourceVersion = strconv.Itoa(s.version)
	s.leases[l.Namespace+"/"+l.Name] = l
	s.send(l.Namespace, "MODIFIED", l)
}

func (s *server) remove(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	l := s.leases[namespace+"/"+name]
	l.ResourceVersion = strconv.Itoa(s.version)
	delete(s.leases, namespace+"/"+name)
	s.send(namespace, "DELETED", l)
}

func (s *server) send(namespace, kind string, object any) {
	for st := range s.streams {
		if st.namespace == "" || st.namespace == namespace {
			st.events <- event(kind, object)
		}
	}
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
	m := s.mode
	s.mu.Unlock()
	switch {
	case m == hangs:
		<-req.Context().Done()
		return nil, req.Context().Err()
	case m == lists && query.Get("watch") == "":
		return s.list(namespaceIn(req.URL.Path)), nil
	case m == refuses || m == lists:
		return answer(http.StatusForbidden, metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden,
		}), nil
	case query.Get("watch") == "":
		return nil, errors.New("this server only streams lists")
	}
	body, w := io.Pipe()
	go s.stream(req, m, w)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: req}, nil
}

// stream plays one watch, with the initial list in it if that is asked for.
func (s *server) stream(req *http.Request, m mode, w *io.PipeWriter) {
	defer func() { _ = w.Close() }()
	if m == deaf {
		<-req.Context().Done()
		return
	}
	query := req.URL.Query()
	seconds, _ := strconv.Atoi(query.Get("timeoutSeconds"))
	ends := time.NewTimer(time.Duration(seconds) * time.Second)
	defer ends.Stop()
	bookmark := time.NewTimer(time.Duration(seconds-2) * time.Second)
	if m == terse {
		bookmark.Stop()
	}
	defer bookmark.Stop()

	st := &stream{namespace: namespaceIn(req.URL.Path), events: make(chan []byte, 100)}
	s.mu.Lock()
	if query.Get("sendInitialEvents") == "true" {
		for _, l := range s.leases {
			if st.namespace == "" || st.namespace == l.Namespace {
				st.events <- event("ADDED", l)
			}
		}
		st.events <- s.bookmark("k8s.io/initial-events-end")
	}
	s.streams[st] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.streams, st)
	}()
	for {
		var next []byte
		select {
		case next = <-st.events:
		case <-bookmark.C:
			s.mu.Lock()
			next = s.bookmark("")
			s.mu.Unlock()
		case <-ends.C:
			return
		case <-req.Context().Done():
			return
		}
		if _, err := w.Write(next); err != nil {
			return
		}
	}
}

func (s *server) list(namespace string) *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := coordinationv1.LeaseList{
		TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "LeaseList"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(max(s.version, 1))},
	}
	for _, l := range s.leases {
		if namespace == "" || namespace == l.Namespace {
			list.Items = append(list.Items, *l)
		}
	}
	return answer(http.StatusOK, list)
}

func (s *server) bookmark(annotation string) []byte {
	l := &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(max(s.version, 1))},
	}
	if annotation != "" {
		l.Annotations = map[string]string{annotation: "true"}
	}
	return event("BOOKMARK", l)
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
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(raw))}
}

func namespaceIn(path string) string {
	_, rest, _ := strings.Cut(path, "/namespaces/")
	namespace, _, _ := strings.Cut(rest, "/")
	return namespace
}
