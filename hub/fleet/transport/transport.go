// Package transport holds the connections to the API server of one member: where a kubeconfig leads to, with
// what credentials, and what the clients above see while that changes.
//
// What a member sends is small by its type. Of each answer and each event only the fields that the hub uses are kept,
// before it is decoded: fields.go and kinds.go list them, and sieve.go keeps them.
package transport

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// ErrTooLarge is wrapped where an object, or what is kept of an answer, is larger than its bound.
var ErrTooLarge = errors.New("the member's answer is too large")

var (
	errNoTarget = errors.New("there is no connection to the member")
	errStranger = errors.New("the request is not for the member")
)

// Options configure a [Swappable]. All are optional.
type Options struct {
	// Agent is the user agent of requests, for the member's audit log.
	Agent string
	// RequestSent is called before each request, and what it returns is called with the answer.
	RequestSent func() AnswerFunc
	// Refused is called with the clean words of each answer that forbids a request.
	Refused func(words string)
	// Room bounds what is read of answers at a time.
	Room *Room
	// Held counts what caches hold, by the path and the selector of their lists: see HeldBy.
	Held map[string]*Held
}

// AnswerFunc is called with an answer, when it has come.
type AnswerFunc func(status int, header http.Header)

// Swappable leads the clients of one member to its API server. The address, the credentials and the connections can be
// replaced at any time. The clients above know a placeholder only, and never change.
type Swappable struct {
	Options
	host   string
	target atomic.Pointer[Target]

	caches, renewals, tenants lane
	readers                   *pace
}

// lane is a transport on one of the two connections. What comes there has a pace of its own.
type lane struct {
	*Swappable
	pool func(*Target) *pool
	pace *pace
}

var _ http.RoundTripper = (*lane)(nil)

// NewSwappable returns transports that lead nowhere yet. name is the name of their member.
func NewSwappable(name string, o Options) *Swappable {
	// A name that nobody can own: should a request ever miss the transport, it goes nowhere.
	s := &Swappable{Options: o, host: name + ".invalid", readers: newPace()}
	caches, renewals := func(t *Target) *pool { return t.caches }, func(t *Target) *pool { return t.renewals }
	s.caches = lane{s, caches, newPace()}
	s.renewals = lane{s, renewals, newPace()}
	s.tenants = lane{s, caches, newPace()}
	return s
}

// Caches returns the transport for caches. It has its own connection.
func (s *Swappable) Caches() http.RoundTripper { return &s.caches }

// Renewals returns the transport for renewals and probes. It has its own connection.
func (s *Swappable) Renewals() http.RoundTripper { return &s.renewals }

// Tenants returns a transport on the connection of the caches, for objects that tenants of the member write and fill.
// However much they are, no other request waits.
func (s *Swappable) Tenants() http.RoundTripper { return &s.tenants }

// To returns a transport that leads to a target, whether it is in use or not.
func (s *Swappable) To(t *Target) http.RoundTripper {
	fixed := &Swappable{Options: Options{Agent: s.Agent, Room: s.Room}, host: s.host}
	fixed.Lead(t)
	return &lane{fixed, s.renewals.pool, s.renewals.pace}
}

// Administrator returns a transport that leads to a target as the user of its kubeconfig.
func (s *Swappable) Administrator(t *Target) http.RoundTripper {
	bare := *t
	bare.User = ""
	return s.To(&bare)
}

// Lead makes the transports lead to a target, or nowhere if it is nil.
func (s *Swappable) Lead(t *Target) { s.target.Store(t) }

// Config is for clients on one of the transports. It has no rate limit: the publisher bounds how many requests are
// under way, and caches watch.
func (s *Swappable) Config(transport http.RoundTripper) *rest.Config {
	return &rest.Config{
		Host:      "https://" + s.host,
		Transport: transport,
		QPS:       -1,
		// All kinds that are read are built into API servers, and come in protobuf, of which a sieve keeps what is used.
		ContentConfig:             rest.ContentConfig{AcceptContentTypes: protobufType, ContentType: protobufType},
		WarningHandlerWithContext: rest.NoWarnings{}, // they would be logged
	}
}

// RoundTrip sends the request to where the transport leads at this moment, and checks the answer.
func (l *lane) RoundTrip(req *http.Request) (*http.Response, error) {
	t := l.target.Load()
	asked, err := questionOf(req)
	switch {
	case req.URL.Host != l.host:
		err = errStranger
	case err == nil && t == nil:
		err = errNoTarget
	}
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // a RoundTripper must, and the request has failed already
		}
		return nil, err
	}
	ctx := req.Context()
	if !asked.watch {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, answerTimeout)
		defer cancel() // the answer was read
	}
	answered := func(int, http.Header) {}
	if l.RequestSent != nil {
		answered = l.RequestSent()
	}
	resp, err := l.pool(t).transport.RoundTrip(t.addressed(ctx, req, l.Agent))
	if err == nil {
		answered(resp.StatusCode, resp.Header)
		r := receipt{
			question: asked, ctx: ctx, pace: l.pace, clean: t.scrub, refused: l.Refused, room: l.Room,
			held: l.Held[HeldBy(asked.path, asked.selector)],
		}
		if asked.isOfReaders {
			r.pace = l.readers
		}
		err = r.check(resp)
	}
	if err != nil {
		return nil, cleanError(err, t.scrub)
	}
	return resp, nil
}

// HeldBy is the key in Held of the lists of a resource with a selector of labels.
func HeldBy(path, selector string) string { return path + "?" + selector }

func isWatch(u *url.URL) bool {
	w := u.Query().Get("watch")
	return w == "true" || w == "1"
}
