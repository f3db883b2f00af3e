package decide

import (
	"cmp"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/skew"
	"github.com/leasecast/leasecast/hub/worker"
)

// Member is what is known of one member, for one namespace.
type Member struct {
	fleet.Member
	Publisher       *publish.Publisher // writes there; a decision checks only whether there is one
	Unguarded       error
	Unfenced        error // a fence is missing that the policy asks for
	UnfencedByLease error // a fence of locks or schedules is missing: API servers admit those by the Lease
	Refusals        []Refusal
	TakesPart       bool
	Namespace       *corev1.Namespace // nil: it does not exist there
	IsRead          bool              // false: the member's namespaces are not known
	Verdict         health.Verdict
	ClockVerdict    skew.Verdict
	Answered        lease.Reading      // when its latest answer arrived
	Sync            publish.SyncStatus // of the namespace's Lease
	Leases          []publish.Lease    // in the namespace there
	Initial         publish.Initial
	Readers         int // registered there, and following the namespace
	Required        worker.Required
}

// required is the state of what the policy requires in the member. What is known to be unhealthy counts, whatever else
// is not known.
func (m *Member) required() election.Required {
	switch {
	case m.Required.Unhealthy != "":
		return election.RequiredUnhealthy
	case m.Required.Err != nil:
		return election.RequiredUnknown
	default:
		return election.RequiredHealthy
	}
}

// Refusal is the state of a lock's fence in a member.
type Refusal struct {
	Lock  string
	Since time.Duration // boot reading
	Err   error         // nil: the member rejects the lock where the Lease does not open it
}

// IsReached reports whether the hub reaches the member.
func (m *Member) IsReached() bool { return m.Connected && m.Verdict.State == health.Healthy }

// AllPaused reports whether there are members, and the Clusters of all are paused.
func AllPaused(ms []Member) bool {
	return len(ms) > 0 && !slices.ContainsFunc(ms, func(m Member) bool { return !m.Paused })
}

// lacksFence reports whether an error is final: the member does not have the fence, and will not.
func lacksFence(err error) bool {
	return errors.Is(err, guard.ErrForbidden) || errors.Is(err, guard.ErrUnsupported) || apierrors.IsInvalid(err)
}

// Lost reports whether the member was reached once, by any tenure, and cannot be reached now.
func (m *Member) Lost() bool {
	return m.Verdict.State == health.Unhealthy || m.Verdict.State == health.Unknown && m.UID != ""
}

// MostUnreachable reports whether more than half of the members that were ever reached became unreachable within
// one window. A member that this tenure has not reached yet counts as lost since its start: a hub that is cut off
// does not forget it by a restart.
func MostUnreachable(ms []Member, window time.Duration, tenure lease.Reading) bool {
	reached := 0
	var since []time.Duration
	for _, m := range ms {
		lost := m.Lost()
		if !m.TakesPart || !lost && m.Verdict.State == health.Unknown {
			continue
		}
		reached++
		if lost {
			since = append(since, cmp.Or(m.Verdict.Since.Boot, tenure.Boot))
		}
	}
	slices.Sort(since)
	for most := reached / 2; most < len(since); since = since[1:] {
		if since[most]-since[0] <= window {
			return true
		}
	}
	return false
}

// HubClockInDoubt reports whether a member's clock is off, and no member's clock is proved to agree with the hub's.
// Then the hub's own clock may be the one that is off. The members keep what they lead, but a hub with such a clock
// promises nothing new.
func HubClockInDoubt(ms []Member) bool {
	has := func(state skew.State) bool {
		return slices.ContainsFunc(ms, func(m Member) bool { return m.TakesPart && m.ClockVerdict.State == state })
	}
	return has(skew.Beyond) && !has(skew.Within)
}
