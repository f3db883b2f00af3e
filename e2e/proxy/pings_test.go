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
	p, err := proxy.New(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return p, &rest.Config{Host: "https://" + p.Addr(), UserAgent: "agent",
		TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

func connect(t *testing.T, cfg *rest.Config) *pings.Connections {
	t.Helper()
	c, err := pings.New(cfg, timing)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdle)
	return c
}

// get asks once, and returns the body.
func get(t *testing.T, c http.RoundTripper, url string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.RoundTrip(req)
}

func said(t *testing.T, c http.RoundTripper, cfg *rest.Config) string {
	t.Helper()
	resp, err := get(t, c, cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestAConnectionThatDiedSilentlyIsNoticed(t *testing.T) {
	p, cfg := behind(t)
	c := connect(t, cfg)
	resp, err := get(t, c, cfg.Host+"/wait")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	p.Strand()
	began := time.Now()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a stranded answer ended well")
	}
	if took := time.Since(began); took > 20*time.Second { // client-go's own pings take 45 s
		t.Errorf("noticed after %v, want %v", took, timing.After+timing.Timeout)
	}
	if got := said(t, c, cfg); got != "HTTP/2.0 agent " {
		t.Errorf("a new connection says %q", got)
	}
}

func TestAQuietConnectionThatLivesGoesOn(t *testing.T) {
	p, cfg := behind(t)
	c := connect(t, cfg)
	resp, err := get(t, c, cfg.Host+"/wait")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.ReadAll(resp.Body)
	}()
	select {
	case <-ended:
		t.Error("it was ended although it lives")
	case <-time.After(timing.After + timing.Timeout + time.Second):
	}
	if got := p.Stats().Connections; got != 1 {
		t.Errorf("%d connections, want 1", got)
	}
	_ = resp.Body.Close()
	<-ended
}

func TestConnectionsAreNobodyElses(t *testing.T) {
	p, cfg := behind(t)
	for want := 1; want <= 3; want++ {
		said(t, connect(t, cfg), cfg)
		if got := p.Stats().Connections; got != want {
			t.Fatalf("%d connections for %d that shall share none", got, want)
		}
	}
}

func TestWhatTheConfigurationSaysIsKept(t *testing.T) {
	p, cfg := behind(t)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return wrapper(func(req *http.Request) (*http.Response, error) {
			req = req.Clone(req.Context())
			req.Header.Set("Wrapped", "yes")
			return next.RoundTrip(req)
		})
	})
	if got := said(t, connect(t, cfg), cfg); got != "HTTP/2.0 agent yes" {
		t.Errorf("the server heard %q", got)
	}
	if p.Stats().Connections != 1 {
		t.Error("went past the proxy")
	}
	foreign := &rest.Config{Host: cfg.Host, Transport: wrapper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("foreign"))}, nil
	})}
	if got := said(t, connect(t, foreign), foreign); got != "foreign" {
		t.Errorf("somebody else's connections say %q", got)
	}
}

type wrapper func(*http.Request) (*http.Response, error)

func (w wrapper) RoundTrip(req *http.Request) (*http.Response, error) { return w(req) }
