package publish

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A request whose answer does not certainly say that nothing was done may have been carried out, or still be: a read
// goes before the next write. An API server that gave up waiting for its etcd, or a gateway for it, is such an answer.
func TestWriteWithAnUnknownOutcomeIsRead(t *testing.T) {
	status := func(code int) error {
		return apierrors.NewGenericServerResponse(code, "put", leases, "leasecast", "upstream request timeout", 0, true)
	}
	for name, test := range map[string]struct {
		err   error
		open  bool
		pause time.Duration // until it is tried again; 0: that of a refusal
	}{
		"the API server gave up waiting, 504":  {apierrors.NewTimeoutError("request did not complete", 0), true, pauseSilent},
		"a gateway gave up waiting, 504":       {status(http.StatusGatewayTimeout), true, pauseSilent},
		"a gateway lost the connection, 502":   {status(http.StatusBadGateway), true, pauseSilent},
		"the API server timed out within, 500": {apierrors.NewServerTimeout(leases, "update", 0), true, pauseSilent},
		"an internal error, 500": {apierrors.NewInternalError(errors.New("etcdserver: leader changed")), true,
			pauseSilent},
		"the API server is shutting down, 503": {apierrors.NewServiceUnavailable("shutting down"), true, pauseSilent},
		"nothing was heard in time":            {errTimeout, true, pauseSilent},
		"the connection broke":                 {io.ErrUnexpectedEOF, true, pauseSilent},
		"the hub has no right to it, 403":      {errForbidden, false, 0},
		"its credentials have expired, 401":    {apierrors.NewUnauthorized("expired"), false, pauseSilent},
		"the API server finds it invalid, 422": {apierrors.NewInvalid(schema.GroupKind{Kind: "Lease"}, "leasecast", nil),
			false, 0},
		"the API server cannot read it, 400":    {apierrors.NewBadRequest("no"), false, 0},
		"the API server does not serve it, 405": {apierrors.NewMethodNotSupported(leases, "update"), false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.leads().at(5).next("update east 20 renewTime 5s promise 20s")
			if test.open {
				r.failed(test.err, test.pause).at(6).next("read")
			} else {
				r.failed(test.err, cmp.Or(test.pause, pauseRefused)).at(6).next("update east 20 renewTime 6s promise 21s")
			}
		})
	}
}
