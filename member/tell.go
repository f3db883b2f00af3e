package member

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/leasecast/leasecast/api/lease"
)

const (
	// unstartedAfter is how long after New a Member may wait for Start before it says that it does.
	unstartedAfter = 10 * time.Second
	// tellEvery is how often a trouble is told again that goes on.
	tellEvery = time.Minute
)

// teller tells people what a Member finds. It tells of changes, and of a trouble that goes on once a minute at most.
type teller struct {
	*Member
	own     time.Duration // the allowance for clocks that this reader has
	chosen  bool          // somebody has chosen it
	mu      sync.Mutex
	about   map[string]*about // by namespace
	allowed time.Duration     // what a Lease said last of the policy's allowance
}

func newTeller(m *Member, own time.Duration, chosen bool) *teller {
	return &teller{Member: m, own: own, chosen: chosen, about: map[string]*about{}}
}

// about is what was told of one namespace.
type about struct {
	leads   string // who leads, or why nobody does; empty: nothing yet
	epoch   int64
	trouble trouble
}

// trouble is what was told last of something that is wrong.
type trouble struct {
	what string        // empty: nothing was told yet
	at   time.Duration // when it was told, as in Reading.Boot
	on   bool          // it was told once, and has gone on since
}

// due reports whether this is to be told now, and takes it that it will be: at once, and every minute.
func (t *trouble) due(what string, now time.Duration) bool {
	if t.what == what && now < t.at+tellEvery {
		return false
	}
	t.what, t.at = what, now
	return true
}

// begins is like due, but a trouble that goes on is told once. The empty one is none.
func (t *trouble) begins(what string, now time.Duration) bool {
	if what == "" || t.on && what == t.what {
		t.on = what != ""
		return false
	}
	t.on = t.due(what, now)
	return t.on
}

// looks has people told what is new about a namespace whose Lease was seen, or seen to be gone.
func (t *teller) looks(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, l := t.terms.sight(namespace)
	a := t.about[namespace]
	if a == nil {
		a = &about{}
		t.about[namespace] = a
	}
	log := t.log.WithValues("namespace", namespace)
	if a.trouble.begins(l.what, t.clock.Now().Boot) {
		log.Info(l.doubt)
	}
	t.allows(namespace, l.skew)
	leads := s.Leader
	if leads == "" {
		leads = s.Why
	}
	switch {
	case a.leads == leads && a.epoch == s.Epoch, s.Leader == "" && l.doubt != "": // that is told
		return
	case s.Leader == "":
		log.Info("No cluster leads", "reason", s.Why)
	case s.Leader != s.Cluster: // otherwise its promotion is told, or why it does not lead
		log.Info("This cluster does not lead", "leader", s.Leader, "epoch", s.Epoch, "cluster", s.Cluster)
	}
	a.leads, a.epoch = leads, s.Epoch
}

// looksAtAll has people told of namespaces that were told of before, or that the Member was made for.
func (t *teller) looksAtAll(scope string, listed map[string]bool) {
	if scope != allNamespaces {
		t.looks(scope)
		return
	}
	t.mu.Lock()
	known := make([]string, 0, len(t.about))
	for ns := range t.about {
		if !listed[ns] {
			known = append(known, ns)
		}
	}
	t.mu.Unlock()
	for ns := range listed {
		t.looks(ns)
	}
	for _, ns := range known {
		t.looks(ns)
	}
}

// asked tells of a namespace that somebody wants to act in and that has no Lease at all.
func (t *teller) asked(namespace string) {
	if t.terms.State(namespace).Why == noLease {
		t.looks(namespace)
	}
}

// allows tells where the policy and the options of this Member differ about clocks. Called under mu.
func (t *teller) allows(namespace string, policy time.Duration) {
	if policy == 0 || policy == t.allowed {
		return
	}
	t.allowed = policy
	switch {
	case policy == t.own, policy < t.own && !t.chosen:
	case policy < t.own:
		t.log.Info("Options.MaxClockSkew is more than the policy's maxClockSkewMilliseconds: the policy's counts",
			"namespace", namespace, "option", t.own.String(), "policy", policy.String())
	default:
		t.log.Info("Options.MaxClockSkew is less than the policy's maxClockSkewMilliseconds: this reader refuses Leases "+
			"that the policy allows; set it to the policy's",
			"namespace", namespace, "option", t.own.String(), "policy", policy.String())
	}
}

