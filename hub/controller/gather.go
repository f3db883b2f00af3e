package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/skew"
	"github.com/leasecast/leasecast/hub/worker"
)

// view is everything known of one namespace when it is decided on.
type view struct {
	key     types.NamespacedName // fleet and namespace
	object  *v1alpha1.NamespaceLeader
	found   *v1alpha1.NamespaceLeaderSpec // the record as it is stored; nil: it does not exist
	policy  *policy                       // the policy that owns the namespace, or nil
	losers  []*policy
	skew    time.Duration // the largest ε that any policy of the fleet has, or had: hubs have clocks of that kind
	members []memberView
	state   election.State
	// moved: the record is another hub's. edited: a client that is no hub changed it. vanished: such a client
	// deleted it. absurd: no hub can have written its content.
	moved, edited, vanished, absurd bool
	written                         bool // by this decision
	// stop is why nothing must be decided. renews: the present term is renewed all the same.
	stop   string
	renews bool
}

// memberView is what is known of one member, for one namespace.
type memberView struct {
	fleet.Member
	publisher *publish.Publisher
	unguarded error
	unfenced  error // a fence is missing that the policy asks for
	byLease   error // a fence of locks or schedules is missing: API servers admit those by the Lease
	refuses   []refusal
	takesPart bool
	namespace *corev1.Namespace // nil: it does not exist there
	isRead    bool              // false: the member's namespaces are not known
	verdict   health.Verdict
	clock     skew.Verdict
	facts     publish.SyncStatus
	initial   publish.Initial
	readers   int // registered there, and following the namespace
}

// leaseKey returns the key of the namespace's Lease in every member.
func (v *view) leaseKey() types.NamespacedName {
	name := v.state.Record.LeaseName
	if name == "" && v.policy != nil {
		name = v.policy.election.LeaseName
	}
	return types.NamespacedName{Namespace: v.key.Name, Name: name}
}

// gather collects everything that a decision rests on. Caches can only be late.
func (c *Controller) gather(ctx context.Context, key types.NamespacedName) (*view, error) {
	v := &view{key: key}
	policies, err := c.policiesOf(ctx, key.Namespace)
	if err != nil {
		return nil, fmt.Errorf("policies of %s: %w", key.Namespace, err)
	}
	fleetBounds := boundsOf(policies)
	seal, err := c.seal(ctx, key.Namespace, fleetBounds.Skew)
	if err != nil {
		return nil, err
	}
	fleetBounds = fleetBounds.Max(seal.Largest())
	v.skew, v.state.FleetDuration = fleetBounds.Skew, fleetBounds.Duration
	v.state.FleetSkew, v.state.FleetStop = fleetBounds.Skew, fleetBounds.Stop
	if err := c.look(ctx, v); err != nil {
		return nil, err
	}
	members := c.source.members(key.Namespace)
	v.members = make([]memberView, 0, len(members))
	for _, m := range members {
		mv, err := c.lookAt(ctx, m, key.Name)
		if err != nil {
			return nil, err
		}
		v.members = append(v.members, mv)
	}
	c.claim(ctx, v, policies)
	if err := c.checkMove(ctx, v); err != nil {
		return nil, err
	}
	if v.stop != "" {
		return v, nil
	}
	b := seal.Of(v.mayHaveOwned(seal, policies)...)
	v.state.LargestDuration, v.state.LargestSkew, v.state.LargestStop = b.Duration, b.Skew, b.Stop
	if v.policy != nil {
		v.state.LargestDuration = max(b.Duration, v.policy.election.Timings.Duration)
	}
	c.buildState(ctx, v)
	return v, nil
}

// lookAt returns the view of one member for one namespace.
func (c *Controller) lookAt(ctx context.Context, m fleet.Member, namespace string) (memberView, error) {
	mv := memberView{Member: m, unguarded: worker.ErrUnchecked}
	if w := c.worker(m.Key); w != nil {
		mv.publisher, mv.unguarded, mv.readers = w.Publisher(), w.Unguarded(), w.Readers(namespace)
	}
	if mv.publisher != nil {
		mv.initial = mv.publisher.Initial()
		mv.isRead = mv.initial.Read
	}
	if !m.Connected {
		mv.isRead = false
		return mv, nil
	}
	ns, err := c.source.namespace(ctx, m, namespace)
	switch {
	case err == nil:
		mv.namespace = ns
	case errors.Is(err, errDisengaged):
		mv.Connected, mv.isRead = false, false
	case !apierrors.IsNotFound(err):
		return mv, fmt.Errorf("namespace %s in cluster %s: %w", namespace, m.Key, err)
	}
	return mv, nil
}

