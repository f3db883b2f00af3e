package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
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
// and its answers come as late as they may be for this elector to go on. Nobody is authenticated on this way: the way
// itself is the administrator.
type hanging struct {
	limits  limits
	forward *httputil.ReverseProxy
	address string
	server  http.Server

	mu      sync.Mutex // guards what follows
	hang    *hang      // nil: it does not hang
	waiting int        // requests that take the lock, and are held back
	held    int        // answers that are held back
	late    late       // answers that came late
}

// late counts the answers that came as late as they may, by what was admitted.
type late struct {
	Acquisitions int `json:"acquisitions"`
	Renewals     int `json:"renewals"`
	Releases     int `json:"releases"`
}

func (l *late) add(o late) {
	l.Acquisitions += o.Acquisitions
	l.Renewals += o.Renewals
	l.Releases += o.Releases
}

// limits are when an elector gives up a request.
type limits struct {
	renew   time.Duration // its renew deadline
	timeout time.Duration // of its client; 0: none
	// unbounded: the release of a lock is a request without a deadline (client-go before v0.31).
	unbounded bool
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
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h := &hanging{limits: l, address: "http://" + listener.Addr().String()}
	h.forward = &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.WriteHeader(http.StatusBadGateway) // the elector has given up, or the API server is gone
		},
	}
	h.server.Handler = h
	go func() { _ = h.server.Serve(listener) }()
	return h, nil
}

func (h *hanging) close() error {
	h.release()
	return h.server.Close()
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

// counts returns how many requests that take the lock, and how many answers, are held back.
func (h *hanging) counts() (waiting, held int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.waiting, h.held
}

// ServeHTTP forwards a request.
func (h *hanging) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	received := time.Now()
	h.mu.Lock()
	hangs := h.hang
	h.mu.Unlock()
	what := other
	if hangs != nil {
		if what = actOf(r); what == other {
			hangs = nil
		}
	}
	if hangs == nil {
		h.forward.ServeHTTP(w, r)
		return
	}
	if what == acquisition {
		h.count(&h.waiting, func() { until(r.Context(), hangs.end, hangs.admit, nil) })
	}
	sent, answer := time.Now(), &answer{header: http.Header{}}
	h.forward.ServeHTTP(answer, r)
	if answer.code < http.StatusBadRequest {
		latest := time.NewTimer(time.Until(h.limits.latest(what, received, sent)))
		defer latest.Stop()
		h.count(&h.held, func() {
			if until(r.Context(), hangs.end, nil, latest.C) {
				h.note(what)
			}
		})
	}
	for name, values := range answer.header {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.code)
	_, _ = w.Write(answer.body.Bytes())
}

// count does something that is counted meanwhile.
func (h *hanging) count(n *int, do func()) {
	add := func(by int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		*n += by
	}
	add(1)
	defer add(-1)
	do()
}

// until waits for the first of these, and reports whether it was the last one.
func until(ctx context.Context, end, admit <-chan struct{}, latest <-chan time.Time) bool {
	select {
	case <-ctx.Done():
	case <-end:
	case <-admit:
	case <-latest:
		return true
	}
	return false
}

// note counts an answer that comes late.
func (h *hanging) note(what lockWrite) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch what {
	case acquisition:
		h.late.Acquisitions++
	case renewal:
		h.late.Renewals++
	case giveUp:
		h.late.Releases++
	}
}

// answeredLate returns how many answers came late.
func (h *hanging) answeredLate() late {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.late
}

// latest is the last instant at which the elector still gets the answer to a request.
func (l limits) latest(what lockWrite, received, sent time.Time) time.Time {
	at := sent.Add(serverLimit)
	if what == renewal || what == giveUp && !l.unbounded {
		at = earlier(at, received.Add(l.renew))
	}
	if l.timeout > 0 {
		at = earlier(at, received.Add(l.timeout))
	}
	return at.Add(-margin)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// lockWrite is what a request does with a lock.
type lockWrite int

const (
	other lockWrite = iota
	acquisition
	renewal
	giveUp
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

// answer keeps an answer.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(code int) { a.code = code }

func (a *answer) Write(data []byte) (int, error) {
	if a.code == 0 {
		a.code = http.StatusOK
	}
	return a.body.Write(data)
}
