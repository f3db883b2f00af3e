package member

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/leasecast/leasecast/api/lease"
)

const (
	howToStart    = "add it to the manager by mgr.Add, or call Start"
	missingRights = "bind the ClusterRoles of config/reader to the account of this program: leasecast-reader in each of " +
		"its Options.Namespaces, or by a ClusterRoleBinding if it follows all or more than 16, and leasecast-registration " +
		"where it registers"
)

// repeatEvery is how often a persistent problem is logged again.
const repeatEvery = time.Minute

// reporter decides what is logged: the state of each subject when it changes, and a problem again every minute.
type reporter struct {
	log   logr.Logger
	clock lease.Clock

	mu   sync.Mutex
	last map[string]report // by subject
}

// report is what was logged last of one subject.
type report struct {
	state string        // empty: no problem
	at    time.Duration // as in Reading.Boot
}

// due reports whether the state of a subject must be logged now, and returns the last one. It assumes that the caller
// logs it.
func (r *reporter) due(subject, state string, repeat bool) (before string, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, now := r.last[subject], r.clock.Now().Boot
	if state == last.state && (!repeat || now < last.at+repeatEvery) {
		return last.state, false
	}
	r.last[subject] = report{state, now}
	return last.state, true
}

// failed logs a failure of a subject, and which rights it lacks: at once, and every minute while it lasts. It returns
// both for people.
func (r *reporter) failed(subject, what string, err error, values ...any) *string {
	text := err.Error()
	if apierrors.IsForbidden(err) {
		what, text = what+": "+missingRights, missingRights+": "+text
	}
	if _, due := r.due(subject, what, true); due {
		r.log.Error(err, what, values...)
	}
	return &text
}

// works logs that a subject works again, if a failure was logged before.
func (r *reporter) works(subject, text string, values ...any) {
	if _, due := r.due(subject, "", false); due {
		r.log.Info(text, values...)
	}
}

// status returns why the Leases of the namespace are not followed, empty while they are. It is known if the last state
// of them counts nonetheless.
func (m *Member) status(namespace string) (trouble string, known bool) {
	if !m.started.Load() {
		return "the Member is not started: " + howToStart, false
	}
	if r := m.registrar; r != nil && !m.terms.releases.holds(m.clock.Now()) {
		return because("its registration in namespace "+r.namespace+" is not confirmed", textOf(&r.problem)), false
	}
	w := m.watcherOf(namespace)
	if w == nil {
		return "", true
	}
	trouble, known = textOf(&w.problem), w.known.Load()
	switch {
	case trouble != "":
		trouble = "the Leases of " + w.String() + " cannot be followed: " + trouble
	case !known:
		trouble = "the Leases of " + w.String() + " have not been listed yet"
	}
	return trouble, known
}

// textOf returns the last problem, empty if it is over.
func textOf(problem *atomic.Pointer[string]) string {
	if text := problem.Load(); text != nil {
		return *text
	}
	return ""
}

// because appends a cause to a text, if there is one.
func because(text, cause string) string {
	if cause == "" {
		return text
	}
	return text + "; " + cause
}

// logState logs who leads the namespace and what is wrong with its Lease, if either has changed.
func (m *Member) logState(namespace string) {
	s, p := m.terms.report(namespace)
	log := m.log.WithValues("namespace", namespace)
	if _, due := m.reporter.due("Lease of "+namespace, p.kind, false); due && p.kind != "" {
		log.Info(p.text)
	}
	state := fmt.Sprint(s.Leads, s.Leader, s.Epoch, s.Terms)
	if s.Leader == "" && p.kind == "" { // otherwise Why has figures that change
		state += strings.TrimSuffix(s.Why, "; "+s.Trouble) // an outage changes nothing
	}
	before, due := m.reporter.due("leader of "+namespace, state, false)
	switch {
	case !due:
	case s.Leads:
		log.Info("This cluster leads", "epoch", s.Epoch, "cluster", s.Cluster)
	case strings.HasPrefix(before, "true"):
		log.Info("This cluster does not lead any more", "epoch", s.Epoch, "leader", s.Leader, "reason", s.Why)
	default:
		log.Info("This cluster does not lead", "epoch", s.Epoch, "leader", s.Leader, "reason", s.Why)
	}
}

// logStates logs the changes that a list of Leases has brought. A namespace without a Lease is in the list of its own
// scope.
func (m *Member) logStates(scope string, listed int) {
	if scope != allNamespaces {
		m.logState(scope)
		return
	}
	if listed == 0 {
		if _, due := m.reporter.due("all Leases", "missing", false); due {
			m.log.Info("There are no Leases of a hub in this cluster, so nothing is led: no LeadershipPolicy selects any " +
				"of its namespaces, or it has no hub")
		}
	}
	m.terms.namespaces.Range(func(namespace, _ any) bool {
		m.logState(namespace.(string))
		return true
	})
}

// report returns the State of a namespace, and the problem of its Lease.
func (t *terms) report(namespace string) (State, problem) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, n := t.state(namespace), t.lookup(namespace)
	if n == nil || len(n.leases) == 0 {
		return s, problem{}
	}
	if n.problem.kind == "" && n.seen.LeadsHere() && n.arrived.late() {
		return s, problem{"late",
			fmt.Sprintf("A Lease was %s old on arrival, and lasts %s: this machine's clock is ahead of "+
				"the hub's, or the hub does not renew it", seconds(n.arrived.age), exactly(n.arrived.lasts))}
	}
	return s, n.problem
}
