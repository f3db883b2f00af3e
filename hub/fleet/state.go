package fleet

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	batchv1client "k8s.io/client-go/kubernetes/typed/batch/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/fleet/wake"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/skew"
)

// member is one living member. Its goroutines are run, which owns the connection, and probe.
// Everybody else reads its state, or changes it and wakes one of them.
type member struct {
	key Key
	p   *Provider

	// The clients never change. What is below their transports does.
	caches, renewals *transport.Swappable
	writer           kubernetes.Interface
	cachesConfig     *rest.Config
	informer         *http.Client
	// readers is for the watch of registrations.
	readers *http.Client
	// cronJobs reaches those of tenants.
	cronJobs batchv1client.CronJobsGetter

	// room is for answers of the member while they are read, and retry is what the informers ask through.
	room  *transport.Room
	retry *transport.Retry

	// answered fires whenever the member answers a request well.
	answered wake.Signal
	// wake and wakeProbe hold one wake-up each, for run and probe.
	wake, wakeProbe chan struct{}

	mu    sync.Mutex
	state state
	// clock is the API server's. Guarded by mu.
	clock skew.Track
}

// state is guarded by member.mu, which is never held across I/O or a call to another object.
type state struct {
	spec spec
	// leaving: the owner has nothing left in the member.
	leaving bool
	// interrupt ends the present step of run because its premises changed.
	interrupt context.CancelFunc

	// target is in use. uid is that of the cluster behind it, or behind the last target.
	target *transport.Target
	uid    string
	// refused: the member refuses the user that the hub impersonates.
	refused bool
	// ownsUID: no other member had the UID when this one took it.
	ownsUID bool
	// cluster has full caches, or is nil.
	cluster cluster.Cluster
	// contact says why there is no target or cluster. kubeconfig says why the newest kubeconfig is not in
	// use.
	contact, kubeconfig Problem
	// quarantine says until when nothing is asked of a member that has sent too much, or is nil.
	quarantine *quarantine

	// paces are those that the member is probed at, and tracks what is known under their timeouts.
	paces  []pace
	tracks health.Tracks
	// unwatched: a watch has not lasted for unwatchedAfter.
	unwatched bool
	// unheld says what the caches hold only a part of, or is empty.
	unheld string
	// clockVerdicts counts the changes of verdicts on the clock.
	clockVerdicts int
}

func newMember(p *Provider, k Key) (*member, error) {
	m := &member{
		key: k, p: p,
		caches:    transport.NewSwappable(k.Identity(), p.options.UserAgent),
		renewals:  transport.NewSwappable(k.Identity(), p.options.UserAgent),
		room:      transport.NewRoom(p.room),
		wake:      make(chan struct{}, 1),
		wakeProbe: make(chan struct{}, 1),
		state:     state{paces: []pace{{defaultInterval, defaultTimeout}}, tracks: firstTracks()},
	}
	readers := transport.NewPace()
	for _, requests := range []*transport.Swappable{m.caches, m.renewals} {
		requests.RequestSent, requests.Refused, requests.Timers = m.requestSent, m.noteRefusal, p.timers
		requests.Pace, requests.Readers, requests.ReadersSelector = transport.NewPace(), readers, v1alpha1.ReaderLabel+"=true"
		requests.Room = m.room
	}
	m.renewals.Exceeded = m.sentTooMuch
	m.caches.Held = map[string]*transport.Held{
		transport.HeldBy(transport.Namespaces, ""):                        transport.NewHeld("Namespaces", m.holds),
		transport.HeldBy(transport.Leases, v1alpha1.ManagedLabel+"=true"): transport.NewHeld("Leases of the hub", m.holds),
		transport.HeldBy(transport.Leases, m.caches.ReadersSelector):      transport.NewHeld("registrations of readers", func(error) {}), // see publish
	}
	writerConfig := m.renewals.Config(m.renewals)
	m.cachesConfig = m.caches.Config(m.caches)
	writer, err := transport.HTTPClient(writerConfig)
	if err != nil {
		return nil, err
	}
	if m.writer, err = kubernetes.NewForConfigAndClient(writerConfig, writer); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	m.retry = &transport.Retry{Next: m.caches, Answered: &m.answered, Clock: p.timers}
	if m.informer, err = transport.HTTPClient(m.caches.Config(m.retry)); err != nil {
		return nil, err
	}
	retryReaders := &transport.Retry{Next: m.caches, Answered: &m.answered, Clock: p.timers}
	if m.readers, err = transport.HTTPClient(m.caches.Config(retryReaders)); err != nil {
		return nil, err
	}
	tenantsConfig := m.caches.Config(m.caches.ForTenants())
	tenants, err := transport.HTTPClient(tenantsConfig)
	if err != nil {
		return nil, err
	}
	batch, err := batchv1client.NewForConfigAndClient(tenantsConfig, tenants)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	m.cronJobs = batch
	return m, nil
}

