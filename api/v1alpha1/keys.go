package v1alpha1

import (
	"cmp"
	"strings"
	"time"
)

// Keys that Leasecast reads and writes. Users write PriorityLabel, and the annotations
// of acts.
const (
	// PriorityLabel on a CAPI Cluster makes it take part. Its value is an integer of
	// 32 bits, not negative (a label cannot hold a sign); higher wins, ties by name.
	PriorityLabel = "leasecast.dev/priority"

	// DrainUntilAnnotation on a CAPI Cluster drains it until an instant (RFC 3339, at most a year ahead): no namespace
	// gets its next leader there, and those that it leads move, by planned changes. Where no other cluster may lead, it
	// goes on. After the instant it may lead again, and takes nothing back by itself.
	DrainUntilAnnotation = "leasecast.dev/drain-until"
	// DrainReasonAnnotation says to people why a Cluster is drained. Candidates and histories of records show it.
	DrainReasonAnnotation = "leasecast.dev/drain-reason"

	// FrozenUntilAnnotation on a LeadershipPolicy, or on the NamespaceLeader of one namespace, freezes who leads until
	// an instant (RFC 3339, at most a year ahead): no planned change and no failover. The leader is renewed as always.
	// If its term runs out, the same cluster may lead again, and no other one. A namespace without a leader may get
	// one.
	FrozenUntilAnnotation = "leasecast.dev/frozen-until"
	// FrozenReasonAnnotation says to people why. The condition Frozen shows it.
	FrozenReasonAnnotation = "leasecast.dev/frozen-reason"

	// MoveToAnnotation on a NamespaceLeader orders one planned change to the Cluster that it names, also against
	// priorities. The hub removes it when the Cluster leads, or when it refuses: then an event says why.
	MoveToAnnotation = "leasecast.dev/move-to"
	// MoveReasonAnnotation says to people why. The history shows it. The hub removes it with the order.
	MoveReasonAnnotation = "leasecast.dev/move-reason"

	// RebalanceAtAnnotation on a LeadershipPolicy is an instant (RFC 3339, at most a year ahead) from which all
	// priorities count as edited, once: each namespace moves to its best cluster, by planned changes.
	RebalanceAtAnnotation = "leasecast.dev/rebalance-at"

	// FencedAnnotation on a Cluster declares that the cluster is off, and stays off until the instant that the hub
	// prints in an event Fenced of each record that it leads. Its value is the UID that ClusterUIDAnnotation pins. The
	// hub then grants its namespaces to others without waiting for that instant. If the cluster acts before it, two
	// clusters lead. An API server asks for the verb fence on clusters of leasecast.dev from whoever sets it.
	FencedAnnotation = "leasecast.dev/fenced"

	// RequiredLabel, "true", on an object in a member marks what LeadershipPolicy.spec.requires asks to be healthy.
	RequiredLabel = "leasecast.dev/required"

	// ClusterUIDAnnotation pins the kube-system UID of the member on its CAPI Cluster at first contact, and on each Lease.
	// It survives a clusterctl move.
	ClusterUIDAnnotation = "leasecast.dev/cluster-uid"
	// PinProofAnnotation proves that the hub has pinned that UID itself. It is made with the fleet's seal.
	PinProofAnnotation = "leasecast.dev/cluster-uid-proof"

	// LeaderLabelPrefix and the name of a namespace are a label, "true", on the Cluster that leads it, where the policy
	// has publish.clusterLabels. It is a hint.
	LeaderLabelPrefix = "leader.leasecast.dev/"

	// SetLabel on an object in a member names the LeaderResourceSet that keeps it there, by a hash of its namespace and
	// name, and the object itself by another one. So a label that others copy to another object marks nothing.
	SetLabel = "leasecast.dev/resource-set"
	// KindsAnnotation on a LeaderResourceSet lists the kinds that it may have in members. The hub finds them by it.
	KindsAnnotation = "leasecast.dev/kinds"
	// SetFinalizer keeps a LeaderResourceSet until its objects are deleted in the members.
	SetFinalizer = "leasecast.dev/resource-set"

	// ManagedLabel, "true", marks the Leases. Readers and the hub watch only these.
	ManagedLabel = "leasecast.dev/managed"
	// ManagedByLabel names the writer of the Leases.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// ManagedByValue is the value of ManagedByLabel.
	ManagedByValue = "leasecast"

	// ClusterAnnotation on a Lease names the member that the Lease is in, as `<cluster>.<fleet>`. A reader leads iff
	// holderIdentity equals it.
	ClusterAnnotation = "leasecast.dev/cluster"
	// HubAnnotation names the hub that writes a Lease or a record, as `<UID of the management cluster's
	// kube-system>/<namespace of the hub>`. It is empty on objects that their hub has released because the Clusters have
	// moved to another hub. On the Secret of a fleet's seal it names the hub that serves the fleet.
	HubAnnotation = "leasecast.dev/hub"
	// MaxClockSkewAnnotation on a Lease is the policy's maxClockSkewMilliseconds. Readers refuse a renewTime that is
	// further in their future, or further than their own bound, whichever is less.
	MaxClockSkewAnnotation = "leasecast.dev/max-clock-skew-milliseconds"
	// OpenLocksAnnotation on a leader's Lease lists the fenced locks that may be held in its term. It has their IDs, as
	// locks.Lock.ID returns them, in ascending order with commas between. A lock that is not listed is refused everywhere.
	OpenLocksAnnotation = "leasecast.dev/open-locks"
	// SealAnnotation on a Lease is a MAC over the whole content of the Lease.
	SealAnnotation = "leasecast.dev/seal"

	// ReaderLabel, "true", marks the registrations of readers, see lease.Registration. Their keys have their own prefix:
	// the hub owns the Leases, and readers own the registrations.
	ReaderLabel = "reader.leasecast.dev/registration"
	// ReaderNamespacesAnnotation on a registration lists the namespaces that the reader follows, in ascending order and
	// with commas between; "*": all.
	ReaderNamespacesAnnotation = "reader.leasecast.dev/namespaces"
	// ReaderReleasedAnnotation on a registration is a JSON object, {"namespace": epoch}: nothing of this epoch or below is
	// under way, and nothing will begin.
	ReaderReleasedAnnotation = "reader.leasecast.dev/released"
	// ReaderAccountAnnotation on a registration is the username that may write it.
	ReaderAccountAnnotation = "reader.leasecast.dev/account"
	// ReaderFinalizer keeps a registration until the reader has stopped in good order, or until the hub has established
	// that the reader must have stopped acting.
	ReaderFinalizer = "reader.leasecast.dev/registration"
	// FenceLabel on a ValidatingAdmissionPolicy of a member, and on its binding, marks a fence. Its value is the fleet of
	// the policy that asks for it.
	FenceLabel = "leasecast.dev/fence"
	// FencingLabel on a Namespace of a member, with the value FencingAllowed, allows policies that do not own the
	// namespace to fence locks and accounts there.
	FencingLabel = "leasecast.dev/fencing"
	// FencingAllowed is the only valid value of FencingLabel.
	FencingAllowed = "allowed"
	// PolicyAnnotation on a fence names the policy that asks for it.
	PolicyAnnotation = "leasecast.dev/policy"
	// RecordAnnotation on a record that the hub has written holds the UID of that record. A copy, as clusterctl move and
	// backups make it, has another UID: its spec may be replaced until the hub writes it.
	RecordAnnotation = "leasecast.dev/record"
	// MoveLabel makes clusterctl move take an object along.
	MoveLabel = "clusterctl.cluster.x-k8s.io/move"
)

// DefaultLeaseName is the name of the Leases where a policy names none.
const DefaultLeaseName = "leasecast"

// LeaseName is the name of the Leases that the hub writes for the policy, in every namespace.
func (p *LeadershipPolicy) LeaseName() string { return cmp.Or(p.Spec.LeaseName, DefaultLeaseName) }

// DefaultFailbackAfter is failbackAfterSeconds where a policy does not set it.
const DefaultFailbackAfter int32 = 300

// DefaultUnhealthyAfter is unhealthyAfterSeconds where a policy does not set it.
const DefaultUnhealthyAfter int32 = 30

// DefaultMaxConcurrentMoves is how many planned changes go on at once where a policy does not set it.
const DefaultMaxConcurrentMoves int32 = 20

// DefaultInitialDelay is how long the first leader of a namespace waits for better clusters where a policy does not set
// it.
const DefaultInitialDelay = 10 * time.Second

// NeverManaged reports whether no cluster may ever lead a namespace: names that begin with kube- belong to the clusters
// themselves.
func NeverManaged(namespace string) bool { return strings.HasPrefix(namespace, "kube-") }
