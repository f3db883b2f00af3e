package member

import (
	"fmt"
	"net/http"
	"time"
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
// way is not covered. Other requests pass unchanged.
func CapWrites(next http.RoundTripper) http.RoundTripper { return &capped{next} }

type capped struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c *capped) RoundTrip(req *http.Request) (*http.Response, error) {
	t, ok := req.Context().Value(termKey{}).(Term)
	if !ok || !writes(req.Method) {
		return c.next.RoundTrip(req)
	}
	left := t.Remaining().Truncate(time.Millisecond)
	if left <= 0 {
		if req.Body != nil {
			_ = req.Body.Close() // as a RoundTripper must, also on errors
		}
		return nil, fmt.Errorf("%s %s: %w: %w: epoch %d", req.Method, req.URL.Path, ErrNotBegun, ErrLost, t.Epoch())
	}
	query := req.URL.Query()
	if asked, err := time.ParseDuration(query.Get("timeout")); err != nil || asked <= 0 || asked > left {
		query.Set("timeout", left.String())
		req = req.Clone(req.Context()) // a RoundTripper must not modify its request
		req.URL.RawQuery = query.Encode()
	}
	return c.next.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the transport below.
func (c *capped) WrappedRoundTripper() http.RoundTripper { return c.next }

func writes(method string) bool {
	switch method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return true
	}
	return false
}
