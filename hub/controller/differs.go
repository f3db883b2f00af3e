package controller

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// differs reports whether two statuses say something different. Every decision asks it, so it does
// without reflection. As for the API server, an empty list is as good as none, and times are equal
// that are the same instant.
func differs(a, b *v1alpha1.NamespaceLeaderStatus) bool {
	return a.ObservedGeneration != b.ObservedGeneration ||
		a.Leader != b.Leader ||
		a.Epoch != b.Epoch ||
		a.RevokedEpoch != b.RevokedEpoch ||
		a.Phase != b.Phase ||
		a.Reason != b.Reason ||
		a.Message != b.Message ||
		!a.Since.Equal(b.Since) ||
		!a.AcquireTime.Equal(b.AcquireTime) ||
		a.LeaseDurationSeconds != b.LeaseDurationSeconds ||
		a.LeaseName != b.LeaseName ||
		!a.NotBefore.Equal(b.NotBefore) ||
		a.Next != b.Next ||
		a.Policy != b.Policy ||
		!slices.EqualFunc(a.Candidates, b.Candidates, sameCandidate) ||
		!slices.EqualFunc(a.History, b.History, sameChange) ||
		!slices.EqualFunc(a.Conditions, b.Conditions, sameCondition)
}

// The parts of a status are compared as a whole, apart from what == takes for different although
// it says the same.

func sameCandidate(a, b v1alpha1.Candidate) bool {
	if (a.Heeded == nil) != (b.Heeded == nil) || a.Heeded != nil && *a.Heeded != *b.Heeded {
		return false
	}
	a.Heeded, b.Heeded = nil, nil
	return a == b
}

func sameChange(a, b v1alpha1.Change) bool {
	if !a.Time.Time.Equal(b.Time.Time) {
		return false
	}
	a.Time, b.Time = metav1.MicroTime{}, metav1.MicroTime{}
	return a == b
}

func sameCondition(a, b metav1.Condition) bool {
	if !a.LastTransitionTime.Time.Equal(b.LastTransitionTime.Time) {
		return false
	}
	a.LastTransitionTime, b.LastTransitionTime = metav1.Time{}, metav1.Time{}
	return a == b
}