// setSpec sets what the hub's objects say now.
func (m *member) setSpec(s spec) {
	m.mu.Lock()
	old := m.state.spec
	changed := !s.equal(old)
	m.state.spec = s
	if s.takesPart() {
		m.state.leaving = false
	}
	if m.state.interrupt != nil && (s.kubeconfig != old.kubeconfig || s.moved != old.moved) {
		m.state.interrupt()
	}
	m.mu.Unlock()
	if changed {
		m.p.probeAnew(m)
		wake.Wake(m.wake)
		wake.Wake(m.wakeProbe) // once the pin is there, writes are probed
		m.p.changed.add(m.key)
	}
}

// gone notes that the Cluster does not exist any more. What it said last stays known. moved is the UID of a
// Cluster of this name that has moved to another hub.
func (m *member) gone(moved types.UID) {
	m.mu.Lock()
	s := m.state.spec
	m.mu.Unlock()
	s.gone, s.moved = true, s.moved || moved != "" && moved == s.uid
	m.setSpec(s)
}

// forget asks run to end, unless the member takes part.
func (m *member) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state.spec.takesPart() {
		return
	}
	m.state.leaving = true
	if m.state.interrupt != nil {
		m.state.interrupt()
	}
	wake.Wake(m.wake)
}

// get returns the present state.
func (m *member) get() state {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// change changes the state, and announces the member if what subscribers see has changed.
func (m *member) change(change func(*state)) {
	m.mu.Lock()
	before := m.state.visible()
	change(&m.state)
	changed := before != m.state.visible()
	m.mu.Unlock()
	if changed {
		m.p.changed.add(m.key)
	}
}

// visible is what subscribers see of a state, apart from the spec.
type visible struct {
	uid                 string
	ownsUID, connected  bool
	contact, kubeconfig Problem
	tracks              [maxTimeouts]visibleTrack
	failure             reason.Reason
	unwatched           bool
	unheld              string
	judged              int
}

// visibleTrack is what they see under one timeout.
type visibleTrack struct{ answering, read, write bool }

func (s *state) visible() visible {
	patient := s.tracks.MostPatient()
	v := visible{
		uid: s.uid, ownsUID: s.ownsUID, connected: s.cluster != nil,
		contact: s.contact, kubeconfig: s.kubeconfig,
		failure:   patient.Failure().Reason,
		unwatched: s.unwatched, unheld: s.unheld, judged: s.clockVerdicts,
	}
	for i := range s.tracks {
		t := &s.tracks[i].Track
		v.tracks[i] = visibleTrack{t.Answering(), t.Reached(health.Read), t.Reached(health.Write)}
	}
	return v
}

func (m *member) cluster() cluster.Cluster { return m.get().cluster }

func (m *member) observe(o health.Observation) {
	m.p.noticePause()
	m.change(func(s *state) { s.tracks = s.tracks.Observe(o) })
	if o.OK {
		m.answered.Fire()
	}
}

func (m *member) verdict(th health.Thresholds) health.Verdict {
	now := m.p.noticePause()
	m.mu.Lock()
	defer m.mu.Unlock()
	track := m.state.tracks.Of(th.Timeout)
	return track.State(now, th)
}

func (m *member) excuse(k health.Kind, from, to lease.Reading) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.tracks = m.state.tracks.Excuse(k, from, to)
}