// sight is what looks needs besides a State.
type sight struct {
	doubt string        // what is wrong with the Lease, in words
	what  string        // the same in a word
	skew  time.Duration // of the policy
}

func (t *Terms) sight(namespace string) (State, sight) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, l := t.state(namespace), sight{}
	if n := t.lookup(namespace); n != nil {
		l.skew = n.allowed
		switch {
		case n.doubt != "":
			l.doubt, l.what = n.doubt, fmt.Sprint("doubt ", n.doubted)
		case len(n.leases) > 0 && n.seen.LeadsHere() && n.arrived.late():
			l.what = "late"
			l.doubt = fmt.Sprintf("A Lease was %s old on arrival, and lasts %s: this machine's clock is ahead of the hub's, or the hub does not renew it",
				seconds(n.arrived.age), exactly(n.arrived.lasts))
		}
	}
	return s, l
}

// unstarted tells that nobody has called Start.
func (m *Member) unstarted() {
	if !m.started.Load() {
		m.log.Info("This Member was made " + exactly(unstartedAfter) + " ago and is not started, so nothing is led: " + howToStart)
	}
}

const howToStart = "add it to the manager by mgr.Add, or call Start"

// unheard says why there is no news of a namespace; empty if there is.
func (m *Member) unheard(namespace string) string {
	if !m.started.Load() {
		return "the Member is not started: " + howToStart
	}
	for _, w := range m.watches {
		if w.namespace == allNamespaces || w.namespace == namespace {
			return w.unlisted()
		}
	}
	return ""
}

// unlisted says that the Leases were never listed, and why; empty if they were.
func (w *watched) unlisted() string {
	select {
	case <-w.synced:
		return ""
	default:
	}
	text := "the Leases of " + w.String() + " have not been listed yet"
	if failure := w.failure.Load(); failure != nil {
		text += ": " + *failure
	}
	return text
}

// cure says what to do about a watch that has no news, by what its last request failed with; otherwise says it where
// that is unknown.
func (w *watched) cure(otherwise string) string {
	if failure := w.failure.Load(); failure != nil {
		return *failure
	}
	return otherwise
}

// failed tells that the Leases cannot be followed, at once and every minute.
func (w *watched) failed(err error) {
	text := err.Error()
	switch hint := advice(err, readerRole); {
	case hint != "":
		text = hint + ": " + text
	case errors.Is(err, context.DeadlineExceeded):
		text = "the API server does not answer, check the way to it: " + text
	}
	w.failure.Store(&text)
	kind := string(apierrors.ReasonForError(err))
	if !w.trouble.due("failed "+kind, w.now()) {
		return
	}
	what := "Cannot follow leases"
	if hint := advice(err, readerRole); hint != "" {
		what = "Cannot " + w.doing + " leases: " + hint
	}
	if w.member.terms.leadsIn(w.namespace) {
		what += "; what is led ends when its term runs out"
	} else {
		what += "; nothing is led"
	}
	w.member.log.Error(err, what, "scope", w.String())
}

// failed tells that the Member cannot register, at once and every minute.
func (r *registrar) failed(err error) {
	if !r.trouble.due("failed "+string(apierrors.ReasonForError(err)), r.member.clock.Now().Boot) {
		return
	}
	what := "Cannot register"
	if hint := advice(err, registrationRole); hint != "" {
		what += ": " + hint + " in namespace " + r.namespace
	}
	r.member.log.Error(err, what+"; nothing is led")
}

const (
	readerRole       = "leasecast-reader"
	registrationRole = "leasecast-registration"
)

// advice says what to do about an answer of the API server; empty: nothing is known.
func advice(err error, role string) string {
	switch {
	case apierrors.IsForbidden(err):
		return "bind " + role + " (config/reader) to the account of this program"
	case apierrors.IsUnauthorized(err):
		return "the API server does not accept the credentials of this program"
	}
	return ""
}

// leadsIn reports whether anything is led in the namespace, or in all.
func (t *Terms) leadsIn(namespace string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n, tm := range t.led {
		if (namespace == allNamespaces || n.name == namespace) && tm.holds() {
			return true
		}
	}
	return false
}

// saysAllowance takes in what a Lease says of the policy's allowance for clocks, whether or not it is believed.
func (n *nsState) saysAllowance(c lease.Content) {
	if c.Skew > 0 {
		n.allowed = c.Skew
	}
}
