package worker

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing/synctest"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// registry is as much of an API server as a watch of registrations sees.
type registry struct {
	cluster.Cluster

	mu      sync.Mutex
	lists   int
	version int
	items   []coordinationv1.Lease
	watch   *io.PipeWriter // the one that is open
}

func (r *registry) GetConfig() *rest.Config { return &rest.Config{Host: "http://east"} }

func (r *registry) GetHTTPClient() *http.Client { return &http.Client{Transport: r} }

// RoundTrip answers lists at once, and keeps one watch open.
func (r *registry) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	answer := func(code int, body io.ReadCloser) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: req}, nil
	}
	switch query := req.URL.Query(); {
	case query.Get("sendInitialEvents") != "":
		return answer(http.StatusUnprocessableEntity, io.NopCloser(bytes.NewReader(encoded(failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)))))
	case query.Get("watch") == "":
		r.lists++
		return answer(http.StatusOK, io.NopCloser(bytes.NewReader(encoded(coordinationv1.LeaseList{
			TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "LeaseList"},
			ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(r.version)}, Items: r.items,
		}))))
	}
	body, w := io.Pipe()
	r.watch = w
	return answer(http.StatusOK, body)
}

// listed is how often registrations were listed.
func (r *registry) listed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lists
}

// close ends the open watch, if there is one.
func (r *registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watch != nil {
		_ = r.watch.Close()
	}
}

// tell sends an event to the open watch.
func (r *registry) tell(kind string, object any) {
	r.mu.Lock()
	w := r.watch
	r.mu.Unlock()
	_, _ = w.Write(encoded(map[string]any{"type": kind, "object": object}))
	synctest.Wait()
}
