package election

import (
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
)

// RecordState is where a namespace is between one leader and the next. The words are those of the record.
type RecordState string

// The states; see the package comment for the ways between them.
const (
	Vacant   RecordState = "Vacant"
	Leading  RecordState = "Leading"
	Draining RecordState = "Draining"
	Retired  RecordState = "Retired"
)

// Policy is the part of a LeadershipPolicy that decisions need.
type Policy struct {
	Timings   lease.Timings
	LeaseName string
	// FailOverWhenMostUnreachable lets a namespace fail over although most clusters became unreachable at
	// once, when the hub itself may be cut off.
	FailOverWhenMostUnreachable bool
	// Acknowledged says that every reader registers, so that a term may also end when all of them have
	// released it.
	Acknowledged bool
	// StopTime is how long those go on whom API servers admit by the Lease, counted from its deadline: holders of fenced
	// locks. It is zero where no locks are fenced.
	StopTime time.Duration
	// Locks are the fenced locks, as namespace/name, in ascending order.
	Locks []string
	// InitialDelay is how long the first leader of a namespace waits for better clusters that are not ready
	// yet, counted from when the namespace was first seen in any cluster.
	InitialDelay time.Duration
}

// Record is what is persisted of a namespace: the spec of its NamespaceLeader. The zero Record is a lost one.
type Record struct {
	Leader string
	Epoch  int64
	// Revoked is the epoch of the leader if its term was revoked, or else zero. Epoch is
	// then that of the revocation, in which nobody leads.
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
	// NotBefore is for people to read. Decisions compute the expiry themselves, and do not trust one that
	// another tenure wrote.
	NotBefore time.Time
	Next      string
	// Observed holds the priorities that decisions have counted so far.
	Observed map[string]int32
}

// Lost reports whether the record says nothing, or no duration. An empty record is a lost one: somebody may
// have emptied it.
func (r Record) Lost() bool { return r.State == "" || r.Duration <= 0 }

// Fitness is what the hub knows of a cluster's fitness to lead a namespace.
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
	Fitness  Fitness
	// Reason says why it is not Fit.
	Reason reason.Reason
	// Answering says that its last read and its last write were answered. A leader that answers again while
	// its term drains may resume.
	Answering bool
	// Prepared says that a Lease written since the draining began is in place there. A cluster that cannot be
	// written is no successor.
	Prepared bool
	// Refused says that such a write was tried, and failed.
	Refused bool
	// Unfenced says that a fence of locks or schedules was not seen in force there. A leader that is replaced may then
	// go on acting.
	Unfenced Fence
}

// Fence is what the hub knows of the fences of locks and schedules in a cluster.
type Fence int

const (
	// FenceInForce: all that the policy asks for are, or it asks for none.
	FenceInForce Fence = iota
	// FenceUnchecked: nothing is known yet.
	FenceUnchecked
	// FenceMissing: one is known to be missing.
	FenceMissing
)

// Sent is what this tenure has promised for the current record.
type Sent struct {
	// Until is the latest renewTime + the duration sent with it. It is zero when this tenure has sent
	// nothing.
	Until time.Time
	// BootUntil is the same on the boot clock of this process: its reading at that send + the duration.
	BootUntil time.Duration
	// Skew is the ε that has to pass after Until and BootUntil: that of the policy at the last promise.
	Skew time.Duration
	// Stop is the policy's StopTime at the last promise. It has to pass after that ε.
	Stop time.Duration
	// EarlierEnd is when what was promised under a larger ε or stop time ends, those included. It is zero where nothing
	// was.
	EarlierEnd time.Time
	// BootEarlierEnd is the same on the boot clock.
	BootEarlierEnd time.Duration
	// Final says that all renewals of the term have stopped, so that the rest of this struct does not change
	// any more.
	Final bool
}

// Tenure is one hub replica's unbroken right to write.
type Tenure struct {
	// Started is when it was acquired.
	Started lease.Reading
	// Inherited is the latest instant at which an earlier tenure can have written.
	Inherited time.Time
}

// State is all that a decision depends on, apart from the policy and the candidates.
type State struct {
	Record Record
	Tenure Tenure
	Sent   Sent
	// GrantedHere says that this tenure persisted the grant of the record's epoch.
	GrantedHere bool
	// Released says that all readers have released Record.Revoked. They are those that follow the namespace
	// and were registered in the leader's cluster when its term had certainly been revoked there. There was
	// at least one, and this tenure asked them.
	Released bool
	// LeaseLost says that the leader's Lease is not live and cannot be repaired within the term.
	LeaseLost bool
	// Highest is the highest epoch of any sealed Lease read at the start of the tenure.
	Highest int64
	// Found is the live term with the highest epoch among the sealed Leases, read at the start of the tenure,
	// that name the cluster they are in.
	Found *FoundTerm
	// LargestDuration, LargestSkew and LargestStop are the largest D, ε and stop time under which a hub can have sent
	// Leases of the namespace, by the seal. They bound a record that was lost or edited.
	LargestDuration, LargestSkew, LargestStop time.Duration
	// FleetDuration, FleetSkew and FleetStop are the largest D, ε and stop time of the fleet. Locks come from any of its
	// namespaces.
	FleetDuration, FleetSkew, FleetStop time.Duration
	// RefusedSince says since when, on the boot clock, every cluster refuses a lock which is not open, or cannot be
	// reached. A lock that one of them may still admit is not in it.
	RefusedSince map[string]time.Duration
	// Behind is how far the leader's clocks may be behind the hub's, if they were measured to be behind by
	// more than ε. Its readers may go on for so long after their deadline.
	Behind time.Duration
	// Moved says that the record came from another hub, and that this hub has not taken its Leases yet.
	Moved bool
	// OtherHub says that another hub writes Leases of this namespace.
	OtherHub bool
	// MostUnreachable says that most clusters became unreachable within one window.
	MostUnreachable bool
}

// stale reports whether a newer term than the recorded one was seen, as after a restore of the hub's etcd.
func (s State) stale() bool { return s.Highest > s.Record.Epoch }

// FoundTerm is the term of a sealed Lease that names the cluster it is in.
type FoundTerm struct {
	Cluster string
	Term    lease.Term
	// Boot is the boot reading after which the Lease is not live, whatever the wall clock says: D after it
	// was read.
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
	// Persist says that Record differs from the persisted one and must be written, by
	// compare-and-swap, before anything that depends on it.
	Persist bool
	// StopRenewing says that all renewals must stop before this can be decided: stop them, gather again and
	// call Next again. Do nothing else.
	StopRenewing bool
	// Gone says that nothing depends on the record any more: it may be deleted.
	Gone bool
	// Waiting says what the next decision waits for, or is empty.
	Waiting reason.Reason
	// Awaited is the better cluster that WaitingForClusters is about, if there is one.
	Awaited string
	// After is when to decide again at the latest, or zero if only events matter.
	After time.Duration
}
