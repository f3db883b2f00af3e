package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/reason"
)

// NamespaceLeader records who leads one member namespace. It has the name of that
// namespace. The hub alone writes it, before it writes any Lease that depends on it, and
// only when something changes: a renewal leaves it as it is.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=nsleader,categories=leasecast
// +kubebuilder:printcolumn:name="Leader",type=string,JSONPath=`.spec.leader`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.spec.state`
// +kubebuilder:printcolumn:name="Epoch",type=integer,JSONPath=`.spec.epoch`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.spec.next`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.spec.since`
// +kubebuilder:printcolumn:name="NotBefore",type=string,priority=1,JSONPath=`.spec.notBefore`
// +kubebuilder:printcolumn:name="Policy",type=string,priority=1,JSONPath=`.spec.policy`
// +kubebuilder:metadata:labels={"clusterctl.cluster.x-k8s.io=","clusterctl.cluster.x-k8s.io/move="}
type NamespaceLeader struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata of an object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the record. The hub decides by it, so it belongs into every backup. API servers
	// refuse edits by others.
	// +required
	Spec NamespaceLeaderSpec `json:"spec,omitempty,omitzero"`
	// status explains the record to people. The hub decides nothing by it.
	// +optional
	Status NamespaceLeaderStatus `json:"status,omitempty,omitzero"` //nolint:kubeapilinter // no pointer
}

// RecordState is where a namespace is between one leader and the next.
//
// +kubebuilder:validation:Enum=Vacant;Leading;Ending;Retired
type RecordState string

const (
	// StateVacant: the record names no leader. An earlier promise may still count.
	StateVacant RecordState = "Vacant"
	// StateLeading: the hub renews the leader's Lease.
	StateLeading RecordState = "Leading"
	// StateEnding: the hub no longer renews the leader's Lease. It grants the next term when
	// everything that it promised to the leader has passed.
	StateEnding RecordState = "Ending"
	// StateRetired: no policy claims the namespace. The record stays until everything
	// promised has passed.
	StateRetired RecordState = "Retired"
)

// NoHub is the mark of a record that its hub has let go, because its Clusters moved to another management cluster.
const NoHub = "none"

