// Package front is a TLS server in front of a real API server. It can lie, flood, stall, echo and bomb per request, and
// forwards all other requests.
package front

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/e2e/fleet"
)

// Act answers a request, or lets the API server answer it. The request's context ends when the hub hangs up or another
// act starts.
type Act func(w http.ResponseWriter, r *http.Request, honest http.Handler)

// Front is such a server. Its methods may be called from any goroutine.
type Front struct {
	server   *httptest.Server
	honest   http.Handler
	requests atomic.Int64

	mu  sync.Mutex // guards what follows
	act Act
}

// New starts a front, honest at first, for the API server of a configuration. Close it.
func New(config *rest.Config) (*Front, error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("reach the API server: %w", err)
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("reach the API server: %w", err)
	}
	f := &Front{}
	f.honest = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Header.Del("Authorization") // the front has its own
		},
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0), // the hub hangs up all the time
	}
	f.server = httptest.NewUnstartedServer(f)
	f.server.EnableHTTP2 = true
	f.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	f.server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	f.server.StartTLS()
	return f, nil
}

// Kubeconfig leads to the front, with a token.
func (f *Front) Kubeconfig(token string) ([]byte, error) {
	return fleet.TokenKubeconfig(f.server.URL, f.server.Certificate(), token)
}

// Play begins an act, and ends all connections. Without one the front is honest.
func (f *Front) Play(act Act) {
	f.mu.Lock()
	f.act = act
	f.mu.Unlock()
	f.server.CloseClientConnections()
}

// Requests is how many requests have come.
func (f *Front) Requests() int64 { return f.requests.Load() }

// Close stops the front.
func (f *Front) Close() {
	f.server.CloseClientConnections()
	f.server.Close()
}

// ServeHTTP answers a request.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.requests.Add(1)
	f.mu.Lock()
	act := f.act
	f.mu.Unlock()
	if act == nil {
		f.honest.ServeHTTP(w, r)
		return
	}
	act(w, r, f.honest)
}

// IsWatch reports whether a request is a watch of that resource.
func IsWatch(r *http.Request, resource string) bool {
	return r.URL.Query().Get("watch") != "" && isOf(r, resource)
}

// IsList reports whether a request is a list of that resource in all namespaces.
func IsList(r *http.Request, resource string) bool {
	return r.Method == http.MethodGet && r.URL.Query().Get("watch") == "" && isOf(r, resource)
}

func isOf(r *http.Request, resource string) bool {
	switch resource {
	case "namespaces":
		return r.URL.Path == "/api/v1/namespaces"
	case "leases":
		return r.URL.Path == "/apis/coordination.k8s.io/v1/leases"
	}
	return false
}
