package member

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// CapWrites caps every write to Kubernetes by the remaining time of its term. Put it on the configuration of the
// clients that act:
//
//	cfg.Wrap(member.CapWrites)
//
// It covers each POST, PUT, PATCH or DELETE whose context comes from Member.Context, and so from Lead or a gated
// reconciler. Other requests pass unchanged.
//
// If the term is over, the write is not sent, and the error wraps ErrNotBegun and ErrLost. Otherwise CapWrites lowers
// the `timeout` parameter to the remaining time. So the API server gives up on a write that has waited past the term in
// the server's own queue. The server counts from when it received the request, so the time on the way is not covered. A
// write that gets no answer when its term is over, for instance because its context has ended, returns an error that
// wraps ErrLost alone. Such a write may have happened.
//
// Client-go does not send a write whose context ended before, or while it waited for its rate limit or for the
// Retry-After of an answer 429. Such a write fails with the error of its context, which is context.Canceled.
// context.Cause then returns that the term is over. Client-go would also repeat a write after a server error with a
// Retry-After, though the first one may take effect. So CapWrites removes that header.
//
// A term is not released (see Registration) while such a write is in flight. A write without an answer, or with a
// server error, may still take effect. The term is then not released until the time that remained when the write was
// sent has passed. To make this rare, a registered Member waits that long for the answer of a write whose context ends.
// The caller gets the error of its context at once.
func CapWrites(next http.RoundTripper) http.RoundTripper { return &capped{next} }

type capped struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c *capped) RoundTrip(req *http.Request) (*http.Response, error) {
	t, ok := req.Context().Value(termKey{}).(Term)
	if !ok || !writes(req.Method) {
		return c.next.RoundTrip(req)
	}
	left, settled := t.t.beginWrite()
	if settled == nil {
		if req.Body != nil {
			_ = req.Body.Close() // a RoundTripper must do so also on errors
		}
		return nil, fmt.Errorf("%s %s: %w: %w", req.Method, req.URL.Path, ErrNotBegun, t.lost())
	}
	query := req.URL.Query()
	if asked, _ := time.ParseDuration(query.Get("timeout")); asked <= 0 || asked > left { // none is 0, as in the server
		query.Set("timeout", left.String())
		req = req.Clone(req.Context()) // a RoundTripper must not modify its request
		req.URL.RawQuery = query.Encode()
	}
	send := c.send
	if t.t.terms.releases.needed {
		send = c.await
	}
	resp, err := send(req, left, settled)
	if err != nil && !t.Holds() {
		err = fmt.Errorf("%w: %w", t.lost(), err)
	}
	return resp, err
}

// send sends a write and passes to settled whether its outcome is known.
func (c *capped) send(req *http.Request, _ time.Duration, settled func(known bool)) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	// A server error may hide that the write takes effect later, as a timeout does.
	known := err == nil && resp.StatusCode < http.StatusInternalServerError
	if err == nil && !known {
		resp.Header.Del("Retry-After") // by which client-go would repeat the write
	}
	settled(known)
	return resp, err
}

// await sends a write. If its context ends before the answer, await returns, and a goroutine waits for the answer for
// the remaining time of the term.
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
		// From here on the caller's context ends the reading of the answer, as without await.
		stop := context.AfterFunc(req.Context(), cancel)
		o.resp.Body = &ending{o.resp.Body, func() { stop(); cancel() }}
		return o.resp, nil
	case <-gone:
		return nil, req.Context().Err()
	}
}

// ending is a body that calls end when it is closed.
type ending struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (e *ending) Close() error {
	defer e.end()
	return e.ReadCloser.Close()
}

// WrappedRoundTripper lets client-go find the wrapped transport.
func (c *capped) WrappedRoundTripper() http.RoundTripper { return c.next }

// capsWrites reports whether all requests of a client go through CapWrites. It checks the transport in use, because a
// configuration can be wrapped after its clients were made. It unwraps wrappers that have the method
// WrappedRoundTripper, as client-go's do.
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
