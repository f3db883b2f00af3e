package decide

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/ledger"
	"github.com/leasecast/leasecast/hub/seal"
)

// Snapshot is everything that one decision on a namespace rests on. It is made in two steps, Claim and Complete,
// because the owner's settings say how members are judged. After that only its Entry changes, by what is carried out.
type Snapshot struct {
	*ledger.Entry
	HubID   string
	Policy  *Policy // the policy that owns the namespace, or nil
	Losers  []*Policy
	Skew    time.Duration // the largest ε that any policy of the fleet has, or had: hubs have clocks of that kind
	Members []Member
	State   election.State
	// Stop is why nothing must be decided. Renews: the present term is renewed all the same.
	Stop   string
	Renews bool
}

// Fleet is what a decision has to know of the fleet and the tenure.
type Fleet struct {
	Now      lease.Reading
	Policies []*Policy
	Seal     seal.Seal
	Bounds   seal.Bounds // the largest of all policies, and of all that the seal names
	Tenure   election.Tenure
}

// LeaseKey returns the key of the namespace's Lease in every member, under a record.
func (v *Snapshot) LeaseKey(r election.Record) types.NamespacedName {
	name := r.LeaseName
	if name == "" && v.Policy != nil {
		name = v.Policy.Election.LeaseName
	}
	return types.NamespacedName{Namespace: v.Key.Name, Name: name}
}

// Complete combines what the record, the tenure, the promises and the members show. It notes in the entry's Memory what
// later decisions need.
func (v *Snapshot) Complete(f Fleet) {
	owners := v.mayHaveOwned(f.Seal, f.Policies)
	bounds, largest := f.Bounds, f.Seal.Of(owners...)
	s := &v.State
	s.Record, s.Tenure = v.Record, f.Tenure
	// No Lease with a larger D opens a lock.
	s.FleetDuration, s.FleetSkew, s.FleetStop = min(bounds.Duration, lease.MaxUnattended), bounds.Skew, bounds.Stop
	s.LargestDuration, s.LargestSkew, s.LargestStop = largest.Duration, largest.Skew, largest.Stop
	if v.Policy != nil {
		s.Record.Rebalanced = v.rebalanced(f.Now.Wall)
		s.LargestDuration = max(s.LargestDuration, v.Policy.Election.Timings.Duration)
		s.MostUnreachable = MostUnreachable(v.Members, v.Policy.Thresholds.UnreachableAfter, f.Tenure.Started)
	}
	v.Highest = max(v.Highest, v.Granted, s.Record.Epoch)
	s.Highest = v.Highest // the record may have been lost since
	if !lease.PlausibleEpoch(f.Now.Wall, s.Highest) {
		s.Highest = 0 // written by a clock that was ahead, and accepted by no reader
	}
	s.LeaderUnread = s.Record.Leader != ""
	if i := slices.IndexFunc(v.Members, func(m Member) bool { return m.Name == s.Record.Leader }); i >= 0 {
		s.Behind, s.LeaderUnread = v.Members[i].ClockVerdict.Behind(), !v.Members[i].IsRead
	}
	for i := range v.Members {
		m := &v.Members[i]
		if m.Publisher != nil {
			v.addInitial(m, f.Now.Wall)
			v.addStatus(m)
		}
	}
	v.addRefused(f.Now.Boot)
	v.addOtherHub(f.Now)
	if s.Found != nil && s.Found.Term.Epoch <= v.Adopted {
		s.Found = nil // the record has what happened to it since
	}
}

// rebalanced returns the instant up to which rebalances have been counted. Those from before the policy owned the
// namespace move nothing.
func (v *Snapshot) rebalanced(now time.Time) time.Time {
	at, counted := v.Policy.Election.RebalanceAt, v.Record.Rebalanced
	if v.Found != nil && v.Found.Policy != v.Policy.Object.Name && at.After(counted) && !at.After(now) {
		return at
	}
	return counted
}

