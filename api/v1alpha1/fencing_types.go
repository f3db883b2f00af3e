package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fencing says what the API server of each cluster refuses outside the term of the leader,
// whatever program asks for it, also while the hub is silent. The hub keeps a
// ValidatingAdmissionPolicy for each list in every cluster of the policy, for the
// namespaces that match there.
//
// +kubebuilder:validation:XValidation:rule="has(self.writes) || has(self.schedules) || has(self.leaderElectionLocks)",message="say what is fenced: leaderElectionLocks, writes or schedules"
type Fencing struct {
	// enforcement says what becomes of an act that a fence is about. Deny: it is refused, and
	// a cluster where the fence is not in force is not newly chosen. Warn: it is let through,
	// with a warning to whoever asks and a note in the audit log of the API server.
	// +optional
	// +kubebuilder:validation:Enum=Deny;Warn
	// +default="Deny"
	Enforcement Enforcement `json:"enforcement,omitempty"`

	// leaderElectionLocks are the locks that unchanged controllers elect themselves with. A
	// lock can be taken and renewed only where its cluster leads the namespace of the policy,
	// and before the end of the term. So the controller works in one cluster only, and stops
	// by itself in one that the hub has lost. The next cluster leads when the holder of the
	// slowest lock must have stopped: renewDeadlineSeconds, requestTimeoutSeconds,
	// retryPeriodSeconds and releaseTimeoutSeconds after the end of the term. The policy names
	// exactly one namespace. A lock in another one, such as kube-system, is fenced where an
	// administrator of the cluster has labelled that Namespace leasecast.dev/fencing=allowed.
	// A cluster without the label is not newly chosen, and the lock is opened in no cluster.
	// While locks are denied, handover waits as with Expiry. The condition
	// FenceTargetsFound warns of a lock that nobody holds in the cluster that leads.
	// +optional
	// +listType=map
	// +listMapKey=namespace
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	LeaderElectionLocks []LockFence `json:"leaderElectionLocks,omitempty"`

	// writes refuses what service accounts write, or what anybody writes to objects with a
	// label: create, update, patch and delete. A delete, and an update that only takes fields
	// away or reorders them, tell the API server no time. So the one cluster that the hub has
	// lost may still do these after its term.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Writes []WriteFence `json:"writes,omitempty"`

	// schedules selects Jobs by their labels, so CronJobs by the labels of their jobTemplate.
	// Such a Job is created only where its cluster leads, before the end of the term, and
	// only for a tick that is not before the term. So no tick runs in two clusters, and one
	// that falls between two terms is run by nobody. What runs already goes on. While
	// schedules are denied, handover waits as with Expiry.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator == 'In' || e.operator == 'NotIn' ? has(e.values) && size(e.values) > 0 : (e.operator == 'Exists' || e.operator == 'DoesNotExist') && (!has(e.values) || size(e.values) == 0))",message="each of matchExpressions needs the operator In or NotIn and values, or the operator Exists or DoesNotExist and no values"
	Schedules *metav1.LabelSelector `json:"schedules,omitempty"`
}

// Enforcement is what becomes of an act that a fence is about.
type Enforcement string

// The two enforcements; see Fencing.
const (
	EnforcementDeny Enforcement = "Deny"
	EnforcementWarn Enforcement = "Warn"
)

