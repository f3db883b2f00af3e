// Package api is the API of the sample: a Guestbook holds a book, and a controller
// prints it. Group webapp.example.com, version v1.
//
// +kubebuilder:object:generate=true
// +groupName=webapp.example.com
// +versionName=v1
package api

import (
	_ "embed"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate ${CONTROLLER_GEN} object crd paths=. output:crd:dir=.

// GroupVersion is the group and version of this API.
var GroupVersion = schema.GroupVersion{Group: "webapp.example.com", Version: "v1"}

// CRD is the manifest of the Guestbook's CustomResourceDefinition.
//
//go:embed webapp.example.com_guestbooks.yaml
var CRD []byte

// AddToScheme adds the types of this API to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Guestbook{}, &GuestbookList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// GuestbookSpec is what the user writes.
type GuestbookSpec struct {
	// book is the text to print.
	// +required
	Book string `json:"book"`
}

// GuestbookStatus is what the controller of the leader cluster reports.
type GuestbookStatus struct {
	// book is the text that was last printed.
	// +optional
	Book string `json:"book,omitempty"`
	// epoch is the term in which it was printed.
	// +optional
	Epoch int64 `json:"epoch,omitempty"`
}

// Guestbook is a book to be printed by exactly one cluster at a time.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Book",type=string,JSONPath=`.spec.book`
// +kubebuilder:printcolumn:name="Printed",type=string,JSONPath=`.status.book`
// +kubebuilder:printcolumn:name="Epoch",type=integer,JSONPath=`.status.epoch`
type Guestbook struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what to print.
	// +required
	Spec GuestbookSpec `json:"spec"`
	// status is what has been printed here.
	// +optional
	Status GuestbookStatus `json:"status,omitempty"`
}

// GuestbookList is a list of Guestbooks.
//
// +kubebuilder:object:root=true
type GuestbookList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Guestbook `json:"items"`
}
