package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/reason"
)

// LeaderResourceSet keeps objects in place in the clusters of a namespace's policy: some where the
// leader is, some where it is not. Their manifests are in ConfigMaps and Secrets beside it, as those
// of a ClusterResourceSet are.
//
// It is no fence. A cluster that the hub cannot reach goes on to run what it ran.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=leaderrs,categories=leasecast
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.namespace`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:metadata:labels={"clusterctl.cluster.x-k8s.io=","clusterctl.cluster.x-k8s.io/move="}
type LeaderResourceSet struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata of an object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is what the user asks for.
	// +required
	Spec LeaderResourceSetSpec `json:"spec,omitzero"`
	// status is what the hub makes of it.
	// +optional
	Status LeaderResourceSetStatus `json:"status,omitempty,omitzero"` //nolint:kubeapilinter // no pointer
}

// LeaderResourceSetSpec is what the user asks for.
type LeaderResourceSetSpec struct {
	// namespace is the managed namespace whose leader decides. The objects are in it: others need
	// the verb place of the hub in the member (config/follow).
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="namespace cannot be changed: delete the set and create another one"
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="namespace must be the name of a namespace"
	Namespace string `json:"namespace,omitempty"`
	// resources are the sources of the objects.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Resources []LeaderResource `json:"resources,omitempty"`
	// intervalSeconds is how often everything is applied again. What a watch shows, the hub
	// repairs at once: a changed spec, or an object that was deleted.
	// +optional
	// +default=300
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	IntervalSeconds int32 `json:"intervalSeconds,omitempty"`
	// confirmWithinSeconds bounds how long a planned change waits: the old leader's cluster gets
	// the followers' objects while it still leads, and no Pod may be left of the Deployments,
	// StatefulSets and CronJobs that these stop. The status of a Deployment or StatefulSet must
	// be that of its last version, and count no replicas. A CronJob must have no active Job. After
	// that the change goes on, and the condition InOrder is False.
	// +optional
	// +default=60
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	ConfirmWithinSeconds int32 `json:"confirmWithinSeconds,omitempty"`
	// prune deletes the objects in the members that have left their source, or the form that the
	// cluster has. It also deletes all of them with the set.
	// +optional
	// +default=true
	Prune *bool `json:"prune,omitempty"` //nolint:kubeapilinter // yes or no, and no other answer
	// force takes fields over from other managers that have applied them. Without it, such a
	// conflict is a problem of the object.
	// +optional
	Force bool `json:"force,omitempty"` //nolint:kubeapilinter // yes or no, and no other answer
}

// LeaderResource is one source of objects, and where they belong.
type LeaderResource struct {
	// kind is ConfigMap or Secret. A Secret must have the type addons.cluster.x-k8s.io/resource-set.
	// +required
	Kind SourceKind `json:"kind,omitempty"`
	// name names the ConfigMap or Secret, in the namespace of the set.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// for says where the objects belong. An object that is in sources for Leader and for
	// Followers has two forms: it is replaced in place when its cluster's role changes.
	// +required
	For ClusterRole `json:"for,omitempty"`
}

// SourceKind is the kind of a source.
//
// +kubebuilder:validation:Enum=ConfigMap;Secret
type SourceKind string

// The kinds of sources.
const (
	SourceConfigMap SourceKind = "ConfigMap"
	SourceSecret    SourceKind = "Secret"
)

// SourceSecretType is the type of Secrets that are sources. ClusterResourceSet asks for the same.
const SourceSecretType = "addons.cluster.x-k8s.io/resource-set"

// ClusterRole is the role of a cluster in a namespace.
//
// +kubebuilder:validation:Enum=Leader;Followers;All
type ClusterRole string

const (
	// RoleLeader is the cluster that leads by the record, or leads on in a new term. While nobody leads, no other cluster
	// has it.
	RoleLeader ClusterRole = "Leader"
	// RoleFollowers are all other clusters of the policy.
	RoleFollowers ClusterRole = "Followers"
	// RoleAll are all clusters of the policy.
	RoleAll ClusterRole = "All"
)

// ConditionInOrder of a LeaderResourceSet is False when the last planned change has not waited for it any longer.
const ConditionInOrder = "InOrder"

// LeaderResourceSetStatus is what the hub makes of a set.
//
// +kubebuilder:validation:MinProperties=1
type LeaderResourceSetStatus struct {
	// conditions are Ready: the sources are sound, and each cluster has its objects; and InOrder.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=4
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the set that this status is about.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// clusters are the clusters of the policy, those with problems first. There may be more.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Clusters []ClusterResources `json:"clusters,omitempty"`
}

// ClusterResources is what one cluster has of a set.
type ClusterResources struct {
	// name names the Cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// role is Leader or Followers. It is absent if the set keeps nothing there any more.
	// +optional
	Role ClusterRole `json:"role,omitempty"`
	// hash identifies the manifests that were applied last without a problem.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Hash string `json:"hash,omitempty"`
	// appliedTime is when another hash was applied last.
	// +optional
	AppliedTime *metav1.Time `json:"appliedTime,omitempty"`
	// objects is how many objects are in place.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Objects *int32 `json:"objects,omitempty"`
	// problems are the first ones of those that are not.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Problems []ResourceProblem `json:"problems,omitempty"`
}

// ResourceProblem is why an object is not in place.
type ResourceProblem struct {
	// object is its kind, namespace and name. It is absent if the whole cluster has the problem.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Object string `json:"object,omitempty"`
	// reason is a word for the problem.
	// +required
	Reason reason.Reason `json:"reason,omitempty"` //nolint:kubeapilinter // its type bounds its length, in another package
	// message says what to do.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// LeaderResourceSetList is a list of sets.
//
// +kubebuilder:object:root=true
type LeaderResourceSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LeaderResourceSet `json:"items"`
}
