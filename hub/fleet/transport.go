package fleet

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// The largest answers that are read, watches aside, so that a member cannot fill the hub's memory
// with one. Renewals are small; a list of Leases takes about 1 KiB for each.
const (
	maxWriterBody = 16 << 20
	maxCachesBody = 256 << 20
)

var (
	errNoTarget = errors.New("there is no connection to the member")
	errTooLarge = errors.New("the member's answer is too large")
	errStranger = errors.New("the request is not for the member: redirects are not followed")
)

// swappableTransport is a transport whose address, credentials and connection can be replaced at any time. The
// clients above it know a placeholder only, and never change.
type swappableTransport struct {
	host    string
	agent   string // of its requests, for the member's audit log
	maxBody int64
	route   atomic.Pointer[route]
	// asked, if not nil, is called before each request, and what it returns with the answer.
	requestSent func() answerFunc
}

// route is where a transport leads to.
type route struct {
	target *target
	pool   *pool
}

var _ http.RoundTripper = (*swappableTransport)(nil)

func newTransport(k Key, agent string, maxBody int64) *swappableTransport {
	// A name that nobody can own: should a request ever miss the transport, it goes nowhere.
	return &swappableTransport{host: k.Identity() + ".invalid", agent: agent, maxBody: maxBody}
}

func (l *swappableTransport) set(t *target, p *pool) {
	if t == nil {
		l.route.Store(nil)
		return
	}
	l.route.Store(&route{target: t, pool: p})
}

// config is for clients on this transport. It has no rate limit: the publisher bounds what is under
// way, and caches watch.
func (l *swappableTransport) config(transport http.RoundTripper) *rest.Config {
	return &rest.Config{
		Host:      "https://" + l.host,
		Transport: transport,
		UserAgent: l.agent,
		QPS:       -1,
	}
}

// httpClient is an HTTP client for config that follows no redirects: they could lead anywhere.
func httpClient(config *rest.Config) (*http.Client, error) {
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make an HTTP client: %w", err)
	}
	own := *c // it may be shared
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own, nil
}

// RoundTrip sends the request to where the transport leads at this moment.
func (l *swappableTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	r := l.route.Load()
	switch {
	case req.URL.Host != l.host:
		closeBody(req)
		return nil, errStranger
	case r == nil:
		closeBody(req)
		return nil, errNoTarget
	}
	out := req.Clone(req.Context())
	out.URL.Scheme, out.URL.Host = r.target.access.server.Scheme, r.target.access.server.Host
	if prefix := r.target.access.server.Path; prefix != "" {
		if out.URL.RawPath != "" {
			out.URL.RawPath = r.target.access.server.EscapedPath() + out.URL.RawPath
		}
		out.URL.Path = prefix + out.URL.Path
	}
	out.Host = ""
	r.target.authorize(out)
	resp, err := timed(l.requestSent, r.pool.transport, out)
	if err != nil {
		return nil, err
	}
	if !isWatch(req.URL) {
		resp.Body = &boundedBody{ReadCloser: resp.Body, left: l.maxBody}
	}
	return resp, nil
}

// timed sends a request, and tells when it was sent and what was answered.
func timed(asked func() answerFunc, transport http.RoundTripper, req *http.Request) (*http.Response, error) {
	if asked == nil {
		return transport.RoundTrip(req)
	}
	done := asked()
	resp, err := transport.RoundTrip(req)
	if err == nil {
		done(resp.StatusCode, resp.Header)
	}
	return resp, err
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close() // a RoundTripper must, and the request has failed already
	}
}

func isWatch(u *url.URL) bool {
	w := u.Query().Get("watch")
	return w == "true" || w == "1"
}

type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// retryTransport is the transport of a member's informers. A request that is not answered is sent again
// when the member answers something, and a watch whose connection is lost ends as if the server had
// ended it. So informers go on from where they were as soon as the member is back; left to
// themselves they would back off for up to a minute, and list everything again. An
// informer that shall give up cancels its requests.
type retryTransport struct {
	next     http.RoundTripper
	answered *signal
	clock    clock.Clock
}

// retryPause is the least time between two tries of one request.
const retryPause = 250 * time.Millisecond

// RoundTrip sends a request without a body until it is answered or its context ends.
func (p *retryTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	for {
		answered := p.answered.next()
		resp, err := p.next.RoundTrip(req)
		if err == nil && isWatch(req.URL) {
			resp.Body = &watchBody{ReadCloser: resp.Body, req: req}
		}
		if err == nil || req.Body != nil || ctx.Err() != nil || errors.Is(err, errStranger) {
			return resp, err
		}
		if err := wait(ctx, p.clock, retryPause, nil); err != nil {
			return nil, err
		}
		select {
		case <-answered:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// watchBody hides from an informer why its watch ended.
type watchBody struct {
	io.ReadCloser
	req *http.Request
}

func (b *watchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && b.req.Context().Err() == nil {
		err = io.EOF
	}
	return n, err
}