// buildState combines what the tenure, the promises and the members show.
func (c *Controller) buildState(ctx context.Context, v *view) {
	s := &v.state
	s.Tenure.Started, s.Tenure.Inherited = c.Tenure.Started()
	now, adopted := c.now(), c.addMemory(v)
	if !lease.PlausibleEpoch(now.Wall, s.Highest) {
		s.Highest = 0 // written by a clock that was ahead, and accepted by no reader
	}
	name, fences := v.leaseKey(), c.awaitedFences(v)
	for i := range v.members {
		m := &v.members[i]
		c.addHealth(v, m, now)
		c.addFences(ctx, v, m, fences)
		if m.publisher != nil {
			m.facts = m.publisher.SyncStatus(name)
			c.addInitial(v, m, now.Wall)
			v.addStatus(m)
		}
	}
	v.addRefused(c.lostSince(v))
	c.addMove(v)
	if s.Found != nil && s.Found.Term.Epoch <= adopted {
		s.Found = nil // the record has what happened to it since
	}
	if v.absurd && hubClockInDoubt(v.members) {
		v.stop = "the record says what no hub can have written by now, and no cluster agrees with the hub's clock"
	}
	if v.policy != nil {
		s.MostUnreachable = mostUnreachable(v.members, v.policy.thresholds.UnreachableAfter)
	}
}

// addMemory adds what this tenure remembers, and returns the last epoch that it adopted from a Lease.
func (c *Controller) addMemory(v *view) (adopted int64) {
	s, known := &v.state, c.recall(v.key)
	s.GrantedHere = s.Record.Epoch != 0 && known.granted == s.Record.Epoch
	if seen := max(known.granted, s.Record.Epoch); seen > known.highest {
		known = c.namespace(v.key)
		known.highest = seen
	}
	s.Highest = known.highest // the record may have been edited or lost since
	return known.adopted
}

// addInitial adds the Leases that were found in a member at the start.
func (c *Controller) addInitial(v *view, m *memberView, now time.Time) {
	s := &v.state
	for _, cp := range m.initial.Leases {
		c.Tenure.ObserveEarlierRenewTime(cp.RenewTime)
		if cp.Namespace != v.key.Name || !lease.PlausibleEpoch(now, cp.Epoch) {
			continue
		}
		s.Highest = max(s.Highest, cp.Epoch)
		if !v.moved {
			v.addFound(m, cp, m.initial.At)
		}
	}
}

// addStatus adds the present state of a member's Lease.
func (v *view) addStatus(m *memberView) {
	s := &v.state
	leads := m.Name == s.Record.Leader
	if leads {
		s.LeaseLost = m.facts.Lost || m.facts.PoisonedEpoch >= s.Record.Epoch
		s.Released = s.Record.Revoked != 0 && m.facts.Released == s.Record.Revoked
	}
	if leads || s.Record.State != election.Leading {
		s.Highest = max(s.Highest, m.facts.PoisonedEpoch, m.facts.Newer) // the next term has to be above it
	}
	if m.facts.Problem == reason.OtherHub {
		s.OtherHub = true
	}
}

// addHealth adds the health and the clock of a member, judged by the policy. All clocks are judged at one reading.
func (c *Controller) addHealth(v *view, m *memberView, now lease.Reading) {
	if v.policy == nil {
		return
	}
	m.verdict = c.source.health(m.Member, v.policy.thresholds)
	m.clock = c.source.clock(now, m.Member, v.policy.election.Timings.Skew)
	if m.Name == v.state.Record.Leader {
		v.state.Behind = m.clock.Behind()
	}
}

// awaitedFences returns the fences that the policy asks for in the namespace. Fences that only warn are not waited
// for.
func (c *Controller) awaitedFences(v *view) []guard.Fence {
	if v.policy == nil || v.policy.unknown {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(v.policy.fencesBut(c.HubID, nil)), func(f guard.Fence) bool {
		lock, isLock := f.Lock()
		return f.Warns() || isLock && !slices.Contains(v.policy.election.Locks, lock.String())
	})
}

// addFences adds whether fences are in force in the namespace.
func (c *Controller) addFences(ctx context.Context, v *view, m *memberView, fences []guard.Fence) {
	w := c.worker(m.Key)
	for _, f := range fences {
		lock, isLock := f.Lock()
		since, err := time.Duration(0), worker.ErrUnchecked
		if w != nil {
			since, err = w.FencedSince(f, v.key.Name)
		}
		if isLock && c.mayBeHeld(ctx, m, lock.Namespace) {
			m.refuses = append(m.refuses, refusal{lock.String(), since, err})
		}
		if m.Name == v.state.Record.Leader && errors.Is(err, worker.ErrStored) {
			err = nil // after an outage of the hub, unchecked fences move no leader
		}
		m.unfenced = cmp.Or(m.unfenced, err)
		if isLock || f.Schedules() != nil {
			m.byLease = cmp.Or(m.byLease, err)
		}
	}
}

