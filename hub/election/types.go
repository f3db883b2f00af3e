package election

import (
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
)

// RecordState is where a namespace is between one leader and the next. The words are
// those of the record.
type RecordState string

// The states; see the package comment for the ways between them.
const (
	Vacant   RecordState = "Vacant"
	Leading  RecordState = "Leading"
	Draining RecordState = "Draining"
	Retired  RecordState = "Retired"
)

// Policy is what decisions need of a LeadershipPolicy.
type Policy struct {
	Timings   lease.Timings
	LeaseName string
	// FailOverWhenMostUnreachable lets a namespace fail over although most clusters
	// became unreachable at once, when it may well be the hub that is cut off.
	FailOverWhenMostUnreachable bool
	// Acknowledged says that every reader registers, so that a term may also end by the word
	// of all of them.
	Acknowledged bool
	// InitialDelay is how long the first leader of a namespace waits for better clusters that are not ready
	// yet, from when the namespace was first seen in any cluster.
	InitialDelay time.Duration
}

// Record is what is persisted of a namespace: the spec of its NamespaceLeader.
// The zero Record is a lost one.
type Record struct {
	Leader string
	Epoch  int64
	// Revoked is the epoch of the leader if its term was revoked, or else zero. Epoch is
	// then that of the revocation, in which nobody leads.
	Revoked int64
	State   RecordState
	Reason  reason.Reason
	// Since is when leader or state last changed, Acquired when the term began.
	Since, AcquireTime time.Time
	// Duration is the longest D that copies of this term may carry.
	Duration  time.Duration
	LeaseName string
	// NotBefore is for people to read. Decisions compute the bound anew: one that
	// another tenure wrote is not trusted.
	NotBefore time.Time
	Next      string
	// Observed holds the priorities that decisions have taken into account so far.
	Observed map[string]int32
}

// Lost reports whether the record says nothing, or not for how long. An empty record is
// a lost one: somebody may have emptied it.
func (r Record) Lost() bool { return r.State == "" || r.Duration <= 0 }

// Fitness is what the hub knows of a cluster's fitness to lead a namespace.
type Fitness int

const (
	// Unfit: it must not lead; a leader that is unfit is replaced.
	Unfit Fitness = iota
	// Unknown: never reached by this hub process. No candidate, and not deposed
	// before its bound has passed.
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
	// Answering says that its last read and its last write were answered: a leader
	// that answers again before its term was closed may resume.
	Answering bool
	// Prepared says that a copy written since the draining began is in place there.
	// A successor that cannot be written is none.
	Prepared bool
	// Refused says that such a write was tried, and failed.
	Refused bool
}

// Sent is what this tenure has promised for the current record.
type Sent struct {
	// Until is the latest stamp + the duration sent with it; zero when this tenure
	// has sent nothing.
	Until time.Time
	// BootUntil is the same on the boot clock of this process: its reading at that
	// send + the duration.
	BootUntil time.Duration
	// Skew is the ε that has to pass after Until and BootUntil because of what was sent: that of the
	// policy then, whatever a policy says now.
	Skew time.Duration
	// Final says that no further stamp can be drawn for the term, so that the rest
	// of this struct is final.
	Final bool
}

// Tenure is one hub replica's unbroken right to write.
type Tenure struct {
	// Started is when it was acquired.
	Started lease.Reading
	// Inherited is the latest instant at which an earlier tenure can have stamped.
	Inherited time.Time
}

// State is all that a decision depends on beside the policy and the candidates.
type State struct {
	Record Record
	Tenure Tenure
	Sent   Sent
	// GrantedHere says that this tenure persisted the grant of the record's epoch.
	GrantedHere bool
	// Released says that all readers that were registered in the leader's cluster when its
	// term had certainly been revoked there, and that follow the namespace, have released
	// Record.Revoked. There was at least one of them. It was this tenure that asked.
	Released bool
	// LeaseLost says that the leader's copy does not stand and cannot be put right
	// within the term.
	LeaseLost bool
	// Highest is the highest epoch of any sealed copy read at the start of the tenure.
	Highest int64
	// Found is the live copy with the highest epoch, among the sealed ones read at
	// the start of the tenure, that names the cluster it lives in.
	Found *FoundTerm
	// LargestDuration is the largest D that any hub ever sent with this seal.
	LargestDuration time.Duration
	// LargestSkew is the largest ε that a policy ever had under which a hub sent anything with this seal.
	LargestSkew time.Duration
	// Behind is how far the leader's clocks may lie behind the hub's, if they were measured to
	// lie further behind than ε: for so long its readers may go on after their deadline.
	Behind time.Duration
	// Moved says that the record came from another hub, and that its copies have not been
	// taken yet.
	Moved bool
	// OtherHub says that another hub writes copies of this namespace.
	OtherHub bool
	// MostUnreachable says that most clusters became unreachable within one window.
	MostUnreachable bool
}

// stale reports whether a newer term than the recorded one was seen, as after a
// restore of the hub's etcd.
func (s State) stale() bool { return s.Highest > s.Record.Epoch }

// Found is a sealed copy that names the cluster it lives in.
type FoundTerm struct {
	Cluster string
	Term    lease.Term
	// Boot is the boot reading after which the copy is not live, whatever the wall clock says: D after it was read.
	Boot time.Duration
}

// live reports whether the promise of the copy may still stand.
func (s *FoundTerm) live(now lease.Reading) bool {
	return s != nil && s.Term.Live(now.Wall) && now.Boot < s.Boot
}

// Decision is what Next wants.
type Decision struct {
	// Record is what the record must become.
	Record Record
	// Persist says that Record differs from the persisted one and must be written, by
	// compare-and-swap, before anything that depends on it.
	Persist bool
	// StopRenewing says that the source of stamps must be closed before this can be decided:
	// do so, gather again and ask again. Nothing else is to be done.
	StopRenewing bool
	// Gone says that nothing is left of the record: it may be deleted.
	Gone bool
	// Waiting says why nothing more was decided yet, if something is being waited for.
	Waiting reason.Reason
	// Awaited is the cluster that is being waited for, if Waiting is WaitingForClusters because of a better one.
	Awaited string
	// After is when to ask again at the latest; zero if only events matter.
	After time.Duration
}