// NamespaceLeaderSpec is the record. Only the hub writes it, by compare-and-swap.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.epoch) || has(self.epoch) && self.epoch >= oldSelf.epoch",message="the epoch of a record never falls: to go back to a record of a backup, delete this one and create the other"
// +kubebuilder:validation:XValidation:rule="self.state != 'Leading' || has(self.leader) && has(self.epoch) && has(self.leaseDurationSeconds) && has(self.leaseName)",message="a record that is Leading has leader, epoch, leaseDurationSeconds and leaseName"
// +kubebuilder:validation:XValidation:rule="self.state != 'Vacant' || !has(self.leader)",message="a record that is Vacant has no leader"
type NamespaceLeaderSpec struct {
	// leader is the Cluster that leads, or whose term ends. It is absent when nobody leads.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Leader string `json:"leader,omitempty"`
	// epoch is the fencing token of the term. It rises with every term and never falls.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	Epoch int64 `json:"epoch,omitempty"`
	// revokedEpoch is the epoch of a leader that the hub told to stop before its deadline. The
	// epoch is then that of the revocation: nobody leads in it, and the leader never goes on
	// in its own.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	RevokedEpoch int64 `json:"revokedEpoch,omitempty"`
	// state is where the namespace is between one leader and the next.
	// +required
	State RecordState `json:"state,omitempty"`
	// reason says why the record is as it is.
	// +optional
	Reason reason.Reason `json:"reason,omitempty"` //nolint:kubeapilinter // its type bounds its length, in another package
	// since is when leader and state became what they are, by the hub's clock.
	// +required
	Since *metav1.MicroTime `json:"since,omitempty"`
	// acquireTime is the start of the leader's term, by the hub's clock.
	// +optional
	AcquireTime *metav1.MicroTime `json:"acquireTime,omitempty"`
	// leaseDurationSeconds is the longest lease duration that the Leases of this term may carry.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	LeaseDurationSeconds int32 `json:"leaseDurationSeconds,omitempty"`
	// maxClockSkewMilliseconds is the largest clock skew under which the Leases of this term
	// may have been sent. The next term begins that much later.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600000
	MaxClockSkewMilliseconds int32 `json:"maxClockSkewMilliseconds,omitempty"`
	// stopTimeSeconds is the longest stop time of a fenced lock that the Leases of this term
	// may have opened. The next term begins that much later.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=18000
	StopTimeSeconds int32 `json:"stopTimeSeconds,omitempty"`
	// openLocks are the fenced locks that may be held where the leader is, as namespace/name.
	// A lock that the policy fences and that is not listed is refused in every cluster: it
	// opens when every earlier holder must have stopped.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	OpenLocks []string `json:"openLocks,omitempty"`
	// unfencedLeader is a Cluster that led before while a fence of locks or schedules was
	// missing there. Programs there may still act. It is absent once the fence is in force there.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	UnfencedLeader string `json:"unfencedLeader,omitempty"`
	// leaseName is the name of this term's Leases.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	LeaseName string `json:"leaseName,omitempty"`
	// notBefore is the earliest instant of the next term, unless all readers release the term
	// earlier or a fence is accepted. It is for people: a hub that takes over computes its own.
	// +optional
	NotBefore *metav1.MicroTime `json:"notBefore,omitempty"`
	// fence records that an operator has declared the leader's cluster to be off, so that the
	// next term need not wait for notBefore.
	// +optional
	Fence FenceRecord `json:"fence,omitempty,omitzero"`
	// next is the Cluster that would lead next.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Next string `json:"next,omitempty"`
	// policy is the LeadershipPolicy that claims the namespace.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Policy string `json:"policy,omitempty"`
	// observedPriorities are the priorities that decisions have taken into account so far. An
	// edit that lifts an eligible cluster above the leader moves the leader; recovery does not.
	// An edit of a cluster that cannot be reached counts when the cluster is eligible again.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10000
	ObservedPriorities []ObservedPriority `json:"observedPriorities,omitempty"`
	// rebalancedAt is the last leasecast.dev/rebalance-at of the policy that decisions have
	// taken into account.
	// +optional
	RebalancedAt *metav1.MicroTime `json:"rebalancedAt,omitempty"`
	// hub is the installation that the record belongs to: the UID of the management cluster's
	// namespace kube-system and the hub's namespace. It is "none" when the Clusters moved to
	// another management cluster.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Hub string `json:"hub,omitempty"`
}

// FenceRecord is a declaration that the leader's cluster is off, as the hub has accepted it.
type FenceRecord struct {
	// clusterUID is the UID of the cluster that was declared to be off.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	ClusterUID string `json:"clusterUID,omitempty"`
	// acceptedAt is when the hub accepted it, by the hub's clock.
	// +required
	AcceptedAt *metav1.MicroTime `json:"acceptedAt,omitempty"`
	// voided is true if the cluster has answered since: then the next term waits for notBefore.
	// +optional
	Voided *bool `json:"voided,omitempty"`
}

// ObservedPriority is the priority of one Cluster that decisions have taken into account.
type ObservedPriority struct {
	// name of the Cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// priority that decisions have taken into account.
	// +required
	Priority int32 `json:"priority"` //nolint:kubeapilinter // zero is a priority, and the hub always writes one
}

// Candidate is one Cluster as the last decision saw it.
type Candidate struct {
	// name of the Cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// priority is its label leasecast.dev/priority. Higher wins, ties by name.
	// +required
	Priority int32 `json:"priority"` //nolint:kubeapilinter // zero is a priority, and the hub always writes one
	// eligible says whether it may lead this namespace now.
	// +required
	Eligible bool `json:"eligible"` //nolint:kubeapilinter // the hub always writes it, for people to read
	// reason says why it is, or is not, eligible.
	// +optional
	Reason reason.Reason `json:"reason,omitempty"` //nolint:kubeapilinter // its type bounds its length, in another package
	// message says it in words.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// readers is how many registered readers of the Cluster follow the namespace. It is absent where none has registered.
	// A handover: RegisteredReaders waits for every one of them, and for nobody else.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Readers int32 `json:"readers,omitempty"`
}

