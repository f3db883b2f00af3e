package member

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
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

// works logs that a subject works again, if a failure was logged before.
func (r *reporter) works(subject, text string, values ...any) {
	if _, due := r.due(subject, "", false); due {
		r.log.Info(text, values...)
	}
}

// leaderOf begins the subjects of logState.
const leaderOf = "leader of "

// namespaces returns the namespaces whose leader was logged.
func (r *reporter) namespaces() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for subject := range r.last {
		if namespace, found := strings.CutPrefix(subject, leaderOf); found {
			all = append(all, namespace)
		}
	}
	return all
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
		state += s.Why
	}
	before, due := m.reporter.due(leaderOf+namespace, state, false)
	switch {
	case !due:
	case s.Leads:
		log.Info("This cluster leads", "epoch", s.Epoch, "cluster", s.Cluster)
	case strings.HasPrefix(before, "true"):
		log.Info("This cluster does not lead any more", "epoch", s.Epoch, "leader", s.Leader, "reason", s.Why)
	case s.Leader != "" && s.Leader != s.Cluster:
		log.Info("This cluster does not lead", "leader", s.Leader, "epoch", s.Epoch, "cluster", s.Cluster)
	default:
		log.Info("This cluster does not lead", "reason", s.Why)
	}
}

// logStates logs the changes of the namespaces in a list. A namespace without a Lease is in the list of its own scope.
func (m *Member) logStates(scope string, items []coordinationv1.Lease) {
	if scope != allNamespaces {
		m.logState(scope)
		return
	}
	if len(items) == 0 {
		if _, due := m.reporter.due("all Leases", "missing", false); due {
			m.log.Info("There are no Leases of a hub in this cluster, so nothing is led: no LeadershipPolicy selects any " +
				"of its namespaces, or it has no hub")
		}
	}
	seen := map[string]bool{}
	for i := range items {
		seen[items[i].Namespace] = true
	}
	for _, namespace := range m.reporter.namespaces() {
		seen[namespace] = true
	}
	for namespace := range seen {
		m.logState(namespace)
	}
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
