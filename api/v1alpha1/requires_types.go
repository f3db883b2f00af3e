package v1alpha1

// Requires is what must be healthy in a cluster for it to lead a namespace. The hub reads objects there by the rights
// of config/requires.
//
// +kubebuilder:validation:XValidation:rule="has(self.resources) || has(self.reader) && self.reader",message="name resources, or set reader to true"
type Requires struct {
	// resources are kinds of objects. Those in the namespace with the label
	// leasecast.dev/required=true must be healthy: Deployments, StatefulSets and DaemonSets by
	// their status, others by their condition Available. Objects without that condition need
	// the condition Ready. Where no object has the label, all is healthy. Do not label a program that is Ready only while
	// it leads. A cluster with more than 2,000 such objects of a kind, or a fleet whose policies
	// name more than 32 kinds, counts as one that cannot be read.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Resources []RequiredResources `json:"resources,omitempty"`
	// reader requires at least one registered reader (member.Options.Registration) that follows
	// the namespace, in each cluster. Of a process that died, the hub removes the registration
	// once its last promise has passed.
	// +optional
	Reader bool `json:"reader,omitempty"` //nolint:kubeapilinter // yes or no, and no other answer
	// unhealthyAfterSeconds is how long some of it must not have been healthy, and how long all of
	// it must have been healthy in the cluster that leads next. A new replica of the hub starts
	// to count again.
	// +optional
	// +default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	UnhealthyAfterSeconds int32 `json:"unhealthyAfterSeconds,omitempty"`
}

// RequiredResources are resources of one API group and version.
type RequiredResources struct {
	// group is the API group. "" is the core group, as in a Role.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == '' || !format.dns1123Subdomain().validate(self).hasValue()",message="a group must be a DNS subdomain, such as apps"
	Group string `json:"group,omitempty"` //nolint:kubeapilinter // "" and no group both are the core group
	// version is the version of the group that the hub reads. Every cluster must serve it.
	// +optional
	// +default="v1"
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="a version must be a DNS label, such as v1"
	Version string `json:"version,omitempty"`
	// names are resources in the plural, such as deployments.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="a resource is named in the plural, in lower case and without subresources, such as deployments"
	Names []string `json:"names,omitempty"`
}
