package transport

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/leasecast/leasecast/hub/fleet/wake"
)

// Retry is the transport of a member's informers. It sends a request that is not answered again when the
// member answers something. A watch whose connection is lost ends as if the server had ended it. So informers
// go on from where they were as soon as the member is back. Without this they would back off for up to a
// minute, and list everything again. To stop an informer, cancel its requests.
//
// After a watch that fails again while other requests are answered, the next one gets an error, so that the informer
// lists: it may never do so while watches expire, or are not answered. The error must not be a timeout, which a client
// takes for an empty watch.
//
// What fails again and again is asked for after pauses that grow, whether it was answered or not: informers themselves
// ask at once for a watch that the server ends.
type Retry struct {
	next     http.RoundTripper
	answered *wake.Signal
	clock    clock.Clock

	mu    sync.Mutex
	paths map[string]*path // by URL path: a list and the watch after it are one
}

// path is how the requests for one kind of object go.
type path struct {
	failures  int
	relist    bool // the next watch gets an error
	notBefore time.Time
}

// NewRetry returns a transport above next. answered fires when the member answers something.
func NewRetry(next http.RoundTripper, answered *wake.Signal, c clock.Clock) *Retry {
	return &Retry{next: next, answered: answered, clock: c, paths: map[string]*path{}}
}

const (
	// retryPause is the least time between two tries of one request.
	retryPause = 250 * time.Millisecond
	// longestSilence and longestRefusal bound the pause after a failure. One that was not answered is tried again only
	// when the member answers something, so its pause need not grow long.
	longestSilence = time.Second
	longestRefusal = 10 * time.Second
	// shortWatch is how long a watch lasts that has not failed. API servers end one after minutes.
	shortWatch = 5 * time.Second
)

// errRelist ends a watch after others have failed.
var errRelist = errors.New("the watch fails again and again, so what it would show is listed again")

// RoundTrip sends a request without a body until it is answered, its context ends, or a watch has failed again.
func (p *Retry) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, of := req.Context(), req.URL.Path
	req = inPages(req)
	for {
		var pause time.Duration
		relist := false
		p.change(of, func(at *path) {
			if pause = at.notBefore.Sub(p.clock.Now()); isWatch(req.URL) {
				relist, at.relist = at.relist, false
			}
		})
		if pause > 0 {
			if err := wake.For(ctx, p.clock, pause, nil); err != nil {
				return nil, err
			}
		}
		if relist {
			return nil, errRelist
		}
		answered := p.answered.Next()
		resp, err := p.next.RoundTrip(req)
		switch {
		case ctx.Err() != nil:
			return resp, err
		case err != nil:
			p.failed(req, longestSilence, isClosed(answered))
		case resp.StatusCode >= http.StatusBadRequest:
			p.failed(req, longestRefusal, true)
		case isWatch(req.URL):
			resp.Body = p.watch(resp.Body, req)
		}
		if err == nil || req.Body != nil || isFinal(err) {
			return resp, err
		}
		if err := wake.For(ctx, p.clock, retryPause, nil); err != nil {
			return nil, err
		}
		if err := wake.For(ctx, p.clock, -1, answered); err != nil {
			return nil, err
		}
	}
}

// inPages is a request for a list that the API server does not answer from its cache: it would ignore the limit, and
// send all of it at once.
func inPages(req *http.Request) *http.Request {
	query := req.URL.Query()
	if isWatch(req.URL) || query.Get("resourceVersion") != "0" || query.Get("limit") == "" {
		return req
	}
	query.Del("resourceVersion")
	req = req.Clone(req.Context())
	req.URL.RawQuery = query.Encode()
	return req
}

// isFinal reports whether an error is no silence, so that waiting for an answer does not help.
func isFinal(err error) bool {
	return errors.Is(err, errStranger) || errors.Is(err, errMalformed) || errors.Is(err, ErrTooLarge) ||
		errors.Is(err, errNoRoom)
}

// change changes the state of a path.
func (p *Retry) change(of string, change func(*path)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paths[of] == nil {
		p.paths[of] = &path{}
	}
	change(p.paths[of])
}

// failed records that a request has failed, and whether the member has answered anything since it was sent.
func (p *Retry) failed(req *http.Request, longest time.Duration, answers bool) {
	p.change(req.URL.Path, func(at *path) {
		pause := min(retryPause<<min(at.failures, 8), longest)
		at.failures++
		at.relist = at.failures > 1 && answers && isWatch(req.URL)
		at.notBefore = p.clock.Now().Add(wait.Jitter(pause/2, 1))
	})
}

// watch records how a watch ends.
func (p *Retry) watch(body io.ReadCloser, req *http.Request) io.ReadCloser {
	began := p.clock.Now()
	return &watchBody{ReadCloser: body, req: req, ended: sync.OnceFunc(func() {
		switch lasted := p.clock.Now().Sub(began) >= shortWatch; {
		case lasted:
			p.change(req.URL.Path, func(at *path) { at.failures = 0 })
		case req.Context().Err() == nil:
			p.failed(req, longestRefusal, true)
		}
	})}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// watchBody hides from an informer why its watch ended.
type watchBody struct {
	io.ReadCloser
	req   *http.Request
	ended func()
}

func (b *watchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.ended()
		if b.req.Context().Err() == nil {
			err = io.EOF
		}
	}
	return n, err
}

func (b *watchBody) Close() error {
	b.ended()
	return b.ReadCloser.Close()
}
