package member

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// CapWrites caps every write to Kubernetes by what remains of its term. Put it on
// the configuration of the clients that act:
//
//	cfg.Wrap(member.CapWrites)
//
// A POST, PUT, PATCH or DELETE whose context comes from Member.Context, and so from
// Lead or a gated reconciler, is not sent if the term is over; the error wraps
// ErrNotBegun and ErrLost. Otherwise its `timeout` parameter is lowered to what remains, so that the
// API server gives up by itself on a write that waited in a queue of its own past
// the term. The server counts from when it received the request, so time on the
// way is not covered. One that fails when its term is over, because its context has ended with it
// for instance, returns an error that wraps ErrLost alone: it may have happened. Other requests
// pass unchanged.
//
// A write that client-go does not hand on fails with the error of its context, which is context.Canceled. That is one
// whose context has ended before, or while client-go waited for its rate limit or a Retry-After. context.Cause says of
// the context that the term is over.
//
// A term is not released (see Registration) while such a write is on its way. One that was sent
// and got no answer, or a server error, may still take effect: the term is then not
// released before what remained of it when the write was sent has passed. So that this is rare, a registered Member
// waits for the answer of a write that is on its way as its context ends, for that
// long, although the caller gets the error of its context at once.
func CapWrites(next http.RoundTripper) http.RoundTripper { return &capped{next} }

// errNoTransport is what a request says that has nowhere to go.
var errNoTransport = fmt.Errorf("%w: CapWrites was given no transport to wrap", ErrMisused)

type capped struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c *capped) RoundTrip(req *http.Request) (*http.Response, error) {
	if c.next == nil {
		closeBody(req)
		return nil, errNoTransport
	}
	t, ok := req.Context().Value(termKey{}).(Term)
	if !ok || !writes(req.Method) {
		return c.next.RoundTrip(req)
	}
	left, settled := t.t.beginWrite()
	if settled == nil {
		closeBody(req)
		return nil, fmt.Errorf("%s %s: %w: %w: epoch %d", req.Method, req.URL.Path, ErrNotBegun, ErrLost, t.Epoch())
	}
	query := req.URL.Query()
	if asked, err := time.ParseDuration(query.Get("timeout")); err != nil || asked <= 0 || asked > left {
		query.Set("timeout", left.String())
		req = req.Clone(req.Context()) // a RoundTripper must not modify its request
		req.URL.RawQuery = query.Encode()
	}
	send := c.send
	if t.t.terms.waited() {
		send = c.await
	}
	resp, err := send(req, left, settled)
	if err != nil {
		return nil, t.cut(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body = &answer{resp.Body, t}
	}
	return resp, nil
}

// cut adds to the error of an act that the term is over, if it is.
func (t Term) cut(err error) error {
	if t.Holds() {
		return err
	}
	return fmt.Errorf("%w: epoch %d: %w", ErrLost, t.Epoch(), err)
}

// answer is the body of the answer to a write.
type answer struct {
	io.ReadCloser
	term Term
}

// Read implements io.Reader.
func (a *answer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // readers compare with it, too
		err = a.term.cut(err)
	}
	return n, err
}

// closeBody does what a RoundTripper must, also on errors.
func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// send sends a write and says whether its outcome is known.
func (c *capped) send(req *http.Request, _ time.Duration, settled func(known bool)) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	// A server error may hide that the write takes effect later: a timeout does, by its nature.
	settled(err == nil && resp.StatusCode < http.StatusInternalServerError)
	return resp, err
}

// await sends a write and, when its context ends before the answer has come, leaves a goroutine behind
// that waits for the answer, for what was left of the term.
func (c *capped) await(req *http.Request, left time.Duration, settled func(known bool)) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), left)
	type outcome struct {
		resp *http.Response
		err  error
	}
	done := make(chan outcome)
	gone := req.Context().Done()
	go func() {
		resp, err := c.send(req.WithContext(ctx), left, settled)
		select {
		case done <- outcome{resp, err}:
		case <-gone:
			if err == nil {
				_ = resp.Body.Close()
			}
			cancel()
		}
	}()
	select {
	case o := <-done:
		if o.err != nil {
			cancel()
			return nil, o.err
		}
		// From here on the caller's context ends the reading of the answer, as it would have.
		stop := context.AfterFunc(req.Context(), cancel)
		o.resp.Body = &ending{o.resp.Body, func() { stop(); cancel() }}
		return o.resp, nil
	case <-gone:
		return nil, req.Context().Err()
	}
}

// ending is a body that ends something when it is closed.
type ending struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (e *ending) Close() error {
	defer e.end()
	return e.ReadCloser.Close()
}

// WrappedRoundTripper lets client-go find the transport below.
func (c *capped) WrappedRoundTripper() http.RoundTripper { return c.next }

// capsWrites reports whether all requests of a client go through CapWrites, by what they really go through: a
// configuration can be wrapped when its clients are made already. Wrappers are seen through if they have the method
// WrappedRoundTripper, as those of client-go do.
func capsWrites(client *http.Client) bool {
	rt := client.Transport
	for {
		if _, ok := rt.(*capped); ok {
			return true
		}
		wrapper, ok := rt.(utilnet.RoundTripperWrapper)
		if !ok {
			return false
		}
		rt = wrapper.WrappedRoundTripper()
	}
}

func writes(method string) bool {
	switch method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return true
	}
	return false
}