// LockFence is the Lease that a controller elects itself with, and the durations of its elector.
//
// +kubebuilder:validation:XValidation:rule="self.leaseDurationSeconds > self.renewDeadlineSeconds",message="no elector accepts this: leaseDurationSeconds must be more than renewDeadlineSeconds"
// +kubebuilder:validation:XValidation:rule="self.renewDeadlineSeconds * 5 > self.retryPeriodSeconds * 6",message="no elector accepts this: renewDeadlineSeconds must be more than 1.2 times retryPeriodSeconds"
// +kubebuilder:validation:XValidation:rule="!(self.__namespace__ == 'kube-system' && (self.name in ['kube-controller-manager', 'kube-scheduler', 'cloud-controller-manager'] || self.name.startsWith('apiserver-')))",message="the cluster itself works with this Lease: a follower would have no controllers, no scheduler or no API server. Give a second instance a lock of another name"
type LockFence struct {
	// namespace is that of the Lease.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="a namespace name must be a DNS label, such as cert-manager"
	// +kubebuilder:validation:XValidation:rule="self != 'kube-node-lease'",message="the Leases of kube-node-lease are the heartbeats of nodes: without them all Pods of a follower would be evicted"
	Namespace string `json:"namespace,omitempty"`
	// name is that of the Lease. The hub writes those of this policy's leaseName itself, and
	// all that begin with leasecast-, so none of them is a lock.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="the name of a Lease must be a DNS subdomain, such as cert-manager-controller"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('leasecast-')",message="the Leases whose names begin with leasecast- are the hub's own, and none of them is a lock: take it out of leaderElectionLocks"
	Name string `json:"name,omitempty"`
	// leaseDurationSeconds is the lease duration of the controller's elector.
	// +required
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=3600
	LeaseDurationSeconds int32 `json:"leaseDurationSeconds,omitempty"`
	// renewDeadlineSeconds is its renew deadline.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	RenewDeadlineSeconds int32 `json:"renewDeadlineSeconds,omitempty"`
	// retryPeriodSeconds is its retry period.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	RetryPeriodSeconds int32 `json:"retryPeriodSeconds,omitempty"`
	// requestTimeoutSeconds is the longest request of the elector's client. Without it, it is
	// 60, after which an API server ends a request, or renewDeadlineSeconds if that is longer.
	// With a shorter one you state that this client has that timeout. In controller-runtime it
	// is half of the renew deadline, at least 1 s, from v0.22 on; v0.21 and older set none.
	// client-go sets the same half only in resourcelock.NewFromKubeconfig. Any other client
	// has the Timeout of its rest.Config, which is none unless the program sets it.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	RequestTimeoutSeconds int32 `json:"requestTimeoutSeconds,omitempty"`
	// releaseTimeoutSeconds is how long the elector may take to release a lock that it has
	// lost, before it cancels the work (ReleaseOnCancel). With 0 you state that it releases
	// none. In client-go the renew deadline bounds a release from v0.31 on. Before that only
	// the request timeout does. Without this field two requests are counted.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	ReleaseTimeoutSeconds *int32 `json:"releaseTimeoutSeconds,omitempty"`
}

// WriteFence names resources that are written in the leading cluster only: by these service accounts, or all objects
// with these labels.
//
// +kubebuilder:validation:ExactlyOneOf=serviceAccounts;objectLabels
type WriteFence struct {
	// serviceAccounts are those whose writes are fenced. Other users are not.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	ServiceAccounts []FencedServiceAccount `json:"serviceAccounts,omitempty"`

	// objectLabels fences all objects that have these labels, whoever writes them,
	// administrators and the programs of its network or its storage too. The labels before
	// and after the write count. One can be given another value, and not be taken off. A
	// scale, an eviction and a binding show no labels, so they are not caught. The cluster
	// itself is not fenced: the users system:* and the accounts of kube-* namespaces.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=8
	ObjectLabels map[string]string `json:"objectLabels,omitempty"`

	// resources are what they write, with all subresources.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Resources []FencedResources `json:"resources,omitempty"`
}

// FencedServiceAccount is an account of a member.
type FencedServiceAccount struct {
	// namespace is that of the account. Without it the account is that of the namespace
	// that is written to. An account in a namespace that is not the policy's is fenced where
	// an administrator of the cluster has labelled that Namespace
	// leasecast.dev/fencing=allowed. A cluster without the label is not newly chosen.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="a namespace name must be a DNS label, such as team-a"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('kube-')",message="the accounts of kube-* namespaces cannot be fenced: the cluster itself works with them, and cleans up namespaces"
	Namespace string `json:"namespace,omitempty"`
	// name is that of the account.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="the name of an account must be a DNS subdomain, such as checkout"
	Name string `json:"name,omitempty"`
}

// FencedResources are resources of one API group. Those that are in no namespace cannot be fenced.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.group) && self.group == 'coordination.k8s.io' && 'leases' in self.names)",message="Leases cannot be fenced: the elections of programs, the heartbeats of nodes and the hub write them in every cluster"
type FencedResources struct {
	// group is the API group. "" is the core group, as in a Role: that of Pods and ConfigMaps.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == '' || !format.dns1123Subdomain().validate(self).hasValue()",message="a group must be a DNS subdomain, such as apps"
	Group string `json:"group,omitempty"` //nolint:kubeapilinter // "" and no group both are the core group
	// names are resources in the plural, such as deployments.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="a resource is named in the plural, in lower case and without subresources, such as deployments"
	Names []string `json:"names,omitempty"`
}