// ClusterDecision names a Cluster that was chosen, as Argo CD's clusterDecisionResource generator reads it.
type ClusterDecision struct {
	// clusterName is the name of the Cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ClusterName string `json:"clusterName,omitempty"`
	// reason says why it was chosen.
	// +optional
	Reason reason.Reason `json:"reason,omitempty"` //nolint:kubeapilinter // its type bounds its length, in another package
}

// Change is one entry of the history: who led from when, and why.
type Change struct {
	// time of the change by the hub's clock.
	// +required
	Time metav1.MicroTime `json:"time"` //nolint:kubeapilinter // no change is without its time
	// leader from then on; absent when nobody.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Leader string `json:"leader,omitempty"`
	// epoch from then on.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Epoch int64 `json:"epoch,omitempty"`
	// state from then on.
	// +optional
	State RecordState `json:"state,omitempty"`
	// reason of the change.
	// +optional
	Reason reason.Reason `json:"reason,omitempty"` //nolint:kubeapilinter // its type bounds its length, in another package
	// message has the words of the operator who ordered the change, such as the reason of a drain.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// MaxHistory is how many changes a status keeps, and MaxCandidates how many candidates.
const (
	MaxHistory    = 16
	MaxCandidates = 32
)

// ConditionReady of a NamespaceLeader is True when a leader is granted and its Lease
// has been written. ConditionReady of a LeadershipPolicy is the sum of its other conditions.
const ConditionReady = "Ready"

// ConditionFrozen of a NamespaceLeader is True while an operator has frozen who leads. It is False while the annotation
// names no instant within a year, which freezes nothing, and not there otherwise.
const ConditionFrozen = "Frozen"

// ConditionFailoverPending of a NamespaceLeader is True while its leader should be replaced and the policy leaves that
// to operators. The message has the command. It stays as it was while the hub has just started and does not know the
// leader's state.
const ConditionFailoverPending = "FailoverPending"

// ConditionLeasesInPlace of a NamespaceLeader is True when every reachable cluster
// that has the namespace holds the Lease that it should; otherwise the message names
// those that do not, and why.
const ConditionLeasesInPlace = "LeasesInPlace"

// NamespaceLeaderStatus explains a record to people.
//
// +kubebuilder:validation:MinProperties=1
type NamespaceLeaderStatus struct {
	// conditions are Ready, LeasesInPlace and, while they apply, Frozen and FailoverPending.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the record that this status explains.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// observedPolicyGeneration is the generation of the policy that the last decision followed.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedPolicyGeneration int64 `json:"observedPolicyGeneration,omitempty"`
	// message says in words what the record says, and what the hub waits for.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// decisions has the Cluster that leads by the record. It is empty while nobody does, and while a term ends. It is a
	// hint for other controllers: a status is late by nature, and a former leader may act until its Lease runs out.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1
	Decisions []ClusterDecision `json:"decisions"` //nolint:kubeapilinter // always there, for those who read a list
	// candidates are the Clusters of the policy, best first. Of more than 32, it has the leader.
	// Those that may lead get half of the other places before those that may not.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Candidates []Candidate `json:"candidates,omitempty"`
	// omittedCandidates is how many Clusters of the policy are not in candidates.
	// +optional
	// +kubebuilder:validation:Minimum=1
	OmittedCandidates int32 `json:"omittedCandidates,omitempty"`
	// history holds the last changes of leader or state, newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	History []Change `json:"history,omitempty"`
}

// NamespaceLeaderList is a list of records.
//
// +kubebuilder:object:root=true
type NamespaceLeaderList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NamespaceLeader `json:"items"`
}
