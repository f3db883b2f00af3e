package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LeadershipPolicy says which member namespaces have one leader cluster, and how
// fast that leader is replaced. It sees only the CAPI Clusters of its own namespace.
// A Cluster takes part when it carries the label leasecast.dev/priority.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=lspol,categories=leasecast
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Namespaces",type=integer,JSONPath=`.status.namespaces`
// +kubebuilder:printcolumn:name="Clusters",type=integer,JSONPath=`.status.clusters`
// +kubebuilder:printcolumn:name="Fences",type=string,JSONPath=`.status.conditions[?(@.type=="FencesInForce")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:metadata:labels={"clusterctl.cluster.x-k8s.io=","clusterctl.cluster.x-k8s.io/move="}
type LeadershipPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata of an object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is what the user asks for.
	// +required
	Spec LeadershipPolicySpec `json:"spec,omitzero"`
	// status is what the hub makes of it.
	// +optional
	Status LeadershipPolicyStatus `json:"status,omitempty,omitzero"`
}

// LeadershipPolicySpec is what the user asks for.
//
// +kubebuilder:validation:XValidation:rule="has(self.leaseName) == has(oldSelf.leaseName) && (!has(self.leaseName) || self.leaseName == oldSelf.leaseName)",message="leaseName cannot be changed, because readers in every cluster know it: delete the policy and create it again with the other name"
// +kubebuilder:validation:XValidation:rule="!has(self.fencing) || !has(self.fencing.leaderElectionLocks) || has(self.namespaces.names) && size(self.namespaces.names) == 1 && !has(self.namespaces.selector)",message="leaderElectionLocks follow the leader of one namespace: name exactly one in namespaces.names, and select none"
// +kubebuilder:validation:XValidation:rule="!has(self.fencing) || !has(self.fencing.leaderElectionLocks) || !self.fencing.leaderElectionLocks.exists(l, l.name == (has(self.leaseName) ? self.leaseName : 'leasecast'))",message="a lock has the name of the Leases that the hub writes itself: take it out of leaderElectionLocks, or choose another leaseName"
// +kubebuilder:validation:XValidation:rule="!has(self.timings) || !has(self.timings.leaseDurationMilliseconds) || self.timings.leaseDurationMilliseconds <= 3600000 || has(self.failover) && self.failover == 'Manual' && (!has(self.fencing) || !has(self.fencing.leaderElectionLocks) && !has(self.fencing.schedules))",message="leaseDurationMilliseconds of more than 3600000 needs failover Manual, and neither leaderElectionLocks nor schedules in fencing"
// +kubebuilder:validation:XValidation:rule="!has(self.publish) || !has(self.publish.clusterLabels) || !self.publish.clusterLabels || has(self.namespaces.names) && size(self.namespaces.names) <= 32 && !has(self.namespaces.selector)",message="each namespace of clusterLabels is a label of a Cluster: name at most 32 in namespaces.names, and select none"
type LeadershipPolicySpec struct {
	// clusterSelector narrows the Clusters that take part to those whose labels match.
	// Without it every Cluster of this namespace with a priority label takes part.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator == 'In' || e.operator == 'NotIn' ? has(e.values) && size(e.values) > 0 : (e.operator == 'Exists' || e.operator == 'DoesNotExist') && (!has(e.values) || size(e.values) == 0))",message="each of matchExpressions needs the operator In or NotIn and values, or the operator Exists or DoesNotExist and no values"
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`

	// namespaces says which member namespaces are managed. A namespace is managed while
	// it matches in any cluster that takes part. kube-* never matches.
	// +required
	Namespaces NamespaceSelection `json:"namespaces,omitzero"`

	// leaseName is the name of the Lease that the hub writes into each managed namespace
	// of each member. It cannot be changed.
	// +optional
	// +default="leasecast"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="leaseName must be a DNS subdomain, such as leasecast"
	LeaseName string `json:"leaseName,omitempty"`

	// timings say how long a leader may act without hearing from the hub, and so how fast
	// a lost leader is replaced. With the default profile that takes 11 to 16 seconds.
	// +optional
	// +default={}
	Timings Timings `json:"timings,omitempty,omitzero"` //nolint:kubeapilinter // no pointer: the default fills every field

	// health says when a cluster counts as lost.
	// +optional
	// +default={}
	Health Health `json:"health,omitempty,omitzero"` //nolint:kubeapilinter // no pointer: the default fills it

	// initialDelaySeconds is how long the first leader of a namespace waits for better
	// clusters: those with a higher priority that the hub is still connecting to, or in
	// which it has not seen the namespace yet. The hub counts from when it first saw the
	// namespace in any cluster. The wait ends early when no better cluster is missing.
	// +optional
	// +default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	InitialDelaySeconds *int32 `json:"initialDelaySeconds,omitempty"`

	// failover says who replaces a leader that the hub cannot reach. Automatic: the hub. Manual:
	// an operator, who annotates the NamespaceLeader with leasecast.dev/move-to; its condition
	// FailoverPending names the command. First leaders are chosen without an operator, and
	// planned changes go on as always.
	// +optional
	// +kubebuilder:validation:Enum=Automatic;Manual
	// +default="Automatic"
	Failover Choice `json:"failover,omitempty"`

	// failback says whether a better cluster that has recovered gets the lead back. Manual: only
	// after an edit of a priority or an ordered move. Automatic: when it has been able to lead
	// for failbackAfterSeconds without a break, by a planned change.
	// +optional
	// +kubebuilder:validation:Enum=Automatic;Manual
	// +default="Manual"
	Failback Choice `json:"failback,omitempty"`

	// failbackAfterSeconds is how long a better cluster must have been able to lead before it
	// gets the lead back, where failback is Automatic. A new replica of the hub starts to count again.
	// +optional
	// +default=300
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	FailbackAfterSeconds int32 `json:"failbackAfterSeconds,omitempty"`

	// placement says which of the clusters with the highest priority leads a namespace.
	// Priority: the first by name. Spread: they share the namespaces by a hash of the name. A
	// cluster that joins takes nothing by itself: a failback or the annotation
	// leasecast.dev/rebalance-at moves its share to it.
	// +optional
	// +kubebuilder:validation:Enum=Priority;Spread
	// +default="Priority"
	Placement Placement `json:"placement,omitempty"`

	// overrides prefer a cluster for one namespace above all priorities, while it may lead. An
	// edit counts like an edit of a priority.
	// +optional
	// +listType=map
	// +listMapKey=namespace
	// +kubebuilder:validation:MaxItems=1000
	Overrides []Override `json:"overrides,omitempty"`

	// requires says what must be healthy in a cluster for it to lead: an API server may be
	// healthy where the programs behind it are not. A cluster where some of it has not been
	// healthy for unhealthyAfterSeconds ranks last, and the leader is moved from there to a
	// cluster where all of it has been healthy for as long. Without one, the leader stays. What
	// the hub cannot read moves nothing. Where failover is Manual, the condition FailoverPending shows it.
	// +optional
	Requires *Requires `json:"requires,omitempty"`

	// maxConcurrentMoves is in how many namespaces of the policy the leader is changed as
	// planned at once: for a drain, an order, an edited priority or a failback. Others wait,
	// and their leaders go on. Lost leaders are replaced without waiting.
	// +optional
	// +default=20
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxConcurrentMoves int32 `json:"maxConcurrentMoves,omitempty"`

	// handover says what ends the term of a leader that is to be replaced. Expiry: the
	// deadline of its Lease. RegisteredReaders: as soon as all registered readers of its
	// cluster have stopped, or at the deadline if one of them does not report that. Choose
	// RegisteredReaders only where every process that acts on the Leases of these namespaces
	// registers (member.Options.Registration). For any other process, such as a script that
	// reads the Lease, two clusters would lead for up to the lease duration.
	// +optional
	// +kubebuilder:validation:Enum=Expiry;RegisteredReaders
	// +default="Expiry"
	Handover Handover `json:"handover,omitempty"`

	// fencing has the API server of each cluster refuse what is done outside the term of the
	// leader. So programs that know nothing of Leases act in one cluster only.
	// +optional
	Fencing *Fencing `json:"fencing,omitempty"`

	// publish shows who leads to controllers that know nothing of Leases. What it shows is a hint: it is late by nature,
	// and nobody may rely on it to act in one cluster only.
	// +optional
	Publish Publish `json:"publish,omitempty,omitzero"`
}

// Publish shows who leads to controllers that know nothing of Leases.
//
// +kubebuilder:validation:MinProperties=1
type Publish struct {
	// clusterLabels keeps the label leader.leasecast.dev/<namespace>: "true" on the Cluster that leads, for Cluster API's
	// ClusterResourceSets and others that select Clusters. Meanwhile the hub removes that label from other Clusters.
	// +optional
	ClusterLabels *bool `json:"clusterLabels,omitempty"`
}

// Choice is who does something: the hub, or an operator.
type Choice string

// The two choices; see LeadershipPolicySpec.
const (
	Automatic Choice = "Automatic"
	Manual    Choice = "Manual"
)

// Placement is which of several equally good clusters leads; see LeadershipPolicySpec.
type Placement string

// The two placements.
const (
	PlacementPriority Placement = "Priority"
	PlacementSpread   Placement = "Spread"
)

// Override prefers a cluster for one namespace.
type Override struct {
	// namespace is the managed namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// cluster is the name of the Cluster. Its priority there counts as 2147483647.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Cluster string `json:"cluster,omitempty"`
}

// Handover is what ends the term of a leader that is to be replaced.
type Handover string

// The two ways; see LeadershipPolicySpec.
const (
	HandoverExpiry            Handover = "Expiry"
	HandoverRegisteredReaders Handover = "RegisteredReaders"
)

// NamespaceSelection selects member namespaces by name or by label. Where it has both, it is
// the union: it selects what names lists and what selector matches.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="(has(self.names) && size(self.names) > 0) || has(self.selector)",message="name at least one namespace in names, or give a selector"
type NamespaceSelection struct {
	// names are namespaces that are managed wherever they exist, in addition to those that
	// selector matches.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="a namespace name must be a DNS label, such as team-a"
	// +kubebuilder:validation:items:XValidation:rule="!self.startsWith('kube-')",message="kube-* namespaces cannot be managed"
	Names []string `json:"names,omitempty"`

	// selector manages the namespaces whose labels match in a member. An empty selector
	// matches every namespace but kube-*. Of those that match in one member only, it manages
	// at most 500; see the condition AllManaged.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator == 'In' || e.operator == 'NotIn' ? has(e.values) && size(e.values) > 0 : (e.operator == 'Exists' || e.operator == 'DoesNotExist') && (!has(e.values) || size(e.values) == 0))",message="each of matchExpressions needs the operator In or NotIn and values, or the operator Exists or DoesNotExist and no values"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// Timings say how long a term lasts and how it is renewed. The default profile suits clusters
// in different regions. 3000, 1000, 500 and 250 suit clusters with good clocks and a short way
// between them. All are in milliseconds, because a request timeout and a clock skew are often
// less than a second, and one rule adds them up.
//
// The rule asks whether the fields are there, because the API server checks it on the empty
// default too, before it fills in the defaults of the fields.
//
// +kubebuilder:validation:XValidation:rule="!has(self.leaseDurationMilliseconds) || !has(self.renewIntervalMilliseconds) || !has(self.requestTimeoutMilliseconds) || !has(self.maxClockSkewMilliseconds) || 2 * self.renewIntervalMilliseconds + self.requestTimeoutMilliseconds + self.maxClockSkewMilliseconds <= self.leaseDurationMilliseconds",message="renewIntervalMilliseconds twice, requestTimeoutMilliseconds and maxClockSkewMilliseconds must not add up to more than leaseDurationMilliseconds, or one lost renewal ends the term: raise leaseDurationMilliseconds or lower the others"
type Timings struct {
	// leaseDurationMilliseconds is how long after its renewTime a Lease lets the leader act.
	// It is a multiple of 1000, because a Lease holds whole seconds. The hub's clock sets
	// renewTime just before it sends the Lease. A change counts from the next renewal on; the
	// hub waits for what it promised before. More than an hour needs failover Manual: then a hub
	// that is gone for that long stops nothing.
	// +optional
	// +default=15000
	// +kubebuilder:validation:Minimum=1000
	// +kubebuilder:validation:Maximum=86400000
	// +kubebuilder:validation:MultipleOf=1000
	LeaseDurationMilliseconds int32 `json:"leaseDurationMilliseconds,omitempty"`

	// renewIntervalMilliseconds is the time between two renewals of a leader's Lease.
	// +optional
	// +default=5000
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=3600000
	RenewIntervalMilliseconds int32 `json:"renewIntervalMilliseconds,omitempty"`

	// requestTimeoutMilliseconds is how long the hub waits for a member's answer to one
	// request.
	// +optional
	// +default=3000
	// +kubebuilder:validation:Minimum=50
	// +kubebuilder:validation:Maximum=3600000
	RequestTimeoutMilliseconds int32 `json:"requestTimeoutMilliseconds,omitempty"`

	// maxClockSkewMilliseconds is twice the largest error of any clock that takes part: the
	// hub's and those of the hosts of readers. At most one cluster leads while clocks are
	// that good. Every change of leader takes this much longer.
	// +optional
	// +default=1000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600000
	MaxClockSkewMilliseconds int32 `json:"maxClockSkewMilliseconds,omitempty"`
}

// Health says when a cluster counts as lost and when as recovered. The hub judges by
// its own requests: an authenticated read and the write path of renewals. Conditions of
// Cluster API decide nothing.
type Health struct {
	// unreachableAfterMilliseconds is how long the reads or the writes of a cluster may go
	// without an answer before it counts as lost. The hub counts from the sending of the
	// last one that was answered. The default is twice renewIntervalMilliseconds. A larger
	// value than leaseDurationMilliseconds and maxClockSkewMilliseconds together delays failover.
	// +optional
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=3600000
	UnreachableAfterMilliseconds int32 `json:"unreachableAfterMilliseconds,omitempty"`

	// recoverAfterMilliseconds is how long a lost cluster must answer again before it may be
	// chosen. The default is renewIntervalMilliseconds. A recovered cluster never takes
	// leadership back by itself.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600000
	RecoverAfterMilliseconds *int32 `json:"recoverAfterMilliseconds,omitempty"`

	// whenMostUnreachable says what happens to the namespaces of unreachable leaders when
	// more than half of the clusters become unreachable within one unreachableAfterMilliseconds, so
	// that it may well be the hub that is cut off. FailOver: a cluster that can still be
	// reached leads next, as always. Hold: nobody is replaced until one comes back. Either
	// way at most one cluster leads, and the condition ClustersReachable shows it.
	// +optional
	// +kubebuilder:validation:Enum=FailOver;Hold
	// +default="FailOver"
	WhenMostUnreachable WhenMostUnreachable `json:"whenMostUnreachable,omitempty"`
}

// WhenMostUnreachable is what to do when the observer itself may be at fault.
type WhenMostUnreachable string

// The two answers; see Health.
const (
	FailOverWhenMostUnreachable WhenMostUnreachable = "FailOver"
	HoldWhenMostUnreachable     WhenMostUnreachable = "Hold"
)

// Conditions of a LeadershipPolicy, besides ConditionReady, which is the sum of them.
const (
	// ConditionAccepted is True when the policy is valid and acted on. Its message warns if terms may lapse when a hub
	// replica is lost: the renew interval, the duration of the hub's own election, the request timeout and the clock
	// skew together do not fit into the lease duration. It is False with the reason Conflict while other
	// policies own some of the namespaces that it selects: it has no effect there. It is False with the reason
	// InvalidPolicy while the stored version is invalid: the last valid version stays in force.
	ConditionAccepted = "Accepted"
	// ConditionClustersReachable is False when more than half of the clusters became
	// unreachable at once: the hub itself may be cut off.
	ConditionClustersReachable = "ClustersReachable"
	// ConditionClocksAgree is False when a clock of a cluster is known to be farther from the
	// hub's than maxClockSkewMilliseconds, and Unknown while one was not measured closely enough yet.
	ConditionClocksAgree = "ClocksAgree"
	// ConditionSecretsGranted is False when the hub may not use the Secrets of the policy's namespace, or cannot list
	// them. They hold the kubeconfigs of its Clusters and the key of the seal. The message has the command that grants
	// it, or why the list fails. It is also False, with the reason InvalidSeal, when the Secret of the seal holds no key.
	ConditionSecretsGranted = "SecretsGranted"
	// ConditionAllManaged is False, with the reason TooManyNamespaces, while the policy leaves out namespaces that its
	// selector matches in one cluster only. It manages at most 500 of these: those that have a record, then the oldest.
	// The message has how many are left out, and in which clusters.
	ConditionAllManaged = "AllManaged"
	// ConditionFencesInForce is set while the policy asks for fencing, once the hub knows all Clusters. It is False
	// while a fence is missing in a cluster, which then is not newly chosen, and while no cluster takes part. Otherwise it
	// is Unknown while a fence was not checked: in the first minute after a start of the hub, and in a cluster that cannot
	// be reached since. Such a cluster is not newly chosen either.
	ConditionFencesInForce = "FencesInForce"
	// ConditionFenceTargetsFound is set while the policy fences locks. It is False while one of them has had no holder in
	// the cluster that leads for 2 minutes or three of its lease durations: its name may be wrong. It is Unknown until a
	// holder was seen, and while no cluster leads. It keeps no cluster from leading.
	ConditionFenceTargetsFound = "FenceTargetsFound"
)

// LeadershipPolicyStatus is what the hub makes of a policy.
//
// +kubebuilder:validation:MinProperties=1
type LeadershipPolicyStatus struct {
	// conditions are Ready, Accepted, ClustersReachable, ClocksAgree, SecretsGranted, AllManaged
	// and, where fencing is asked for, FencesInForce. Ready is the sum of the others: it is False if
	// one is False, and its message has their messages. Where locks are fenced, there is
	// FenceTargetsFound: False warns that no program holds a lock in the cluster that leads,
	// so that its name may be wrong. It keeps no cluster from leading.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that this status speaks of.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// namespaces is how many member namespaces this policy manages.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Namespaces *int32 `json:"namespaces,omitempty"`
	// clusters is how many Clusters it selects.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Clusters *int32 `json:"clusters,omitempty"`
	// unreachableAfterMilliseconds is what counts for health.unreachableAfterMilliseconds, also
	// where the policy leaves it out.
	// +optional
	// +kubebuilder:validation:Minimum=1
	UnreachableAfterMilliseconds int32 `json:"unreachableAfterMilliseconds,omitempty"`
	// recoverAfterMilliseconds is what counts for health.recoverAfterMilliseconds, also where
	// the policy leaves it out.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RecoverAfterMilliseconds *int32 `json:"recoverAfterMilliseconds,omitempty"`
}

// LeadershipPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type LeadershipPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LeadershipPolicy `json:"items"`
}
