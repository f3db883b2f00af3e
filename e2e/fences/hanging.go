package main

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

const (
	// serverLimit is when an API server ends a request by itself.
	serverLimit = time.Minute
	// margin is how long before the latest possible instant an answer comes.
	margin = 500 * time.Millisecond
)

// hanging is the way from an elector to the API server of its member. While the API server hangs, it decides at once,
// and its answers come as late as they may for this elector to go on. Nobody is authenticated on this way: the way
// itself is the administrator.
type hanging struct {
	*httptest.Server
	limits  limits
	forward *httputil.ReverseProxy
	// waiting counts the requests that take the lock, held the answers, that are held back now.
	waiting, held atomic.Int32

	mu   sync.Mutex // guards what follows
	hang *hang      // nil: it does not hang
	late late       // answers that came late
}

// late counts the answers that came as late as they may, by what was admitted.
type late map[lockWrite]int

// limits are when an elector gives up a request.
type limits struct {
	renew   time.Duration // its renew deadline
	timeout time.Duration // of its client; 0: none
}

// hang is one time of hanging.
type hang struct {
	admit <-chan struct{} // closed when requests that take the lock go on to the API server
	end   chan struct{}   // closed when it is over
}

// newHanging starts a way to the API server that config reaches.
func newHanging(config *rest.Config, l limits) (*hanging, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	h := &hanging{limits: l, late: late{}, forward: &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.WriteHeader(http.StatusBadGateway) // the elector has given up, or the API server is gone
		},
	}}
	h.Server = httptest.NewServer(http.HandlerFunc(h.serve))
	return h, nil
}

func (h *hanging) close() {
	h.release()
	h.CloseClientConnections()
	h.Close()
}

// begin has it hang. Requests that take the lock wait until admit is closed.
func (h *hanging) begin(admit <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hang = &hang{admit: admit, end: make(chan struct{})}
}

// release ends the hanging. What is held back goes on.
func (h *hanging) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hang != nil {
		close(h.hang.end)
	}
	h.hang = nil
}

// serve forwards a request.
func (h *hanging) serve(w http.ResponseWriter, r *http.Request) {
	received, what := time.Now(), other
	h.mu.Lock()
	hang := h.hang
	h.mu.Unlock()
	if hang != nil {
		what = actOf(r)
	}
	if what == other {
		h.forward.ServeHTTP(w, r)
		return
	}
	if what == acquisition {
		h.waiting.Add(1)
		select {
		case <-r.Context().Done():
		case <-hang.end:
		case <-hang.admit:
		}
		h.waiting.Add(-1)
	}
	sent, answer := time.Now(), httptest.NewRecorder()
	h.forward.ServeHTTP(answer, r)
	if answer.Code < http.StatusBadRequest {
		h.held.Add(1)
		select {
		case <-r.Context().Done():
		case <-hang.end:
		case <-time.After(time.Until(h.limits.latest(what, received, sent))):
			h.note(what)
		}
		h.held.Add(-1)
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// note counts an answer that comes late.
func (h *hanging) note(what lockWrite) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.late[what]++
}

// addLate adds how many answers came late.
func (h *hanging) addLate(to late) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for what, n := range h.late {
		to[what] += n
	}
}

// latest is the last instant at which the elector still gets the answer to a request.
func (l limits) latest(what lockWrite, received, sent time.Time) time.Time {
	at := sent.Add(serverLimit)
	if renew := received.Add(l.renew); what != acquisition && renew.Before(at) {
		at = renew
	}
	if timeout := received.Add(l.timeout); l.timeout > 0 && timeout.Before(at) {
		at = timeout
	}
	return at.Add(-margin)
}

// lockWrite is what a request does with a lock.
type lockWrite string

const (
	other       lockWrite = ""
	acquisition lockWrite = "acquisitions"
	renewal     lockWrite = "renewals"
	giveUp      lockWrite = "releases"
)

// actOf looks into a request. An elector that takes a lock has just acquired it.
func actOf(r *http.Request) lockWrite {
	if (r.Method != http.MethodPut && r.Method != http.MethodPost) || !strings.Contains(r.URL.Path, "/leases") {
		return other
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return other
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	object, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), body)
	l, is := object.(*coordinationv1.Lease)
	switch {
	case err != nil || !is:
		return other
	case l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "":
		return giveUp
	case l.Spec.AcquireTime.Equal(l.Spec.RenewTime):
		return acquisition
	default:
		return renewal
	}
}