// mayHaveOwned names the policies under which Leases of the namespace may have been sent. If the record exists,
// these are the recorded policy and the present one. If it is lost, they are all policies that select the
// namespace, and all deleted ones that the seal still names.
func (v *Snapshot) mayHaveOwned(s seal.Seal, policies []*Policy) (names []string) {
	if v.Policy != nil {
		names = append(names, v.Policy.Object.Name)
	}
	if v.Found != nil && !v.Record.Lost() {
		return append(names, v.Found.Policy)
	}
	for _, p := range v.Losers {
		names = append(names, p.Object.Name)
	}
	for name := range s.Policies {
		if !slices.ContainsFunc(policies, func(p *Policy) bool { return p.Object.Name == name }) {
			names = append(names, name)
		}
	}
	return names
}

// addInitial adds the Leases that were found in a member at the start.
func (v *Snapshot) addInitial(m *Member, now time.Time) {
	s := &v.State
	for _, cp := range m.Initial.Leases {
		if cp.Namespace != v.Key.Name || !lease.PlausibleEpoch(now, cp.Epoch) {
			continue
		}
		s.Highest = max(s.Highest, cp.Epoch)
		// A restored record, policy and seal may have smaller bounds. Of its own term, the leader's Lease counts.
		if cp.Epoch > s.Record.Epoch || cp.Epoch == s.Record.Epoch && (s.LeaderUnread || cp.LeadsHere()) {
			s.LargestDuration, s.LargestSkew = max(s.LargestDuration, cp.Duration), max(s.LargestSkew, cp.Skew)
		}
		if !v.Moved {
			v.addFound(m, cp, m.Initial.At)
		}
	}
}

// addStatus adds the present state of a member's Lease.
func (v *Snapshot) addStatus(m *Member) {
	s := &v.State
	leads := m.Name == s.Record.Leader
	if leads {
		s.LeaseLost = m.Sync.Lost || m.Sync.PoisonedEpoch >= s.Record.Epoch
		s.Released = s.Record.Revoked != 0 && m.Sync.Released == s.Record.Revoked
	}
	if leads || s.Record.State != election.Leading {
		s.Highest = max(s.Highest, m.Sync.PoisonedEpoch, m.Sync.Newer) // the next term has to be above it
	}
	if m.Sync.Problem == reason.OtherHub {
		s.OtherHub = true
	}
}

// lostSince returns the boot reading since when each unreachable member is lost: the time of the first decision that
// did not reach it. Until then the member may have admitted holders of locks.
func (v *Snapshot) lostSince(now time.Duration) map[string]time.Duration {
	if v.Policy == nil || len(v.Policy.Election.Locks) == 0 {
		return nil
	}
	lost := map[string]time.Duration{}
	for i := range v.Members {
		if m := &v.Members[i]; !m.IsReached() {
			lost[m.Name] = now
			if since, was := v.Lost[m.Name]; was {
				lost[m.Name] = since
			}
		}
	}
	v.Lost = lost
	return lost
}

// addRefused adds since when every reachable member rejects a lock. A member that was lost before it was seen to
// reject counts since its loss. A member that is known to have no fence is left out. It is no reason to keep a lock
// closed everywhere else, and a condition names it.
func (v *Snapshot) addRefused(now time.Duration) {
	lost := v.lostSince(now)
	refused, admitted, late := map[string]time.Duration{}, map[string]bool{}, map[string]time.Duration{}
	for i := range v.Members {
		m := &v.Members[i]
		since, isLost := lost[m.Name]
		if !m.TakesPart {
			continue
		}
		for _, r := range m.Refusals {
			switch {
			case lacksFence(r.Err):
			case isLost && r.Err != nil:
				late[r.Lock] = max(late[r.Lock], since)
			case isLost:
				late[r.Lock] = max(late[r.Lock], r.Since)
			case r.Err == nil:
				refused[r.Lock] = max(refused[r.Lock], r.Since)
			default:
				admitted[r.Lock] = true
			}
		}
	}
	maps.DeleteFunc(refused, func(lock string, _ time.Duration) bool { return admitted[lock] })
	for lock := range refused {
		refused[lock] = max(refused[lock], late[lock])
	}
	v.State.RefusedSince = refused
}

