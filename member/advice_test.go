package member

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	leasesResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	errForbidden   = apierrors.NewForbidden(leasesResource, "x", nil)
	errGone        = apierrors.NewNotFound(leasesResource, "x")
	errNotWatching = apierrors.NewForbidden(leasesResource, "x", errors.New("ValidatingAdmissionPolicy 'leasecast-registrations' denied request: "+
		"a registration may only name namespaces in which its writer may watch Leases; for more than 16: bind the ClusterRole leasecast-reader"))
	errHTTP2Lost = errors.New("http2: client connection lost")
	errNetwork   = &net.OpError{Op: "dial", Err: errRefused}
)

// What somebody has to mend is an error at once.
func TestAFailureEndsByItselfUnlessSomebodyHasToMendIt(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		ends bool
	}{
		"no rights":              {errForbidden, false},
		"wrong credentials":      {apierrors.NewUnauthorized("x"), false},
		"another kind of server": {errGone, false},
		"an unknown authority":   {x509.UnknownAuthorityError{}, false},
		"another name":           {x509.HostnameError{Certificate: &x509.Certificate{}}, false},
		"nobody answers":         {context.DeadlineExceeded, true},
		"a connection breaks":    {errHTTP2Lost, true},
		"nobody listens":         {errNetwork, true},
		"too many requests":      {apierrors.NewTooManyRequests("x", 1), true},
		"anything else":          {errRefused, true},
	} {
		t.Run(name, func(t *testing.T) {
			if mayEnd(fmt.Errorf("list leases: %w", tc.err)) != tc.ends {
				t.Errorf("may end by itself = %v", !tc.ends)
			}
		})
	}
}

func TestAFailureHasTheAdviceOfItsCause(t *testing.T) {
	for name, tc := range map[string]struct {
		err                  error
		reader, registration string
	}{
		"no rights": {
			errForbidden, "bind leasecast-reader (config/reader) to the account of this program",
			"bind leasecast-registration (config/reader) to the account of this program",
		},
		"no right to what it follows": {
			errNotWatching, "bind leasecast-reader (config/reader) to the account of this program in each of its Options.Namespaces, " +
				"or by a ClusterRoleBinding if it follows all, or more than 16",
			"bind leasecast-reader (config/reader) to the account of this program in each of its Options.Namespaces, " +
				"or by a ClusterRoleBinding if it follows all, or more than 16",
		},
		"another kind of server": {errGone, "what answers at this address has no Leases, check the address of the API server", ""},
		"an unknown authority": {
			x509.UnknownAuthorityError{}, "this program does not trust who answers, check the address and the CA of the API server",
			"this program does not trust who answers, check the address and the CA of the API server",
		},
		"another name": {
			x509.HostnameError{Certificate: &x509.Certificate{}},
			"this program does not trust who answers, check the address and the CA of the API server",
			"this program does not trust who answers, check the address and the CA of the API server",
		},
		"nobody answers": {
			context.DeadlineExceeded, "the API server does not answer, check the way to it", "the API server does not answer, check the way to it",
		},
		"a connection breaks": {
			errHTTP2Lost, "the connection to the API server was lost, check the way to it",
			"the connection to the API server was lost, check the way to it",
		},
		"nobody listens": {
			errNetwork, "the API server cannot be reached, " + checkTheWay, "the API server cannot be reached, " + checkTheWay,
		},
		"anything else": {errRefused, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := fmt.Errorf("list leases: %w", tc.err)
			for role, want := range map[string]string{readerRole: tc.reader, registrationRole: tc.registration} {
				if got := advice(err, role); got != want {
					t.Errorf("to who needs %s: %q, want %q", role, got, want)
				}
				if got := explained(err, role); got != strings.TrimPrefix(want+": ", ": ")+err.Error() {
					t.Errorf("explained to who needs %s: %q", role, got)
				}
			}
		})
	}
}

// A term that has run out is led no more, although nobody has looked yet.
func TestWhatIsLedIsLedNow(t *testing.T) {
	clock := newHandClock()
	terms := NewTerms(clock, time.Second)
	terms.Observe(clock.leaseOf(t, "shop", "us", 7, 15*time.Second))
	for scope, want := range map[string]bool{allNamespaces: true, "shop": true, "other": false} {
		if terms.leadsIn(scope) != want {
			t.Errorf("something is led in %q = %v", scope, !want)
		}
	}
	clock.Advance(15 * time.Second)
	for _, scope := range []string{allNamespaces, "shop"} {
		if terms.leadsIn(scope) {
			t.Errorf("something is led in %q after its term", scope)
		}
	}
}
