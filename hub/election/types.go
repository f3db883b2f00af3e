package election

import (
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
)

// RecordState is where a namespace is between one leader and the next. The values are the record's.
type RecordState string

// The states; see the package comment for the ways between them.
const (
	Vacant  RecordState = "Vacant"
	Leading RecordState = "Leading"
	Ending  RecordState = "Ending"
	Retired RecordState = "Retired"
)

// Policy is the part of a LeadershipPolicy that decisions need.
type Policy struct {
	Timings   lease.Timings
	LeaseName string
	// FailOverWhenMostUnreachable lets a namespace fail over although most clusters became unreachable at once,
	// when the hub itself may be cut off.
	FailOverWhenMostUnreachable bool
	// Acknowledged: every reader registers, so a term may also end when all readers have released it.
	Acknowledged bool
	// StopTime is how long holders of fenced locks go on after the deadline of the Lease by which API servers admit
	// them. It is zero where no locks are fenced.
	StopTime time.Duration
	// Locks are the fenced locks, as namespace/name, in ascending order.
	Locks []string
	// ManualFailover: a leader that the hub cannot reach is replaced only when an operator orders a move.
	ManualFailover bool
	// Failback is how long a better cluster must have been able to lead before it is given the lead back, or zero for
	// never.
	Failback time.Duration
	// RebalanceAt is the instant from which all priorities count as edited, once, or zero.
	RebalanceAt time.Time
	// UnhealthyAfter is after what time something that is required and not healthy has failed, and after what time of
	// health a cluster takes the lead from one where something has.
	UnhealthyAfter time.Duration
	// InitialDelay is how long the first leader of a namespace waits for better clusters that are not ready yet. It
	// counts from when the namespace was first seen in any cluster.
	InitialDelay time.Duration
}

// Record is the persisted state of a namespace: the spec of its NamespaceLeader. The zero Record is a lost one.
type Record struct {
	Leader string
	Epoch  int64
	// Revoked is the epoch of the leader if its term was revoked, or else zero. Epoch is then the epoch of the
	// revocation, in which no cluster leads.
	Revoked int64
	State   RecordState
	Reason  reason.Reason
	// Since is when leader or state last changed. AcquireTime is when the term began.
	Since, AcquireTime time.Time
	// Duration, Skew and Stop are the largest D, ε and stop time under which Leases of this term may be sent.
	Duration, Skew, Stop time.Duration
	// OpenLocks are the fenced locks that the leader's Lease lists: they may be held where it leads.
	OpenLocks []string
	// UnfencedLeader is a cluster that led before while its fence was missing: programs there may still act.
	UnfencedLeader string
	LeaseName      string
	// NotBefore is for people to read. Decisions compute the expiry themselves, and do not trust another tenure's.
	NotBefore time.Time
	Next      string
	// Fence is the accepted declaration that the leader's cluster is off.
	Fence Acceptance
	// Observed holds the priorities that decisions have counted so far, and uncounted for those that a rebalance has
	// made count as edited.
	Observed map[string]int32
	// Rebalanced is the last Policy.RebalanceAt that decisions have counted.
	Rebalanced time.Time
}

// Acceptance is a declaration that a leader's cluster is off, as the hub has accepted it. The zero Acceptance is none.
type Acceptance struct {
	UID string
	At  time.Time
	// Voided: the cluster has answered since.
	Voided bool
}

// Lost reports whether there is no record, or one of a namespace whose Leases are all that is known of it.
func (r Record) Lost() bool { return r.Duration <= 0 }

// Fitness is the hub's judgement of a cluster's fitness to lead a namespace.
type Fitness int

const (
	// Unfit: it must not lead; a leader that is unfit is replaced.
	Unfit Fitness = iota
	// Unknown: never reached by this hub process. It is no candidate, and as a leader it is not deposed
	// before its expiry.
	Unknown
	// RetainOnly: it may keep what it has, but is never newly chosen.
	RetainOnly
	// Fit: it may lead.
	Fit
)

// Candidate is one cluster, as a candidate for one namespace.
type Candidate struct {
	Name     string
	Priority int32
	// Weight is the order among candidates of one priority, where the policy spreads namespaces. It is zero elsewhere.
	Weight uint64
	// Ordered: an operator has ordered to move the namespace to this cluster.
	Ordered bool
	Fitness Fitness
	// Reason is why it is not Fit.
	Reason reason.Reason
	// Answering: its last read and its last write were answered. A leader that answers again while its term ends
	// may resume.
	Answering bool
	// Prepared: a Lease written since the term began to end is in place there. A cluster that cannot be written is no
	// successor.
	Prepared bool
	// Refused: such a write was tried, and failed.
	Refused bool
	// Fenced is the UID of the cluster if an operator has declared that it is off, or empty.
	Fenced string
	// Answered is when the latest answer of a Fenced cluster arrived, or zero.
	Answered lease.Reading
	// Drained: an operator drains the cluster.
	Drained bool
	// Required is the state of what the policy requires to be healthy there.
	Required Required
	// Unfenced is the state of its fences of locks and schedules. Without them, a leader that is replaced may go on
	// acting.
	Unfenced Fence
}

// Fence is the state of the fences of locks and schedules in a cluster.
type Fence int

