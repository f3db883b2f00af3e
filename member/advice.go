package member

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

const (
	readerRole       = "leasecast-reader"
	registrationRole = "leasecast-registration"

	// checkTheWay is the advice where no better one is known.
	checkTheWay = "check the address of the API server and the way to it"
	howToStart  = "add it to the manager by mgr.Add, or call Start"
)

// advice returns what to do about a failure; empty: no advice.
func advice(err error, role string) string {
	var (
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
		network   net.Error
	)
	switch {
	// The hub's admission policy refuses the registration of a reader that may not watch what it follows.
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "bind the ClusterRole "+readerRole):
		role = readerRole
		fallthrough
	case apierrors.IsForbidden(err) && role == readerRole:
		return "bind " + role + " (config/reader) to the account of this program in each of its Options.Namespaces, " +
			"or by a ClusterRoleBinding if it follows all, or more than 16"
	case apierrors.IsForbidden(err):
		return "bind " + role + " (config/reader) to the account of this program in the namespace of its registration"
	case apierrors.IsUnauthorized(err):
		return "the API server does not accept the credentials of this program"
	case apierrors.IsNotFound(err) && role == readerRole:
		return "what answers at this address has no Leases, check the address of the API server"
	case errors.As(err, &authority), errors.As(err, &hostname):
		return "this program does not trust who answers, check the address and the CA of the API server"
	case errors.Is(err, context.DeadlineExceeded):
		return "the API server does not answer, check the way to it"
	case utilnet.IsHTTP2ConnectionLost(err):
		return "the connection to the API server was lost, check the way to it"
	case errors.As(err, &network):
		return "the API server cannot be reached, " + checkTheWay
	}
	return ""
}

// failed records that the Leases cannot be followed, and logs it.
func (w *watcher) failed(err error) {
	what, text := "Cannot follow leases", err.Error()
	if hint := advice(err, readerRole); hint != "" {
		what, text = what+": "+hint, hint+": "+text
	}
	w.problem.Store(&text)
	w.member.reporter.failed("watch of "+w.String(), err, what, "scope", w.String())
}

// works records that a watch works.
func (w *watcher) works() {
	w.delay = backoff.DelayFunc()
	w.problem.Store(nil)
	w.member.reporter.works("watch of "+w.String(), "Follows leases again", "scope", w.String())
}

// cure returns what to do about a failing watch, by the failure of its last request.
func (w *watcher) cure() string {
	if p := w.problem.Load(); p != nil {
		return *p
	}
	return checkTheWay
}

// failed records that the Member cannot confirm its registration, and logs it.
func (r *registrar) failed(err error) {
	what, text := "Cannot register, or confirm the registration", err.Error()
	if hint := advice(err, registrationRole); hint != "" {
		what, text = what+": "+hint, hint+": "+text
	}
	r.problem.Store(&text)
	r.member.reporter.failed("registration", err, what, "namespace", r.namespace)
}

// status returns why the namespace's state is unknown, and why its watch is stale. Both are empty while the watch
// works.
func (m *Member) status(namespace string) (unknown, stale string) {
	if !m.started.Load() {
		return "the Member is not started: " + howToStart, ""
	}
	if r := m.registrar; r != nil && !m.terms.releases.holds(m.clock.Now()) {
		if p := r.problem.Load(); p != nil {
			stale = *p
		}
		if r.made.Load() {
			return "its registration in namespace " + r.namespace + " was not confirmed in time", stale
		}
		return "its registration in namespace " + r.namespace + " has not been made yet", stale
	}
	for _, w := range m.watchers {
		if w.namespace != allNamespaces && w.namespace != namespace {
			continue
		}
		if p := w.problem.Load(); p != nil {
			stale = *p
		}
		if !w.known.Load() {
			unknown = "the Leases of " + w.String() + " have not been listed yet"
		}
	}
	return unknown, stale
}
