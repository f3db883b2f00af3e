// Package reason is the one vocabulary of conditions, events, logs, metrics and the operator's plugin: each word stands
// for one cause wherever it appears.
package reason

// Reason is a CamelCase word, usable as the reason of a Kubernetes condition.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=64
type Reason string

// Why a record is as it is: the outcome of the last decision.
const (
	// Elected: a namespace without a leader got one.
	Elected Reason = "Elected"
	// FailedOver: the leader was lost and another cluster took its place.
	FailedOver Reason = "FailedOver"
	// HandedOver: another cluster leads, for any cause but the loss of the leader.
	HandedOver Reason = "HandedOver"
	// NewTerm: the same cluster leads again in a new term, because its last Lease was no longer live.
	NewTerm Reason = "NewTerm"
	// Adopted: sealed Leases raised a lost record again; the leader stayed.
	Adopted Reason = "Adopted"
	// Moved: the record came from another hub, and this hub has not taken all its Leases yet.
	Moved Reason = "Moved"
	// Resumed: the cause is gone for which the term was to end, so it goes on.
	Resumed Reason = "Resumed"
	// NoCandidate: no cluster is eligible, so no cluster leads.
	NoCandidate Reason = "NoCandidate"
	// WaitingForExpiry: an earlier promise may not have expired, so no cluster is granted a term yet.
	WaitingForExpiry Reason = "WaitingForExpiry"
	// WaitingForReaders: the leader's term was revoked, and not all its readers have released it.
	WaitingForReaders Reason = "WaitingForReaders"
	// WaitingForClusters: better clusters have not been reached yet.
	WaitingForClusters Reason = "WaitingForClusters"
	// MostUnreachable: most clusters were lost at once, so the hub itself may be cut off. Leaders that it
	// cannot reach are not replaced.
	MostUnreachable Reason = "MostUnreachable"
	// PolicyGone: no policy selects the namespace any more.
	PolicyGone Reason = "PolicyGone"
)

// Why a cluster is, or is not, a candidate; also why a leader is being replaced.
const (
	// Eligible: the cluster may lead.
	Eligible Reason = "Eligible"
	// PriorityChanged: an operator's edit put another cluster above the leader.
	PriorityChanged Reason = "PriorityChanged"
	// Drained: an operator drains the cluster. It is no candidate, and hands over what it leads.
	Drained Reason = "Drained"
	// InvalidDrain: the annotation that drains the cluster names no instant within a year, so it has no effect.
	InvalidDrain Reason = "InvalidDrain"
	// Ordered: an operator has ordered to move the namespace to another cluster.
	Ordered Reason = "Ordered"
	// OrderRefused: the cluster to which an operator has ordered to move the namespace may not lead it.
	OrderRefused Reason = "OrderRefused"
	// Failback: a better cluster has been able to lead for as long as the policy asks.
	Failback Reason = "Failback"
	// RequiredUnhealthy: something that the policy requires in the cluster is not healthy.
	RequiredUnhealthy Reason = "RequiredUnhealthy"
	// RequiredUnknown: the hub cannot read something that the policy requires to be healthy in the cluster.
	RequiredUnknown Reason = "RequiredUnknown"
	// FailoverPending: the leader should be replaced, and the policy leaves that to operators.
	FailoverPending Reason = "FailoverPending"
	// Fenced: an operator has declared that the cluster is off, so it is no candidate.
	Fenced Reason = "Fenced"
	// InvalidFence: the declaration that the cluster is off does not have the UID of its kube-system, so it has no
	// effect.
	InvalidFence Reason = "InvalidFence"
	// Frozen: an operator has frozen who leads, so no other cluster is chosen.
	Frozen Reason = "Frozen"
	// InvalidFreeze: the annotation that freezes names no instant within a year, so it has no effect.
	InvalidFreeze Reason = "InvalidFreeze"
	// LeaseRenamed: another policy owns the namespace now, and gives its Leases another name.
	LeaseRenamed Reason = "LeaseRenamed"
	// LeaseLost: the leader's Lease is not live any more and could not be renewed.
	LeaseLost Reason = "LeaseLost"
	// NeverReached: the hub has not reached the cluster yet.
	NeverReached Reason = "NeverReached"
	// Unreachable: reads or the renewal write path have gone unanswered too long.
	Unreachable Reason = "Unreachable"
	// Recovering: the cluster answers again, but not yet for long enough.
	Recovering Reason = "Recovering"
	// ClockSkewed: the clock of the cluster's API server is farther from the hub's than the policy's ε.
	ClockSkewed Reason = "ClockSkewed"
	// Forbidden: the cluster answers, but refuses the hub's requests.
	Forbidden Reason = "Forbidden"
	// NoPriority: the Cluster has no priority label, so it takes no part.
	NoPriority Reason = "NoPriority"
	// InvalidPriority: the priority label is no integer of 32 bits.
	InvalidPriority Reason = "InvalidPriority"
	// NotSelected: the policy's clusterSelector does not match the Cluster.
	NotSelected Reason = "NotSelected"
	// NoKubeconfig: the Cluster has no kubeconfig Secret.
	NoKubeconfig Reason = "NoKubeconfig"
	// InvalidKubeconfig: the kubeconfig cannot be used.
	InvalidKubeconfig Reason = "InvalidKubeconfig"
	// WrongCluster: the kubeconfig leads to another cluster than the one pinned.
	WrongCluster Reason = "WrongCluster"
	// DuplicateCluster: two Clusters lead to the same API server.
	DuplicateCluster Reason = "DuplicateCluster"
	// Deleting: the Cluster, or the resource set, is being deleted.
	Deleting Reason = "Deleting"
	// Gone: the Cluster does not exist any more.
	Gone Reason = "Gone"
	// Paused: the Cluster is paused; it keeps what it has but is never newly chosen.
	Paused Reason = "Paused"
	// NamespaceMissing: the namespace does not exist or does not match in the cluster.
	NamespaceMissing Reason = "NamespaceMissing"
	// NamespaceTerminating: the namespace is going away in the cluster.
	NamespaceTerminating Reason = "NamespaceTerminating"
	// ForeignLease: a Lease of that name exists that the hub did not write.
	ForeignLease Reason = "ForeignLease"
	// OtherHub: another hub writes the Leases of this cluster, or serves this fleet.
	OtherHub Reason = "OtherHub"
	// Unguarded: the policy that protects the Leases is not enforced in the cluster.
	Unguarded Reason = "Unguarded"
	// Unfenced: a fence that the policy asks for is not enforced in the cluster.
	Unfenced Reason = "Unfenced"
	// Unwritable: a Lease cannot be stored as it is, or something in the cluster changes it on its way.
	Unwritable Reason = "Unwritable"
	// TooManyObjects: the cluster has more namespaces, or more Leases of the hub, than are kept: the others are not seen.
	// Of a resource set: it has more labelled objects of a kind, so none of that kind is kept up to date.
	TooManyObjects Reason = "TooManyObjects"
	// NameTooLong: `<cluster>.<fleet>` is longer than a holderIdentity or label allows.
	NameTooLong Reason = "NameTooLong"
)

