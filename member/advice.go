package member

import (
	"errors"
	"net"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	readerRole       = "leasecast-reader"
	registrationRole = "leasecast-registration"

	// checkTheWay is the advice where no better one is known.
	checkTheWay = "check the address of the API server, its CA and the way to it"
	howToStart  = "add it to the manager by mgr.Add, or call Start"
)

// advice returns what to do about a failure; empty: no advice.
func advice(err error, role string) string {
	// The hub's admission policy refuses the registration of a reader that may not watch what it follows.
	if strings.Contains(err.Error(), "bind the ClusterRole "+readerRole) {
		role = readerRole
	}
	switch {
	case apierrors.IsForbidden(err) && role == readerRole:
		return "bind " + role + " (config/reader) to the account of this program in each of its Options.Namespaces, " +
			"or by a ClusterRoleBinding if it follows all, or more than 16"
	case apierrors.IsForbidden(err):
		return "bind " + role + " (config/reader) to the account of this program in the namespace of its registration"
	case apierrors.IsUnauthorized(err):
		return "the API server does not accept the credentials of this program"
	case errors.As(err, new(net.Error)): // no answer, no connection, or no trust
		return checkTheWay
	}
	return ""
}

// failed logs a failure of a subject, and what to do about it: at once, and every minute while it lasts. It returns
// both for people.
func (r *reporter) failed(subject, what string, err error, role string, values ...any) *string {
	text := err.Error()
	if hint := advice(err, role); hint != "" {
		what, text = what+": "+hint, hint+": "+text
	}
	if _, due := r.due(subject, what, true); due {
		r.log.Error(err, what, values...)
	}
	return &text
}

// failed records that the Leases cannot be followed, and logs it.
func (w *watcher) failed(err error) {
	subject := "watch of " + w.String()
	w.problem.Store(w.member.reporter.failed(subject, "Cannot follow leases", err, readerRole, "scope", w.String()))
}

// works records that a watch works.
func (w *watcher) works() {
	w.delay = backoff.DelayFunc()
	w.problem.Store(nil)
	w.member.reporter.works("watch of "+w.String(), "Follows leases again", "scope", w.String())
}

// failed records that the Member cannot confirm its registration, and logs it.
func (r *registrar) failed(err error) {
	const what = "Cannot register, or confirm the registration"
	r.problem.Store(r.member.reporter.failed("registration", what, err, registrationRole, "namespace", r.namespace))
}

// cure returns what to do about a watch or a registration that fails, by its last problem.
func cure(problem *string) string {
	if problem != nil {
		return *problem
	}
	return checkTheWay
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
		return "its registration in namespace " + r.namespace + " is not confirmed", stale
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