// mayBeHeld reports whether a lock of a namespace may be held in a member, from a cache. It returns false where
// that namespace does not exist, and true for a member that the hub does not reach.
func (c *Controller) mayBeHeld(ctx context.Context, m *memberView, namespace string) bool {
	if !m.isReached() || m.namespace != nil {
		return true
	}
	_, err := c.source.namespace(ctx, m.Member, namespace)
	return !apierrors.IsNotFound(err)
}

// refusal is the state of a lock's fence in a member.
type refusal struct {
	lock  string
	since time.Duration // boot reading
	err   error         // nil: the member rejects the lock where the Lease does not open it
}

// lostSince returns the boot reading since when each unreachable member is lost: the time of the first decision that
// did not reach it. Until then the member may have admitted holders of locks.
func (c *Controller) lostSince(v *view) map[string]time.Duration {
	if v.policy == nil || len(v.policy.election.Locks) == 0 {
		return nil
	}
	known, lost := c.recall(v.key).lost, map[string]time.Duration{}
	for i := range v.members {
		if m := &v.members[i]; !m.isReached() {
			lost[m.Name] = c.now().Boot
			if since, was := known[m.Name]; was {
				lost[m.Name] = since
			}
		}
	}
	if !maps.Equal(known, lost) {
		c.namespace(v.key).lost = lost
	}
	return lost
}

// addRefused adds since when every reachable member rejects a lock. A member that was lost before it was seen to
// reject counts since its loss. A member that is known to have no fence is left out. It is no reason to keep a lock
// closed everywhere else, and a condition names it.
func (v *view) addRefused(lost map[string]time.Duration) {
	refused, admitted, late := map[string]time.Duration{}, map[string]bool{}, map[string]time.Duration{}
	for i := range v.members {
		m := &v.members[i]
		since, isLost := lost[m.Name]
		if !m.takesPart {
			continue
		}
		for _, r := range m.refuses {
			switch {
			case tellsOfFence(r.err):
			case isLost && r.err != nil:
				late[r.lock] = max(late[r.lock], since)
			case isLost:
				late[r.lock] = max(late[r.lock], r.since)
			case r.err == nil:
				refused[r.lock] = max(refused[r.lock], r.since)
			default:
				admitted[r.lock] = true
			}
		}
	}
	maps.DeleteFunc(refused, func(lock string, _ time.Duration) bool { return admitted[lock] })
	for lock := range refused {
		refused[lock] = max(refused[lock], late[lock])
	}
	v.state.RefusedSince = refused
}

// isReached reports whether the hub reaches the member.
func (m *memberView) isReached() bool { return m.Connected && m.verdict.State == health.Healthy }

// tellsOfFence reports whether an error is an answer: the member does not have the fence, and will not.
func tellsOfFence(err error) bool {
	return errors.Is(err, guard.ErrForbidden) || errors.Is(err, guard.ErrUnsupported) || apierrors.IsInvalid(err)
}

// addFound adds a sealed Lease, read at a boot reading, that may be the present term.
func (v *view) addFound(m *memberView, cp lease.Content, read time.Duration) {
	s := &v.state
	if cp.LeadsHere() && cp.Cluster == m.Identity() && (s.Found == nil || cp.Epoch > s.Found.Term.Epoch) {
		s.Found = &election.FoundTerm{Cluster: m.Name, Term: cp.Term, Boot: read + cp.Duration}
	}
}

// mostUnreachable reports whether more than half of the members that were ever reached became unreachable within
// one window.
func mostUnreachable(ms []memberView, window time.Duration) bool {
	reached, newest := 0, lease.Reading{}
	for _, m := range ms {
		if !m.takesPart || m.verdict.State == health.Unknown {
			continue
		}
		reached++
		if m.verdict.State == health.Unhealthy && m.verdict.Since.Boot > newest.Boot {
			newest = m.verdict.Since
		}
	}
	lost := 0
	for _, m := range ms {
		if m.takesPart && m.verdict.State == health.Unhealthy && newest.Boot-m.verdict.Since.Boot <= window {
			lost++
		}
	}
	return 2*lost > reached
}

// sent returns what this tenure has promised for the namespace. closed means that no publisher may stamp a Lease
// for it any more.
func (c *Controller) sent(key types.NamespacedName, closed bool) election.Sent {
	p := c.promises.Get(key)
	return election.Sent{
		Until: p.Until, BootUntil: p.BootUntil, Skew: p.Skew, Stop: p.Stop, Final: closed,
		EarlierEnd: p.EarlierEnd, BootEarlierEnd: p.BootEarlierEnd,
	}
}

// stopRenewing ends all renewals of a namespace, in every member.
func (c *Controller) stopRenewing(key types.NamespacedName) {
	for _, p := range c.publishers(key.Namespace) {
		p.StopRenewing(key.Name)
	}
}
