// Package transport holds the connections to the API server of one member: where a kubeconfig leads to, with
// what credentials, and what the clients above see while that changes.
//
// What a member sends is small by its type. Of each answer and each event only the fields that the hub uses are kept, before
// it is decoded: fields.go and kinds.go list them, and sieve.go keeps them.
package transport

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// ErrTooLarge is wrapped where an object, or what is kept of an answer, is larger than its bound.
var ErrTooLarge = errors.New("the member's answer is too large")

var (
	errNoTarget = errors.New("there is no connection to the member")
	errStranger = errors.New("the request is not for the member: redirects are not followed")
)

// Swappable is a transport whose address, credentials and connection can be replaced at any time. The clients
// above it know a placeholder only, and never change.
type Swappable struct {
	host  string
	agent string // of its requests, for the member's audit log
	route atomic.Pointer[route]
	// RequestSent, if not nil, is called before each request, and what it returns is called with the answer.
	RequestSent func() AnswerFunc
	// Refused, if not nil, is called with the clean words of each answer that forbids a request.
	Refused func(words string)
	// Pace is that of what comes, and Readers that of what comes for requests with ReadersSelector, which tenants write.
	// Without one nothing waits.
	Pace, Readers   *rate.Limiter
	ReadersSelector string
	// Room is for answers while they are read. Nil: there is enough.
	Room *Room
	// Held counts what caches hold, by the path and the selector of their lists.
	Held map[string]*Held
	// Exceeded, if not nil, is called with the error of an answer about one Lease that is larger than any object.
	Exceeded func(error)
	// Timers bound how long an answer may take. Nil: nothing does.
	Timers clock.WithDelayedExecution
}

// route is where a transport leads to.
type route struct {
	target *Target
	pool   *pool
}

var _ http.RoundTripper = (*Swappable)(nil)

// NewSwappable returns a transport that leads nowhere yet. name names its member, and agent is the user agent of
// its requests.
func NewSwappable(name, agent string) *Swappable {
	// A name that nobody can own: should a request ever miss the transport, it goes nowhere.
	return &Swappable{host: name + ".invalid", agent: agent}
}

// Lead makes the transports for caches and for renewals lead to the target, or nowhere if it is nil.
func Lead(t *Target, caches, renewals *Swappable) {
	if t == nil {
		caches.route.Store(nil)
		renewals.route.Store(nil)
		return
	}
	caches.set(t, t.caches)
	renewals.set(t, t.writer)
}

func (l *Swappable) set(t *Target, p *pool) { l.route.Store(&route{target: t, pool: p}) }

// Config is for clients on this transport. It has no rate limit: the publisher bounds how many requests are
// under way, and caches watch.
func (l *Swappable) Config(transport http.RoundTripper) *rest.Config {
	return &rest.Config{
		Host:      "https://" + l.host,
		Transport: transport,
		UserAgent: l.agent,
		QPS:       -1,
		// All kinds that are read are built into API servers, and come in protobuf, of which a sieve keeps what is used.
		ContentConfig:             rest.ContentConfig{AcceptContentTypes: protobufType, ContentType: protobufType},
		WarningHandlerWithContext: rest.NoWarnings{}, // they would be logged
	}
}

// HTTPClient is an HTTP client for config that follows no redirects: they could lead anywhere.
func HTTPClient(config *rest.Config) (*http.Client, error) {
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make an HTTP client: %w", err)
	}
	own := *c // it may be shared
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own, nil
}

// RoundTrip sends the request to where the transport leads at this moment.
func (l *Swappable) RoundTrip(req *http.Request) (*http.Response, error) {
	pace := l.Pace
	if l.asksReaders(req.URL) {
		pace = l.Readers
	}
	return l.send(req, pace)
}

// ForTenants returns a transport on the same connections, for objects that tenants of the member write and fill. It has
// a pace of its own: however much they are, no other request waits.
func (l *Swappable) ForTenants() http.RoundTripper { return forTenants{l, NewPace()} }

type forTenants struct {
	of   *Swappable
	pace *rate.Limiter
}

func (t forTenants) RoundTrip(req *http.Request) (*http.Response, error) {
	return t.of.send(req, t.pace)
}

// send sends a request, and checks the answer, which is read at a pace.
func (l *Swappable) send(req *http.Request, pace *rate.Limiter) (*http.Response, error) {
	r := l.route.Load()
	asked, err := l.questionOf(req)
	switch {
	case req.URL.Host != l.host:
		err = errStranger
	case err != nil:
	case r == nil:
		err = errNoTarget
	}
	if err != nil {
		closeBody(req)
		return nil, err
	}
	out := req.Clone(req.Context())
	out.URL.Scheme, out.URL.Host = r.target.Access.server.Scheme, r.target.Access.server.Host
	if prefix := r.target.Access.server.Path; prefix != "" {
		if out.URL.RawPath != "" {
			out.URL.RawPath = r.target.Access.server.EscapedPath() + out.URL.RawPath
		}
		out.URL.Path = prefix + out.URL.Path
	}
	out.Host = ""
	r.target.authorize(out)
	resp, err := timed(l.RequestSent, r.pool.transport, out)
	if err == nil {
		query := req.URL.Query()
		err = receipt{
			question: asked, ctx: req.Context(), pace: pace, room: l.Room, held: l.Held[HeldBy(asked.path, query.Get("labelSelector"))],
			first: asked.list && query.Get("continue") == "" || query.Get("sendInitialEvents") == "true",
			clean: r.target.scrub, refused: l.Refused, timers: l.Timers,
		}.check(resp)
	}
	if err != nil {
		err = cleanError(err, r.target.scrub)
		if l.Exceeded != nil && asked.path == Leases && !asked.list && errors.Is(err, ErrTooLarge) {
			l.Exceeded(err)
		}
		return nil, err
	}
	return resp, nil
}

// HeldBy is the key in Held of the lists of a resource with a selector of labels.
func HeldBy(path, selector string) string { return path + "?" + selector }

// asksReaders reports whether a request is for the registrations of readers.
func (l *Swappable) asksReaders(u *url.URL) bool {
	return l.ReadersSelector != "" && u.Query().Get("labelSelector") == l.ReadersSelector
}

// timed sends a request. It calls requestSent before that, and the function that this returns with the
// answer.
func timed(asked func() AnswerFunc, transport http.RoundTripper, req *http.Request) (*http.Response, error) {
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

// AnswerFunc is called with an answer, when it has come.
type AnswerFunc func(status int, header http.Header)
