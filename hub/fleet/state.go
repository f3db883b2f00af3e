package fleet

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/fleet/wake"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/skew"
)

// member is one living member: its clients, and one locked state. Its goroutines are a connection, which owns the
// target, and a prober. Everybody else reads its state, or changes it and wakes one of them.
type member struct {
	*shared
	key Key

	// The clients never change. What requests leads to does.
	requests *transport.Swappable
	writer   kubernetes.Interface
	// informers is for the member's caches, and readers for the watch of registrations.
	informers, readers *http.Client

	// answered fires whenever the member answers a request well.
	answered wake.Signal
	// omitsReaders: the member shows more registrations than are kept.
	omitsReaders atomic.Bool
	// lastAnswer is when the latest answer arrived that may be the member's own.
	lastAnswer atomic.Pointer[lease.Reading]
	// wake and wakeProbe hold one wake-up each, for the connection and the prober.
	wake, wakeProbe chan struct{}

	mu    sync.Mutex
	state state
	// skew measures the API server's clock. Guarded by mu.
	skew skew.Track
}

// state is guarded by member.mu, which is never held across I/O or a call to another object.
type state struct {
	spec spec
	// leaving: the owner has nothing left in the member.
	leaving bool
	// interrupt ends the present step of the connection because its premises changed.
	interrupt context.CancelFunc

	// target is in use. uid is the UID of the cluster behind it, or behind the last target.
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

	// demand is how the member is probed, and tracks are the outcomes under its timeouts.
	demand demand
	tracks health.Tracks
	// excused is how many pauses of this process the tracks do not hold against the member.
	excused int
	// unheld says of each kind why the caches hold only a part of it, or is empty.
	unheld [2]string
	// clockVerdicts counts the changes of verdicts on the clock.
	clockVerdicts int
}

func newMember(s *shared, k Key) *member {
	m := &member{
		shared: s, key: k,
		wake:      make(chan struct{}, 1),
		wakeProbe: make(chan struct{}, 1),
		state:     state{demand: defaultDemand, tracks: health.Tracks{}.Under(defaultDemand.timeouts)},
	}
	const managed = v1alpha1.ManagedLabel + "=true"
	m.requests = transport.NewSwappable(k.Identity(), transport.Options{
		Agent: s.options.UserAgent, Room: transport.NewRoom(&s.read),
		RequestSent: m.requestSent, Refused: m.noteRefusal,
		Held: map[string]*transport.Held{
			transport.HeldBy(transport.Namespaces, ""):              transport.NewHeld("Namespaces", m.holds(0)),
			transport.HeldBy(transport.Leases, managed):             transport.NewHeld("Leases of the hub", m.holds(1)),
			transport.HeldBy(transport.Leases, transport.OfReaders): transport.NewHeld("registrations", m.noteReaders),
		},
	})
	m.informers = &http.Client{Transport: transport.NewRetry(m.requests.Caches(), &m.answered, s.timers)}
	m.readers = &http.Client{Transport: transport.NewRetry(m.requests.Caches(), &m.answered, s.timers)}
	m.writer = kubernetes.NewForConfigOrDie(m.requests.Config(m.requests.Renewals())) // the config is valid
	return m
}

func (m *member) logger() logr.Logger {
	return m.log.WithValues("cluster", klog.KRef(m.key.Fleet, m.key.Name))
}

// setSpec sets what the hub's objects say now, and reports whether that is different.
func (m *member) setSpec(s spec) bool {
	m.mu.Lock()
	earlier := m.state.spec
	m.state.spec = s
	if s.takesPart() {
		m.state.leaving = false
	}
	if m.state.interrupt != nil && (s.kubeconfig != earlier.kubeconfig || s.moved != earlier.moved) {
		m.state.interrupt()
	}
	m.mu.Unlock()
	if s.equal(earlier) {
		return false
	}
	m.wakeAll() // once the pin is there, writes are probed
	m.changed.Add(m.key)
	return true
}

// gone records that the Cluster does not exist any more. What it said last is kept. moved is the UID of a
// Cluster of this name that has moved to another hub.
func (m *member) gone(moved types.UID) {
	s := m.get().spec
	if !s.gone {
		s.gone, s.goneAt = true, m.clock.Now().Boot
	}
	s.moved = s.moved || moved != "" && moved == s.uid
	m.setSpec(s)
}

