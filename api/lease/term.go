package lease

import "time"

// Reading is one reading of the two clocks of a process.
//
// Boot counts since an arbitrary instant, never steps and keeps counting while the machine is suspended (CLOCK_BOOTTIME
// on Linux). Wall is the wall clock. A Clock reads Boot before Wall. A process that is paused between the two then
// finds less time remaining, never more.
type Reading struct {
	Wall time.Time
	Boot time.Duration
}

// Clock reads both clocks. Implementations are safe for concurrent use.
type Clock interface {
	Now() Reading
}

// Term is the content of one Lease about its term: who leads, in which epoch, and until when.
type Term struct {
	// Holder is the identity of the leader (see Identity), empty when no cluster leads.
	Holder string
	// Epoch is the fencing token. It rises from term to term, also by a revocation. It never falls, not even
	// when the Lease is deleted.
	Epoch int64
	// AcquireTime is the start of the term by the hub's wall clock.
	AcquireTime time.Time
	// RenewTime is the hub's wall clock, read before the request that carried it.
	RenewTime time.Time
	// Duration is how long after RenewTime the holder may act. Whole seconds, because a Lease stores it so.
	Duration time.Duration
}

// Deadline is the instant, by the hub's wall clock, at which the promise of this Lease ends.
func (t Term) Deadline() time.Time { return t.RenewTime.Add(t.Duration) }

// Live reports whether now is before the deadline.
func (t Term) Live(now time.Time) bool { return now.Before(t.Deadline()) }

// SameTerm reports whether both are of the same term: the same holder in the same epoch, whatever their renewTime.
func (t Term) SameTerm(o Term) bool { return t.Holder == o.Holder && t.Epoch == o.Epoch }

// Content is the content of one Lease in one member.
type Content struct {
	Term
	// Namespace and Name identify the Lease in the member.
	Namespace, Name string
	// Cluster is the identity of the member that this Lease is in. A reader leads iff Holder equals it, so it needs no
	// configuration of its own.
	Cluster string
	// ClusterUID is the UID of that member's kube-system namespace. It distinguishes a rebuilt cluster from the one that
	// the hub has pinned.
	ClusterUID string
	// Hub is the mark of the hub that wrote the Lease.
	Hub string
	// Skew is the ε of the policy, in whole milliseconds. Zero: the Lease has none, as from an older hub.
	Skew time.Duration
	// OpenLocks lists the fenced locks that may be held where the Lease leads, in the form of
	// v1alpha1.OpenLocksAnnotation.
	OpenLocks string
}

// LeadsHere reports whether the Lease names the cluster that it is in.
func (c Content) LeadsHere() bool { return c.Holder != "" && c.Holder == c.Cluster }

// Identity is the name of a cluster in holderIdentity: `<cluster>.<fleet>`, where
// fleet is the hub namespace of the CAPI Cluster. It is a DNS subdomain.
func Identity(cluster, fleet string) string { return cluster + "." + fleet }

// The largest D and ε of any policy: the CRD refuses more.
const (
	MaxDuration = 24 * time.Hour
	MaxSkew     = time.Hour
	// MaxUnattended is the largest D of a policy whose leaders are replaced by the hub, or whose locks or schedules are
	// fenced.
	MaxUnattended = time.Hour
)

// Timings are the durations of a policy: D, r, τ and ε in the protocol.
type Timings struct {
	// Duration is D, how long after its renewTime a Lease lets its holder act. Whole seconds, at least one.
	Duration time.Duration
	// Renew is r, the time between two renewals of a led namespace.
	Renew time.Duration
	// Timeout is τ, how long the hub waits for an answer of a member.
	Timeout time.Duration
	// Skew is ε, twice the largest error of any clock that takes part: on hub replicas and on readers' hosts.
	Skew time.Duration
}

// SurvivesHubLoss reports whether another hub replica can take over before a term ends: r + h + τ + ε ≤ D. h is the
// duration of the hub's election.
func (t Timings) SurvivesHubLoss(h time.Duration) bool {
	return t.Renew+h+t.Timeout+t.Skew <= t.Duration
}

// epochZero is the origin of the seconds that epochs start from.
var epochZero = time.Date(2025, time.January, 1, 0, 0, 0, 0, time.UTC)

// epochSlack is how far above the seconds an honest epoch can be: after a leader change every second for twelve days.
const epochSlack = 1 << 20

// EpochFloor is the least epoch of a term that starts at now: the seconds since 2025. So epochs rise even when every
// record of the last one is lost. The starts of two terms without a common record are more than a second apart, because
// the deadline of the first lies between them. An int32, as a Lease has it, holds these seconds until 2093.
func EpochFloor(now time.Time) int64 {
	return max(0, int64(now.Sub(epochZero)/time.Second))
}

// PlausibleEpoch reports whether a hub can have given an epoch up to now. A higher one is an edit: a reader that
// believed it would refuse every honest term to come.
func PlausibleEpoch(now time.Time, epoch int64) bool {
	return epoch >= 0 && epoch <= EpochFloor(now)+epochSlack
}