// known is the UID of the member: the pinned one, or else the one found.
func (s *state) known() string {
	if s.spec.pin != "" {
		return s.spec.pin
	}
	return s.uid
}

// pinned reports whether the Cluster is pinned to the cluster behind the kubeconfig.
func (s *state) pinned() bool { return s.spec.pin != "" && s.spec.pin == s.uid }

// identified reports whether it is certain which cluster this is, so that it may be written to. One that moves to
// another hub is the one that was known.
func (s *state) identified() bool { return s.pinned() || s.spec.moved && s.known() != "" }

func (m *member) uidOwner() uidOwner {
	s := m.get()
	o := uidOwner{key: m.key, proved: s.spec.pinProved, created: s.spec.created}
	switch {
	case s.spec.pinProved:
		o.uid = s.spec.pin
	case s.spec.pin == "", s.spec.pin == s.uid:
		o.uid = s.uid
	}
	o.pinned = s.uid != "" && (s.pinned() || s.ownsUID)
	return o
}

// snapshot is the member as the controller sees it. owners are those of all UIDs.
func (m *member) snapshot(owners map[string]Key) Member {
	s := m.get()
	priority, priorityReason := s.spec.priority()
	return Member{
		Key:            m.key,
		UID:            s.known(),
		Pinned:         s.pinned(),
		Priority:       priority,
		PriorityReason: priorityReason,
		Connected:      s.cluster != nil,
		Problem:        m.problem(s, owners),
		Deleting:       s.spec.deleting,
		Gone:           s.spec.gone,
		Paused:         s.spec.paused,
		DeleteForMove:  s.spec.moved,
		Labels:         s.spec.labels,
		Hint:           s.spec.hint,
		live:           m,
	}
}

// problem picks the gravest.
func (m *member) problem(s state, owners map[string]Key) Problem {
	owner, owned := owners[s.known()]
	name := nameProblem(m.key)
	patient := s.tracks.MostPatient() // what one policy finds too slow is no problem for all
	failure := patient.Failure()
	switch {
	case s.spec.gone:
		return Problem{reason.Gone, "the Cluster does not exist any more"}
	case s.spec.deleting:
		return Problem{reason.Deleting, "the Cluster is being deleted"}
	case name != "":
		return Problem{reason.NameTooLong, name}
	case s.contact.Reason == reason.WrongCluster, s.contact.Reason == reason.SendsTooMuch:
		return s.contact
	case owned && owner != m.key:
		return Problem{reason.DuplicateCluster, fmt.Sprintf("the kubeconfig leads to the same cluster as that of Cluster %s", owner)}
	case s.kubeconfig.Reason != "":
		return s.kubeconfig
	case s.contact.Reason != "":
		return s.contact
	case failure.Reason != "":
		return Problem{failure.Reason, failure.Message}
	case s.cluster == nil:
		return Problem{reason.NeverReached, "not connected yet"}
	case s.unwatched:
		return Problem{reason.Unwatched, "watches there do not last, so the hub lists its Leases now and then: see what ends long requests on the way to its API server"}
	case s.unheld != "":
		return Problem{reason.TooManyObjects, s.unheld}
	}
	return Problem{}
}

// holds notes that the caches hold only a part of what is there, or all of it if err is nil.
func (m *member) holds(err error) {
	m.change(func(s *state) {
		if s.unheld = ""; err != nil {
			s.unheld = transport.Shorten(err.Error())
		}
	})
}
