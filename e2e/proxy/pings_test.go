package proxy_test

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/e2e/proxy"
	"github.com/leasecast/leasecast/member/pings"
)

// timing has connections pinged often. A machine that pauses answers in time all the same.
var timing = pings.Timing{After: 200 * time.Millisecond, Timeout: 2 * time.Second}

// behind starts a server with HTTP/2 behind a proxy. Requests for /wait get the header of an answer and no more.
func behind(t *testing.T) (*proxy.Proxy, *rest.Config) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, r.Proto+" "+r.UserAgent()+" "+r.Header.Get("Wrapped"))
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	p := musttest.Get(proxy.New(s.Listener.Addr().String()))(t)
	t.Cleanup(func() { musttest.Do(t, p.Close()) })
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return p, &rest.Config{Host: "https://" + p.Addr(), UserAgent: "agent",
		TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

func connect(t *testing.T, cfg *rest.Config) *pings.Connections {
	t.Helper()
	c := musttest.Get(pings.New(cfg, timing))(t)
	t.Cleanup(c.CloseIdle)
	return c
}

// get requests a URL. The caller reads the body, which is closed with the test.
func get(t *testing.T, c http.RoundTripper, url string) io.Reader {
	t.Helper()
	req := musttest.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	resp, err := c.RoundTrip(req)
	musttest.Do(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp.Body
}

func answer(t *testing.T, c http.RoundTripper, cfg *rest.Config) string {
	t.Helper()
	body := musttest.Get(io.ReadAll(get(t, c, cfg.Host)))(t)
	return string(body)
}

func TestConnectionThatDiedSilentlyEnds(t *testing.T) {
	p, cfg := behind(t)
	c := connect(t, cfg)
	body := get(t, c, cfg.Host+"/wait")
	p.Strand()
	began := time.Now()
	if _, err := io.ReadAll(body); err == nil {
		t.Error("a stranded answer ended without an error")
	}
	if took := time.Since(began); took > 20*time.Second { // client-go's own pings take 45 s
		t.Errorf("it ended after %v, want %v", took, timing.After+timing.Timeout)
	}
	if got := answer(t, c, cfg); got != "HTTP/2.0 agent " {
		t.Errorf("the answer on a new connection is %q", got)
	}
}

func TestQuietConnectionThatLivesGoesOn(t *testing.T) {
	p, cfg := behind(t)
	body := get(t, connect(t, cfg), cfg.Host+"/wait")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.ReadAll(body)
	}()
	select {
	case <-ended:
		t.Error("the connection ended")
	case <-time.After(timing.After + timing.Timeout + time.Second):
	}
	if got := p.Stats().Connections; got != 1 {
		t.Errorf("%d connections, want 1", got)
	}
}

func TestClientsShareNoConnection(t *testing.T) {
	p, cfg := behind(t)
	for want := 1; want <= 3; want++ {
		answer(t, connect(t, cfg), cfg)
		if got := p.Stats().Connections; got != want {
			t.Fatalf("%d connections of %d clients", got, want)
		}
	}
}

func TestConfigurationKeepsItsTransport(t *testing.T) {
	p, cfg := behind(t)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return wrapper(func(req *http.Request) (*http.Response, error) {
			req = req.Clone(req.Context())
			req.Header.Set("Wrapped", "yes")
			return next.RoundTrip(req)
		})
	})
	if got := answer(t, connect(t, cfg), cfg); got != "HTTP/2.0 agent yes" {
		t.Errorf("the server got %q", got)
	}
	if p.Stats().Connections != 1 {
		t.Error("the request did not go through the proxy")
	}
	foreign := &rest.Config{Host: cfg.Host, Transport: wrapper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("foreign"))}, nil
	})}
	if got := answer(t, connect(t, foreign), foreign); got != "foreign" {
		t.Errorf("the answer by another transport is %q", got)
	}
}

type wrapper func(*http.Request) (*http.Response, error)

func (w wrapper) RoundTrip(req *http.Request) (*http.Response, error) { return w(req) }
