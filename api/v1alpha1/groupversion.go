// Package v1alpha1 is the API of Leasecast: LeadershipPolicy, which a platform
// engineer writes, and NamespaceLeader, the record of who leads each managed
// namespace. Both live on the hub, in the namespace of the CAPI Clusters that they
// speak of.
//
// +kubebuilder:object:generate=true
// +groupName=leasecast.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of these types.
var GroupVersion = schema.GroupVersion{Group: "leasecast.dev", Version: "v1alpha1"}

var schemeBuilder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&LeadershipPolicy{}, &LeadershipPolicyList{},
		&NamespaceLeader{}, &NamespaceLeaderList{},
		&LeaderResourceSet{}, &LeaderResourceSetList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
})

// AddToScheme registers these types.
var AddToScheme = schemeBuilder.AddToScheme
