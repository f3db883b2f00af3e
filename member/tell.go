package member

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

const (
	// unstartedAfter is how long after New a Member may wait for Start before it logs that it is not started.
	unstartedAfter = 10 * time.Second
	// tellEvery is how often a persistent problem is logged again.
	tellEvery = time.Minute
)

// teller logs what a Member finds. It logs changes, and a persistent problem once a minute at most.
type teller struct {
	*Member
	own    time.Duration // this reader's own clock skew
	chosen bool          // the option was set
	capped sync.Once     // logs once that no write was seen
	mu     sync.Mutex
	about  map[string]*about // by namespace
	unwell trouble           // Healthz fails
}

func newTeller(m *Member, own time.Duration, chosen bool) *teller {
	return &teller{Member: m, own: own, chosen: chosen, about: map[string]*about{}}
}

// about is what was logged of one namespace.
type about struct {
	leads   string // the leader, or why no cluster leads; empty: nothing was logged yet
	epoch   int64
	trouble trouble
	clocks  trouble // the policy and this Member allow different clock skews
}

// trouble is a problem and the record of its logging.
type trouble struct {
	what  string        // what goes on; empty: no problem
	told  bool          // it was logged
	at    time.Duration // when it was last logged, as in Reading.Boot
	since time.Duration // start of the minute that times counts in, as in Reading.Boot
	times int           // it was logged in that minute
}

// mostTellings bounds how often within a minute a problem is logged that comes and goes, or changes.
const mostTellings = 5

// begins reports whether a new or changed problem must be logged. It assumes that the caller logs it. An empty problem
// is never logged.
func (t *trouble) begins(what string, now time.Duration) bool {
	if what != t.what {
		t.what, t.told = what, false
	}
	return what != "" && !t.told && t.tell(now)
}

// over records that the problem has ended.
func (t *trouble) over() { t.what, t.told = "", false }

// due is like begins, but also reports true every minute while the problem lasts.
func (t *trouble) due(what string, now time.Duration) bool {
	if t.begins(what, now) {
		return true
	}
	return now >= t.at+tellEvery && t.tell(now)
}

// known reports whether this problem was already logged.
func (t *trouble) known(what string) bool { return t.told && t.what == what }

func (t *trouble) tell(now time.Duration) bool {
	if now >= t.since+tellEvery {
		t.since, t.times = now, 0
	}
	if t.times == mostTellings {
		return false
	}
	t.told, t.at, t.times = true, now, t.times+1
	return true
}

// looks logs what has changed in a namespace whose Lease was seen, or seen to be gone. If that ended a term, the end is
// logged first.
func (t *teller) looks(namespace string) {
	t.terms.write()
	t.mu.Lock()
	defer t.mu.Unlock()
	s, l := t.terms.details(namespace)
	a := t.about[namespace]
	if a == nil {
		a = &about{}
		t.about[namespace] = a
	}
	log := t.log.WithValues("namespace", namespace)
	now := t.clock.Now().Boot
	if a.trouble.begins(l.what, now) {
		log.Info(l.doubt)
	}
	if what, text := t.differ(l); l.seen && a.clocks.begins(what, now) {
		log.Info(text, "allowed", t.own.String(), "policy", l.policy())
	}
	leads := s.Leader
	if leads == "" {
		leads = s.Why
	}
	switch {
	case a.leads == leads && a.epoch == s.Epoch, s.Leader == "" && l.doubt != "": // already logged
		return
	case s.Leader == "" && l.seen:
		log.Info("No cluster leads", "reason", s.Why)
	case s.Leader == "": // another cluster may lead where there is no Lease
		log.Info("This cluster does not lead", "reason", s.Why)
	case s.Leader != s.Cluster: // otherwise its promotion is logged, or why it does not lead
		log.Info("This cluster does not lead", "leader", s.Leader, "epoch", s.Epoch, "cluster", s.Cluster)
	}
	a.leads, a.epoch = leads, s.Epoch
}

// looksAtAll logs the changes of the listed namespaces and of those in about. If scope is one namespace, it covers this
// one only.
func (t *teller) looksAtAll(scope string, listed map[string]struct{}) {
	if scope != allNamespaces {
		t.looks(scope)
		return
	}
	t.mu.Lock()
	for ns := range t.about {
		listed[ns] = struct{}{}
	}
	t.mu.Unlock()
	for ns := range listed {
		t.looks(ns)
	}
}