// forget has the connection end, unless the member takes part.
func (m *member) forget() {
	m.change(func(s *state) {
		if s.spec.takesPart() {
			return
		}
		s.leaving = true
		if s.interrupt != nil {
			s.interrupt()
		}
	})
	wake.Wake(m.wake)
}

func (m *member) wakeAll() {
	wake.Wake(m.wake)
	wake.Wake(m.wakeProbe)
}

// get returns the present state.
func (m *member) get() state {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// change changes the state, and notifies subscribers if what they see has changed.
func (m *member) change(change func(*state)) {
	m.mu.Lock()
	before := m.state.visible()
	change(&m.state)
	changed := before != m.state.visible()
	m.mu.Unlock()
	if changed {
		m.changed.Add(m.key)
	}
}

// drop ends the use of a target, if it is in use, and says why. Nothing more is sent there, and the connection does not
// wait for requests under way.
func (m *member) drop(t *transport.Target, why Problem) {
	dropped := false
	m.change(func(s *state) {
		if dropped = s.target == t; !dropped {
			return
		}
		if s.interrupt != nil {
			s.interrupt()
		}
		s.target, s.contact = nil, why
		m.requests.Lead(nil)
	})
	if dropped && t != nil {
		t.Close()
	}
	wake.Wake(m.wake)
}

// observe records the outcome of a request.
func (m *member) observe(o health.Observation) {
	m.excusePauses()
	m.change(func(s *state) { s.tracks = s.tracks.Observe(o) })
	if o.OK {
		m.answered.Fire()
	}
}

// verdict judges the member now.
func (m *member) verdict(th health.Thresholds) health.Verdict {
	now := m.excusePauses()
	track := m.get().tracks.Of(th.Timeout)
	return track.State(now, th)
}

// excusePauses has the pauses of this process not held against the member. It returns the reading up to which there is
// none left.
func (m *member) excusePauses() lease.Reading {
	now := m.clock.Now()
	all := m.pauses.notice(now)
	m.mu.Lock()
	defer m.mu.Unlock()
	for ; m.state.excused < len(all); m.state.excused++ {
		p := all[m.state.excused]
		m.state.tracks = m.state.tracks.Excuse(health.Read, p.from, p.to).Excuse(health.Write, p.from, p.to)
	}
	return now
}

// holds returns what records why the caches hold only a part of a kind, or that they hold all if err is nil.
func (m *member) holds(kind int) func(err error) {
	return func(err error) {
		m.change(func(s *state) {
			if s.unheld[kind] = ""; err != nil {
				s.unheld[kind] = transport.Shorten(err.Error())
			}
		})
	}
}

func (m *member) noteReaders(err error) { m.omitsReaders.Store(err != nil) }

// observation is the outcome of a request that was sent at a time, with a context that bounds it and its error.
func (m *member) observation(ctx context.Context, bound time.Duration, k health.Kind, at lease.Reading,
	err error) health.Observation {
	o := health.Observation{Kind: k, At: at, Took: m.clock.Now().Boot - at.Boot, OK: err == nil}
	if err == nil {
		return o
	}
	p := asProblem(err)
	o.Reason, o.Message = p.Reason, p.Message
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		o.Silent, o.Took = true, bound
	}
	return o
}

// visible is what subscribers see of a state, apart from the spec.
type visible struct {
	uid                 string
	ownsUID, connected  bool
	contact, kubeconfig Problem
	tracks              [maxTimeouts]visibleTrack
	failure             reason.Reason
	unheld              [2]string
	clockVerdicts       int
}

// visibleTrack is what they see under one timeout.
type visibleTrack struct{ answering, read, write bool }

func (s *state) visible() visible {
	patient := s.tracks.MostPatient()
	v := visible{
		uid: s.uid, ownsUID: s.ownsUID, connected: s.cluster != nil,
		contact: s.contact, kubeconfig: s.kubeconfig,
		failure: patient.Failure().Reason,
		unheld:  s.unheld, clockVerdicts: s.clockVerdicts,
	}
	for i := range s.tracks {
		t := &s.tracks[i].Track
		v.tracks[i] = visibleTrack{t.Answering(), t.Reached(health.Read), t.Reached(health.Write)}
	}
	return v
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