const (
	// FenceInForce: all fences that the policy asks for are in force, or it asks for no fence.
	FenceInForce Fence = iota
	// FenceUnchecked: the state is not known yet.
	FenceUnchecked
	// FenceMissing: a fence is known to be missing.
	FenceMissing
)

// Sent is what this tenure has promised for the current record.
type Sent struct {
	// Until is the latest renewTime + the duration sent with it. It is zero if this tenure has sent nothing.
	Until time.Time
	// BootUntil is Until on the boot clock of this process: its reading at that send + the duration.
	BootUntil time.Duration
	// Skew is the policy's ε at the last promise. It has to pass after Until and BootUntil.
	Skew time.Duration
	// Stop is the policy's StopTime at the last promise. It has to pass after that ε.
	Stop time.Duration
	// EarlierEnd is the end of what was promised under a larger ε or stop time, with both included. It is zero if
	// nothing was.
	EarlierEnd time.Time
	// BootEarlierEnd is EarlierEnd on the boot clock.
	BootEarlierEnd time.Duration
	// Final: all renewals of the term have stopped, so that the rest of this struct does not change any more.
	Final bool
}

// Tenure is one hub replica's unbroken right to write.
type Tenure struct {
	// Started is the reading when it was acquired.
	Started lease.Reading
	// Inherited is the latest time at which an earlier tenure can have written.
	Inherited time.Time
}

// State is everything that a decision depends on, apart from the policy and the candidates.
type State struct {
	Record Record
	Tenure Tenure
	Sent   Sent
	// Released: all readers have released Record.Revoked. These are the readers that follow the namespace and were
	// registered in the leader's cluster when its term had certainly been revoked there. There was at least one,
	// and this tenure asked them.
	Released bool
	// LeaseLost: the leader's Lease is not live and cannot be repaired within the term.
	LeaseLost bool
	// Highest is the highest epoch known to this tenure. It may come from a grant, from any earlier version of the
	// record, from a sealed Lease, or from an edit that readers may have accepted.
	Highest int64
	// Found is the term with the highest epoch among the sealed Leases that name the cluster they are in. They were read
	// at the start of the tenure.
	Found *FoundTerm
	// LargestDuration, LargestSkew and LargestStop are, by the seal and by sealed Leases, the largest D, ε and stop time
	// of any Lease that may have been sent for the namespace. They bound a record that is lost or older.
	LargestDuration, LargestSkew, LargestStop time.Duration
	// FleetDuration, FleetSkew and FleetStop are the largest D, ε and stop time of the fleet. Locks come from any
	// of its namespaces.
	FleetDuration, FleetSkew, FleetStop time.Duration
	// RefusedSince holds, by lock, the boot reading since when every cluster rejects the lock or cannot be reached.
	// A lock that a cluster may still admit is not in it.
	RefusedSince map[string]time.Duration
	// LeaderUnread: this tenure has not read the leader's cluster yet, or cannot read it now. That cluster alone shows
	// when the term was renewed last.
	LeaderUnread bool
	// Behind is how far the leader's clocks may be behind the hub's, if they were measured to be behind by more
	// than ε. Its readers may go on for that long after their deadline.
	Behind time.Duration
	// Moved: the record came from another hub, and this hub has not taken its Leases yet.
	Moved bool
	// OtherHub: another hub writes Leases of this namespace.
	OtherHub bool
	// MostUnreachable: most clusters became unreachable within one window.
	MostUnreachable bool
	// AbleSince and FitSince hold, by cluster, the boot reading since when every decision found it able to lead, and for
	// FitSince all that is required healthy.
	AbleSince, FitSince map[string]time.Duration
	// Frozen: an operator has frozen who leads.
	Frozen bool
	// Paced: as many planned changes of the policy go on as may go on at once. This namespace begins none.
	Paced bool
}

// stale reports whether a newer term than the recorded one was seen, as after a restore of the hub's etcd.
func (s State) stale() bool { return s.Highest > s.Record.Epoch }

// FoundTerm is the term of a sealed Lease that names the cluster it is in.
type FoundTerm struct {
	Cluster string
	Term    lease.Term
	// Boot is the boot reading after which the Lease is not live, whatever the wall clock shows: D after it was
	// read.
	Boot time.Duration
}

// live reports whether the Lease may still be live.
func (s *FoundTerm) live(now lease.Reading) bool {
	return s != nil && s.Term.Live(now.Wall) && now.Boot < s.Boot
}

// Decision is the outcome of Next.
type Decision struct {
	// Record is what the record must become.
	Record Record
	// Persist: Record differs from the persisted one and must be written, by compare-and-swap, before anything that
	// depends on it.
	Persist bool
	// StopRenewing: all renewals must stop before this can be decided. Stop them, gather again and call Next again.
	// Do nothing else.
	StopRenewing bool
	// Planned: the decision begins a planned change.
	Planned bool
	// Gone: nothing depends on the record any more, so it may be deleted.
	Gone bool
	// Waiting is what the next decision waits for, or empty.
	Waiting reason.Reason
	// Awaited is the better cluster that WaitingForClusters waits for, or empty.
	Awaited string
	// Unanswered: clusters that this tenure has not reached yet have time left to answer, also where people have frozen
	// who leads.
	Unanswered bool
	// After is when to decide again at the latest, or zero if only events matter.
	After time.Duration
}