// ended logs once, at the end of a term, that CapWrites has seen no write of its work.
func (t *teller) ended() {
	if t.terms.uncapped() {
		t.capped.Do(func() {
			t.log.Info("A term with work has ended, and CapWrites has seen no write of this program. If it writes to Kubernetes, a term is " +
				"released without waiting for that: wrap the configuration of the clients that write, and hand the contexts of their work on")
		})
	}
}

// health logs when Healthz begins to fail, while it fails, and when it succeeds again.
func (t *teller) health(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	failed := t.unwell.told
	if err != nil {
		if t.unwell.due("fails", t.clock.Now().Boot) {
			t.log.Info("Healthz fails", "reason", err.Error())
		}
		return
	}
	if t.unwell.over(); failed {
		t.log.Info("Healthz succeeds again")
	}
}

// wants logs that a namespace in which work was requested has no Lease: now, or when the Leases are listed.
func (t *teller) wants(namespace string) {
	if namespace == "" {
		return
	}
	t.mu.Lock()
	if t.about[namespace] == nil {
		t.about[namespace] = &about{}
	}
	t.mu.Unlock()
	if t.terms.State(namespace).Why == noLease {
		t.looks(namespace)
	}
}

// differ returns how the policy's clock skew differs from this Member's, as a key and as a text. Both are empty if they
// do not differ.
func (t *teller) differ(l details) (what, text string) {
	switch {
	case l.unsaid != "":
		what, text = l.unsaid, "A Lease does not say how far clocks may differ by the policy, so this reader's own allowance counts: "+
			"its hub is an older one, or somebody has edited its annotation "+v1alpha1.MaxClockSkewAnnotation
	case l.allowed < t.own && t.chosen:
		what, text = l.allowed.String(), "Options.MaxClockSkew is more than the policy's maxClockSkewMilliseconds: the policy's counts"
	case l.allowed > t.own && t.chosen:
		what, text = l.allowed.String(), "Options.MaxClockSkew is less than the policy's maxClockSkewMilliseconds: this reader refuses Leases "+
			"that the policy allows; set it to the policy's"
	case l.allowed > t.own:
		what, text = l.allowed.String(), "The policy's maxClockSkewMilliseconds is more than a reader allows by default: this one refuses Leases "+
			"that the policy allows; set Options.MaxClockSkew to the policy's"
	}
	return what, text
}

// details are what looks needs of a namespace besides its State.
type details struct {
	doubt   string        // what is wrong with the Lease
	what    string        // the same as a key
	seen    bool          // there is a Lease
	allowed time.Duration // by the policy, as in the Lease
	unsaid  string        // what the Lease has instead; empty: it has a value
}

// policy returns what the Lease has as the policy's clock skew.
func (l details) policy() string {
	if l.unsaid != "" {
		return l.unsaid
	}
	return l.allowed.String()
}

func (t *terms) details(namespace string) (State, details) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, l := t.state(namespace), details{}
	if n := t.lookup(namespace); n != nil && len(n.leases) > 0 {
		l.seen, l.allowed, l.unsaid = true, n.allowed, n.unsaid
		switch {
		case n.doubted.text != "":
			l.doubt, l.what = n.doubted.text, n.doubted.kind
		case n.seen.LeadsHere() && n.arrived.late():
			l.what = "late"
			l.doubt = fmt.Sprintf("A Lease was %s old on arrival, and lasts %s: this machine's clock is ahead of the hub's, or the hub does not renew it",
				seconds(n.arrived.age), exactly(n.arrived.lasts))
		case n.seen.LeadsHere() && n.term.Load() == nil && t.silent(n.arrived) && t.unrenewed(n, n.arrived):
			l.what, l.doubt = "silent", "No cluster follows as the leader: "+t.silence(n, n.arrived)
		}
	}
	return s, l
}

// unstarted logs that Start was not called.
func (m *Member) unstarted() {
	if !m.started.Load() {
		m.log.Info("This Member was made " + exactly(unstartedAfter) + " ago and is not started, so nothing is led: " + howToStart)
	}
}

const howToStart = "add it to the manager by mgr.Add, or call Start"