// addFound adds a sealed Lease, read at a boot reading, that may be the present term.
func (v *Snapshot) addFound(m *Member, cp lease.Content, read time.Duration) {
	s := &v.State
	if cp.LeadsHere() && cp.Cluster == m.Identity() && (s.Found == nil || cp.Epoch > s.Found.Term.Epoch) {
		s.Found = &election.FoundTerm{Cluster: m.Name, Term: cp.Term, Boot: read + cp.Duration}
	}
}

// Managed reports whether the namespace has a record that is not retired, or had a record until now.
func (v *Snapshot) Managed() bool {
	return v.Found == nil && v.Highest > 0 || v.Found != nil && v.Record.State != "" && v.Record.State != election.Retired
}

// addOtherHub adds what is known of other hubs. One is the hub that a namespace came from. Another may lead it now, by
// Leases of any name.
//
// The former may have renewed until now, unless it has relinquished the Leases, or this hub has seen all of them.
// The latter may renew as long as Leases have its mark: a watch shows renewals late. What it promised counts for D
// and ε after that.
func (v *Snapshot) addOtherHub(at lease.Reading) {
	now, s := at.Wall, &v.State
	s.Moved = v.Moved
	other := seal.Bounds{}
	for i := range v.Members {
		m := &v.Members[i]
		for _, cp := range m.Leases {
			switch {
			case !cp.Known:
			case cp.Hub != "" && cp.Hub != v.HubID:
				// Two hubs whose policies name their Leases differently do not affect each other there.
				s.OtherHub = s.OtherHub || v.Moved || cp.LeadsHere() && cp.Live(now.Add(-s.LargestSkew-s.LargestStop))
				other = other.Max(seal.Bounds{Duration: min(cp.Duration, lease.MaxDuration), Skew: min(cp.Skew, lease.MaxSkew)})
			case cp.Sealed && v.Moved && lease.PlausibleEpoch(now, cp.Epoch):
				s.Highest = max(s.Highest, cp.Epoch)
				v.addFound(m, cp.Content, at.Boot)
			}
		}
	}
	v.inherit(v.Moved || s.OtherHub && (v.Policy != nil || v.Found != nil), now, other)
}

// inherit adds what another hub can have promised, and records it while that hub is seen. The other hub may have
// renewed until the first look that does not find it any more.
func (v *Snapshot) inherit(seen bool, now time.Time, bounds seal.Bounds) {
	s := &v.State
	if seen || v.OtherSeen {
		v.OtherHub, v.OtherSeen, v.OtherBounds = now, seen, v.OtherBounds.Max(bounds)
	}
	if v.OtherHub.After(s.Tenure.Inherited) {
		s.Tenure.Inherited = v.OtherHub
	}
	s.LargestDuration = max(s.LargestDuration, v.OtherBounds.Duration)
	s.LargestSkew = max(s.LargestSkew, v.OtherBounds.Skew)
}

// LeasesAreOurs reports whether the leader's Lease is this hub's or, where nobody leads, all Leases are.
func (v *Snapshot) LeasesAreOurs(r election.Record) bool {
	switch {
	case r.State == election.Leading:
		return slices.ContainsFunc(v.Members, func(m Member) bool {
			return m.Name == r.Leader && m.Sync.Marked && m.Sync.InPlace
		})
	case r.State != election.Vacant || r.Reason != reason.Moved:
		return false
	}
	return !slices.ContainsFunc(v.Members, func(m Member) bool { return m.TakesPart && !m.isOurs(r) })
}

// isOurs reports whether nothing in a member is, or may be, another hub's.
func (m *Member) isOurs(r election.Record) bool {
	switch {
	case !m.IsRead || m.Publisher == nil:
		return false
	case m.Namespace == nil || m.Namespace.Status.Phase == corev1.NamespaceTerminating:
		return true
	case r.Epoch == 0:
		return len(m.Leases) == 0
	}
	return m.Sync.Marked && m.Sync.InPlace
}
