package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/reason"
)

// NamespaceLeader is the record of who leads one member namespace. It has the name of
// that namespace and is written by the hub alone, before any copy that depends on it,
// and only when something changes: renewals leave it as it is.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=nsleader,categories=leasecast
// +kubebuilder:printcolumn:name="Leader",type=string,JSONPath=`.status.leader`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Epoch",type=integer,JSONPath=`.status.epoch`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.next`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.since`
// +kubebuilder:printcolumn:name="NotBefore",type=string,priority=1,JSONPath=`.status.notBefore`
// +kubebuilder:printcolumn:name="Policy",type=string,priority=1,JSONPath=`.status.policy`
// +kubebuilder:metadata:labels={"clusterctl.cluster.x-k8s.io=","clusterctl.cluster.x-k8s.io/move="}
type NamespaceLeader struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status is the record.
	// +optional
	Status NamespaceLeaderStatus `json:"status,omitempty"`
}

// Phase is where a namespace is between one leader and the next.
//
// +kubebuilder:validation:Enum=Vacant;Leading;Draining;Retired
type Phase string

const (
	// PhaseVacant: nobody leads and nothing is promised to anybody.
	PhaseVacant Phase = "Vacant"
	// PhaseLeading: the leader's copy is renewed.
	PhaseLeading Phase = "Leading"
	// PhaseDraining: the leader's copy is no longer renewed; the next grant comes when
	// everything promised to it has passed.
	PhaseDraining Phase = "Draining"
	// PhaseRetired: no policy claims the namespace; the record stays until everything
	// promised has passed.
	PhaseRetired Phase = "Retired"
)

// Candidate is one Cluster as the last decision saw it.
type Candidate struct {
	// name of the CAPI Cluster.
	// +required
	Name string `json:"name"`
	// priority is its label leasecast.dev/priority. Higher wins, ties by name.
	// +optional
	Priority int32 `json:"priority"`
	// heeded is the priority that decisions have taken into account so far. An edit that
	// lifts an eligible cluster above the leader moves the leader; recovery does not.
	// +optional
	Heeded *int32 `json:"heeded,omitempty"`
	// eligible says whether it may lead this namespace now.
	// +optional
	Eligible bool `json:"eligible"`
	// reason says why it is, or is not, eligible.
	// +optional
	Reason reason.Reason `json:"reason,omitempty"`
	// message says it in words.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// hint is what Cluster API says about the Cluster; it decides nothing.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Hint string `json:"hint,omitempty"`
}

// Change is one entry of the history: who led from when, and why.
type Change struct {
	// time of the change by the hub's clock.
	// +required
	Time metav1.MicroTime `json:"time"`
	// leader from then on; empty when nobody.
	// +optional
	Leader string `json:"leader,omitempty"`
	// epoch from then on.
	// +optional
	Epoch int64 `json:"epoch"`
	// phase from then on.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// reason of the change.
	// +optional
	Reason reason.Reason `json:"reason,omitempty"`
}

// MaxHistory is how many changes a record keeps.
const MaxHistory = 16

// ConditionReady of a NamespaceLeader is True when a leader is granted and its copy
// has been written.
const ConditionReady = "Ready"

// ConditionCopiesInPlace of a NamespaceLeader is True when every reachable cluster
// that has the namespace holds the copy that it should; otherwise the message names
// those that do not, and why.
const ConditionCopiesInPlace = "CopiesInPlace"

// NamespaceLeaderStatus is the record. Only the hub writes it, by compare-and-swap.
type NamespaceLeaderStatus struct {
	// observedGeneration is the generation of the policy that the last decision followed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// leader is the Cluster that leads, or that is being drained; empty when nobody.
	// +optional
	Leader string `json:"leader,omitempty"`
	// epoch is the fencing token of the term. It rises with every term and never falls.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Epoch int64 `json:"epoch"`
	// revokedEpoch is the epoch of the leader that was told to stop before its deadline. epoch
	// is then that of the revocation: nobody leads in it, and the leader never goes on in its own.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RevokedEpoch int64 `json:"revokedEpoch,omitempty"`
	// phase is where the namespace is between one leader and the next.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// reason says why the record is as it is.
	// +optional
	Reason reason.Reason `json:"reason,omitempty"`
	// message says it in words.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// since is when leader and phase became what they are, by the hub's clock.
	// +optional
	Since *metav1.MicroTime `json:"since,omitempty"`
	// acquireTime is the start of the leader's term, by the hub's clock.
	// +optional
	AcquireTime *metav1.MicroTime `json:"acquireTime,omitempty"`
	// leaseDurationSeconds is the longest D that this term's copies may carry.
	// +optional
	LeaseDurationSeconds int32 `json:"leaseDurationSeconds,omitempty"`
	// leaseName is the name of this term's copies.
	// +optional
	LeaseName string `json:"leaseName,omitempty"`
	// notBefore is the earliest instant of the next grant, as the hub that drains last
	// computed it. Only that hub trusts it.
	// +optional
	NotBefore *metav1.MicroTime `json:"notBefore,omitempty"`
	// next is the Cluster that would lead next.
	// +optional
	Next string `json:"next,omitempty"`
	// policy is the LeadershipPolicy that claims the namespace.
	// +optional
	Policy string `json:"policy,omitempty"`
	// candidates are the Clusters of the policy, best first.
	// +optional
	// +listType=map
	// +listMapKey=name
	Candidates []Candidate `json:"candidates,omitempty"`
	// history holds the last changes of leader or phase, newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	History []Change `json:"history,omitempty"`
	// conditions: Ready, CopiesInPlace.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NamespaceLeaderList is a list of records.
//
// +kubebuilder:object:root=true
type NamespaceLeaderList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NamespaceLeader `json:"items"`
}
