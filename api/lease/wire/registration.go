package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

const (
	// everywhere stands for all namespaces.
	everywhere = "*"
	// maxList bounds the list of namespaces, in bytes, as a member's admission policy does: each name costs time to check.
	maxList = 96 << 10
)

// WriteRegistration puts the registration into l, and the finalizer that keeps it from vanishing while its process may
// act. Other content of l stays, and so does the time of its first confirmation. Times are cut to microseconds: a
// little earlier, so the reader may act a little less long.
//
// It fails if ReadRegistration cannot read what was written.
func WriteRegistration(r lease.Registration, l *coordinationv1.Lease) error {
	released := []byte("{}")
	if r.Released != nil {
		released, _ = json.Marshal(r.Released) // strings and numbers always marshal
	}
	namespaces := everywhere
	if len(r.Namespaces) > 0 {
		namespaces = strings.Join(r.Namespaces, ",")
	}
	if l.Labels == nil {
		l.Labels = map[string]string{}
	}
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	l.Labels[v1alpha1.ReaderLabel] = "true"
	l.Annotations[v1alpha1.ReaderNamespacesAnnotation] = namespaces
	l.Annotations[v1alpha1.ReaderReleasedAnnotation] = string(released)
	l.Annotations[v1alpha1.ReaderAccountAnnotation] = r.Account
	if !slices.Contains(l.Finalizers, v1alpha1.ReaderFinalizer) {
		l.Finalizers = append(l.Finalizers, v1alpha1.ReaderFinalizer)
	}
	seconds := int32(r.Duration / time.Second)
	l.Spec.HolderIdentity = &r.Identity
	l.Spec.LeaseDurationSeconds = &seconds
	l.Spec.RenewTime = &metav1.MicroTime{Time: r.Confirmed.Truncate(time.Microsecond)}
	if l.Spec.AcquireTime == nil {
		l.Spec.AcquireTime = l.Spec.RenewTime.DeepCopy()
	}
	_, err := ReadRegistration(l)
	return err
}

// ReadRegistration returns the content of a registration. A member's admission policy bounds what a reader may write.
// So this checks only what the hub relies on, and returns an error that names the Lease. Such a reader counts as one
// that has never released anything.
func ReadRegistration(l *coordinationv1.Lease) (lease.Registration, error) {
	r := lease.Registration{Account: l.Annotations[v1alpha1.ReaderAccountAnnotation]}
	if p := l.Spec.HolderIdentity; p != nil {
		r.Identity = *p
	}
	if p := l.Spec.RenewTime; p != nil {
		r.Confirmed = p.Time
	}
	if p := l.Spec.LeaseDurationSeconds; p != nil {
		r.Duration = time.Duration(*p) * time.Second
	}
	var wrong, unnamed, unreleased error
	if r.Identity == "" || r.Account == "" || r.Confirmed.IsZero() ||
		r.Duration <= 0 || r.Duration > lease.MaxRegistration {
		wrong = fmt.Errorf("want holderIdentity, renewTime, the annotation %s, and leaseDurationSeconds of 1 to %.f",
			v1alpha1.ReaderAccountAnnotation, lease.MaxRegistration.Seconds())
	}
	r.Namespaces, unnamed = readNamespaces(l.Annotations[v1alpha1.ReaderNamespacesAnnotation])
	if text := l.Annotations[v1alpha1.ReaderReleasedAnnotation]; text != "{}" { // seldom: this runs for each renewal
		if json.Unmarshal([]byte(text), &r.Released) != nil {
			unreleased = fmt.Errorf("annotation %s is no JSON object with epochs", v1alpha1.ReaderReleasedAnnotation)
		}
	}
	if err := errors.Join(wrong, unnamed, unreleased); err != nil {
		return lease.Registration{}, fmt.Errorf("registration %s/%s: %w", l.Namespace, l.Name, err)
	}
	return r, nil
}

// ReadClaims returns the namespaces that a registration names, also if the rest of it cannot be read. It returns nil,
// which means all, if they cannot be read either.
func ReadClaims(l *coordinationv1.Lease) []string {
	names, _ := readNamespaces(l.Annotations[v1alpha1.ReaderNamespacesAnnotation])
	return names
}

func readNamespaces(text string) ([]string, error) {
	if text == everywhere {
		return nil, nil
	}
	if len(text) > maxList {
		return nil, fmt.Errorf("annotation %s has %d bytes: at most %d are read",
			v1alpha1.ReaderNamespacesAnnotation, len(text), maxList)
	}
	names := strings.Split(text, ",")
	for _, name := range names {
		if len(validation.IsDNS1123Label(name)) > 0 {
			return nil, fmt.Errorf("annotation %s: %.70q is no name of a namespace",
				v1alpha1.ReaderNamespacesAnnotation, name)
		}
	}
	return names, nil
}

// FreeRegistration removes the finalizer, so that the registration can be deleted.
func FreeRegistration(l *coordinationv1.Lease) {
	l.Finalizers = slices.DeleteFunc(l.Finalizers, func(f string) bool { return f == v1alpha1.ReaderFinalizer })
}
