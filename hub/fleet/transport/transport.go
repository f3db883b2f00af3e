// Package transport holds the connections to the API server of one member: where a kubeconfig leads to, with
// what credentials, and what the clients above see while that changes.
package transport

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// The largest answers that are read.
const (
	// MaxRenewalsBody and MaxCachesBody bound the answers that are read, watches aside, so that a member
	// cannot fill the hub's memory with one. Renewals are small. A list of Leases takes about 1 KiB for each.
	MaxRenewalsBody = 16 << 20
	MaxCachesBody   = 32 << 20
	// MaxAccountBody bounds an answer about the hub's own account: one object, of which an etcd stores 1.5 MiB.
	MaxAccountBody = 2 << 20
	// MaxTenantsBody bounds an answer of objects that tenants write: see [Swappable.ForTenants].
	MaxTenantsBody = 2 << 20
)

// ErrTooLarge is wrapped where the body of an answer, or what it decodes to, is larger than its bound.
var ErrTooLarge = errors.New("the member's answer is too large")

var (
	errNoTarget = errors.New("there is no connection to the member")
	errStranger = errors.New("the request is not for the member: redirects are not followed")
)

// Swappable is a transport whose address, credentials and connection can be replaced at any time. The clients
// above it know a placeholder only, and never change.
type Swappable struct {
	host    string
	agent   string // of its requests, for the member's audit log
	maxBody int64
	route   atomic.Pointer[route]
	// RequestSent, if not nil, is called before each request, and what it returns is called with the answer.
	RequestSent func() AnswerFunc
	// Refused, if not nil, is called with the clean words of each answer that forbids a request.
	Refused func(words string)
	// Meter counts what comes, and Readers what comes for requests with ReadersSelector. Nil ones count nothing.
	Meter, Readers  *Meter
	ReadersSelector string
	// Timers bound how long an answer may take. Nil: nothing does.
	Timers clock.WithDelayedExecution
}

// route is where a transport leads to.
type route struct {
	target *Target
	pool   *pool
}

var _ http.RoundTripper = (*Swappable)(nil)

// NewSwappable returns a transport that leads nowhere yet. name names its member, agent is the user agent of
// its requests, and maxBody bounds answers.
func NewSwappable(name, agent string, maxBody int64) *Swappable {
	// A name that nobody can own: should a request ever miss the transport, it goes nowhere.
	return &Swappable{host: name + ".invalid", agent: agent, maxBody: maxBody}
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
		// Kinds that client-go knows come in protobuf, which is weighed exactly.
		ContentConfig: rest.ContentConfig{
			AcceptContentTypes: protobufType + "," + jsonType,
			ContentType:        protobufType,
		},
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
	return l.send(req, receipt{maxBody: l.maxBody, meter: l.meterOf(req.URL)})
}

// ForTenants returns a transport on the same connections, for objects that tenants of the member write and fill. It has
// a meter of its own: too much of them ends only requests by it. It counts bytes, so decode them into a type that keeps
// few of them. Set Timers first.
func (l *Swappable) ForTenants() http.RoundTripper {
	return forTenants{l, NewReadersMeter(l.Timers)}
}

type forTenants struct {
	of    *Swappable
	meter *Meter
}

func (t forTenants) RoundTrip(req *http.Request) (*http.Response, error) {
	return t.of.send(req, receipt{maxBody: MaxTenantsBody, meter: t.meter, light: true})
}

// send sends a request, and checks the answer by what the receipt says of it.
func (l *Swappable) send(req *http.Request, answer receipt) (*http.Response, error) {
	r := l.route.Load()
	switch {
	case req.URL.Host != l.host:
		closeBody(req)
		return nil, errStranger
	case r == nil:
		closeBody(req)
		return nil, errNoTarget
	}
	if err := answer.meter.add(0); err != nil {
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
		answer.clean, answer.refused, answer.timers = r.target.scrub, l.Refused, l.Timers
		err = answer.check(resp, isWatch(req.URL))
	}
	if err != nil {
		return nil, cleanError(err, r.target.scrub)
	}
	return resp, nil
}

// meterOf is the meter for the answer to a request.
func (l *Swappable) meterOf(u *url.URL) *Meter {
	if l.Readers != nil && u.Query().Get("labelSelector") == l.ReadersSelector {
		return l.Readers
	}
	return l.Meter
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