// news returns why the namespace's state is unknown, and why its watch is stale. Both are empty while the watch works.
func (m *Member) news(namespace string) (unknown, trouble string) {
	for _, w := range m.watches {
		if w.namespace != allNamespaces && w.namespace != namespace {
			continue
		}
		if failure := w.failure.Load(); failure != nil {
			trouble = *failure
		}
		switch {
		case !m.started.Load():
			return "the Member is not started: " + howToStart, ""
		case !m.terms.registered(): // never unregistered without a registration
			if failure := m.registrar.failure.Load(); failure != nil {
				trouble = *failure
			}
			return m.registrar.unconfirmed(), trouble
		case !w.known.Load():
			return "the Leases of " + w.String() + " have not been listed yet", trouble
		}
	}
	return "", trouble
}

// unknown returns why the state of a watch's namespaces is unknown.
func (m *Member) unknown(w *watched) string {
	unknown, trouble := m.news(w.namespace)
	if trouble != "" {
		return unknown + ": " + trouble
	}
	return unknown
}

// cure returns what to do about a failing watch, by the failure of its last request.
func (w *watched) cure() string {
	if failure := w.failure.Load(); failure != nil {
		return *failure
	}
	return checkTheWay
}

// advice returns what to do about a failure; empty: no advice.
func (w *watched) advice(err error) string {
	hint := advice(err, readerRole)
	if w.namespace == allNamespaces && apierrors.IsForbidden(err) {
		hint += " by a ClusterRoleBinding, or name Options.Namespaces"
	}
	return hint
}

// failed records that the Leases cannot be followed, and has outages log it.
func (w *watched) failed(err error) {
	text, what := err.Error(), "Cannot follow leases"
	if hint := w.advice(err); hint != "" {
		text = hint + ": " + text
		what = "Cannot " + w.doing + " leases: " + hint
	}
	w.failure.Store(&text)
	w.member.outages.fails(w, what, err)
}

// failed records that the Member cannot register, or cannot confirm, and logs it at once and every minute.
func (r *registrar) failed(what string, err error) {
	text := explained(err, registrationRole)
	if apierrors.IsForbidden(err) && !mustWatch(err) {
		text += " (in namespace " + r.namespace + ")"
	}
	r.failure.Store(&text)
	trouble := what + string(apierrors.ReasonForError(err))
	again := r.trouble.known(trouble)
	if !r.trouble.due(trouble, r.member.clock.Now().Boot) {
		return
	}
	if hint := advice(err, registrationRole); hint != "" {
		what += ": " + hint
		if !mustWatch(err) {
			what += " in namespace " + r.namespace
		}
	}
	if r.member.terms.leadsIn(allNamespaces) {
		what += "; what is led ends when its registration runs out"
	} else {
		what += "; nothing is led"
	}
	r.member.complain(err, again, what)
}

// complain logs a failure. One that may end by itself is logged as an error only when it is repeated: a restart of the
// API server is no error.
func (m *Member) complain(err error, again bool, text string, values ...any) {
	if again || !mayEnd(err) {
		m.log.Error(err, text, values...)
		return
	}
	m.log.Info(text, append(values, "reason", err.Error())...)
}

// mayEnd reports whether a failure may end without intervention.
func mayEnd(err error) bool {
	var (
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
	)
	return !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) && !apierrors.IsNotFound(err) &&
		!errors.As(err, &authority) && !errors.As(err, &hostname)
}

const (
	readerRole       = "leasecast-reader"
	registrationRole = "leasecast-registration"
)

// advice returns what to do about a failure; empty: no advice.
func advice(err error, role string) string {
	var (
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
		network   net.Error
	)
	switch {
	case mustWatch(err):
		return "bind " + readerRole + " (config/reader) to the account of this program in each of its Options.Namespaces, " +
			"or by a ClusterRoleBinding if it follows all, or more than 16"
	case apierrors.IsForbidden(err):
		return "bind " + role + " (config/reader) to the account of this program"
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

// mustWatch reports whether the hub's admission policy refused a registration, because its writer may not watch the
// Leases of the namespaces it follows.
func mustWatch(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "bind the ClusterRole "+readerRole)
}

// explained returns the text of an error, with what to do about it.
func explained(err error, role string) string {
	if hint := advice(err, role); hint != "" {
		return hint + ": " + err.Error()
	}
	return err.Error()
}

// leadsIn reports whether this cluster leads the namespace, or any namespace.
func (t *terms) leadsIn(namespace string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n, tm := range t.led {
		if (namespace == allNamespaces || n.name == namespace) && tm.holds() {
			return true
		}
	}
	return false
}