// What happens to Leases, and what policies report.
const (
	// OlderState: a cluster shows an older state than before, as after a restore of its etcd.
	OlderState Reason = "OlderState"
	// TooManyReaders: a cluster has more registrations of readers than are kept, so its terms must run out.
	TooManyReaders Reason = "TooManyReaders"
	// ReaderSilent: a registered reader did not release a revoked term, so that the term had to run out.
	ReaderSilent Reason = "ReaderSilent"
	// FenceMended: a fence in the cluster was edited or deleted, and the hub restores it.
	FenceMended Reason = "FenceMended"
	// TargetsFound: each fenced lock has a holder in the cluster that leads.
	TargetsFound Reason = "TargetsFound"
	// LockIdle: a fenced lock has had no holder in the cluster that leads for a while, so its name may be wrong.
	LockIdle Reason = "LockIdle"
	// LockUnseen: it is not known yet whether a fenced lock has a holder, or no cluster leads.
	LockUnseen Reason = "LockUnseen"
	// Conflict: another policy owns the namespace, or an older one fences a lock of the name of this policy's Leases.
	Conflict Reason = "Conflict"
	// Accepted: the policy is valid and acted on.
	Accepted Reason = "Accepted"
	// AllManaged: the policy manages all namespaces that it selects.
	AllManaged Reason = "AllManaged"
	// TooManyNamespaces: the policy selects more namespaces in one cluster only than it manages.
	TooManyNamespaces Reason = "TooManyNamespaces"
	// InvalidPolicy: the hub cannot act on the policy. It names a label that no object can have. Its last valid version
	// goes on.
	InvalidPolicy Reason = "InvalidPolicy"
	// InvalidSeal: the Secret with the key of the fleet's seal cannot be used, so that nothing is written for the fleet.
	InvalidSeal Reason = "InvalidSeal"
	// Ready: all other conditions are fine.
	Ready Reason = "Ready"
	// Reachable: most clusters of the policy answer.
	Reachable Reason = "Reachable"
	// Agree: the clocks of all clusters agree with the hub's.
	Agree Reason = "Agree"
	// NotMeasured: a clock was not measured closely enough yet.
	NotMeasured Reason = "NotMeasured"
	// Granted: the hub may read the Secrets of the fleet.
	Granted Reason = "Granted"
	// GrantMissing: the hub may not read them, or they cannot be listed, so it reaches no cluster of the fleet.
	GrantMissing Reason = "GrantMissing"
	// InForce: each cluster enforces the fences of the policy.
	InForce Reason = "InForce"
	// FenceUnchecked: it is not known yet whether a cluster enforces a fence of the policy.
	FenceUnchecked Reason = "FenceUnchecked"
	// Warns: the fences of the policy warn, and refuse nothing.
	Warns Reason = "Warns"
	// RecordRestored: a record that was deleted, or created again from a backup, is restored.
	RecordRestored Reason = "RecordRestored"
	// ClockContradicted: the clocks of all clusters prove that the hub's own is so wrong that no cluster could lead by it.
	ClockContradicted Reason = "ClockContradicted"
)

// What LeaderResourceSets report.
const (
	// InPlace: each reachable cluster has what the set keeps there. Of a record: all Leases say what they must.
	InPlace Reason = "InPlace"
	// Applying: not all clusters have it yet.
	Applying Reason = "Applying"
	// NotManaged: no policy manages the namespace of the set, so everything stays as it is.
	NotManaged Reason = "NotManaged"
	// InvalidSource: a source of a set cannot be read, or not all of it can be used.
	InvalidSource Reason = "InvalidSource"
	// NoSuchKind: the cluster does not serve the kind of an object. The hub tries again within seconds.
	NoSuchKind Reason = "NoSuchKind"
	// AppliedByOther: another manager has applied a field of an object, with another value.
	AppliedByOther Reason = "AppliedByOther"
	// KeptByOther: another set keeps the object.
	KeptByOther Reason = "KeptByOther"
	// NotAllowed: the hub lacks a right in the cluster that an object needs.
	NotAllowed Reason = "NotAllowed"
	// Rejected: the API server of the cluster has rejected an object.
	Rejected Reason = "Rejected"
	// InOrder: the last planned change has waited until the old leader's cluster had given way.
	InOrder Reason = "InOrder"
	// OutOfOrder: a planned change has gone on before that, because its time was over.
	OutOfOrder Reason = "OutOfOrder"
)
