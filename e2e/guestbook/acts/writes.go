package acts

import (
	"net/http"
	"strings"

	"github.com/leasecast/leasecast/member"
)

// Writes records, as acts, the writes to Kubernetes that are done in a term. Put it
// on a client's configuration after member.CapWrites, so that what that refuses lies
// between the two lines: cfg.Wrap(log.Writes).
func (l *Log) Writes(next http.RoundTripper) http.RoundTripper { return &recorder{l, next} }

type recorder struct {
	log  *Log
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	_, gated := member.EpochFrom(req.Context())
	if !gated || req.Method == http.MethodGet {
		return r.next.RoundTrip(req)
	}
	namespace, name := target(req.URL.Path)
	after, err := r.log.begin(req.Context(), "write", namespace, name)
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // as a RoundTripper must, also on errors
		}
		return nil, err
	}
	resp, err := r.next.RoundTrip(req)
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		after(resp.Status)
	} else {
		after(result(err))
	}
	return resp, err
}

// WrappedRoundTripper lets the library see member.CapWrites below.
func (r *recorder) WrappedRoundTripper() http.RoundTripper { return r.next }

// target returns the namespace and the name in a path of the Kubernetes API.
func target(path string) (namespace, name string) {
	_, rest, _ := strings.Cut(path, "/namespaces/")
	parts := strings.Split(rest, "/") // namespace, resource, name, subresource
	if len(parts) > 2 {
		name = parts[2]
	}
	return parts[0], name
}
