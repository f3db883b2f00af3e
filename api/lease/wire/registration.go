package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
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
	// maxList bounds the annotations that grow with the number of namespaces, in bytes. An API server accepts
	// 256 KiB of annotations on one object.
	maxList = 96 << 10
	// maxName bounds identity and account, in bytes.
	maxName = 1024
)

// WriteRegistration puts the registration into l, and the finalizer that keeps it from vanishing while its process may
// act. Other content of l stays, and so does the time of its first confirmation. Times are cut to microseconds: a
// little earlier, so the reader may act a little less long.
//
// It fails, and writes nothing, if ReadRegistration would not return the same.
func WriteRegistration(r lease.Registration, l *coordinationv1.Lease) error {
	r.Confirmed = r.Confirmed.Truncate(time.Microsecond)
	released, _ := json.Marshal(r.Released) // numbers by names always marshal
	if r.Released == nil {
		released = []byte("{}")
	}
	namespaces := everywhere
	if len(r.Namespaces) > 0 {
		namespaces = strings.Join(r.Namespaces, ",")
	}
	written := l.DeepCopy()
	if written.Labels == nil {
		written.Labels = map[string]string{}
	}
	if written.Annotations == nil {
		written.Annotations = map[string]string{}
	}
	written.Labels[v1alpha1.ReaderLabel] = "true"
	written.Annotations[v1alpha1.ReaderNamespacesAnnotation] = namespaces
	written.Annotations[v1alpha1.ReaderReleasedAnnotation] = string(released)
	written.Annotations[v1alpha1.ReaderAccountAnnotation] = r.Account
	if !slices.Contains(written.Finalizers, v1alpha1.ReaderFinalizer) {
		written.Finalizers = append(written.Finalizers, v1alpha1.ReaderFinalizer)
	}
	seconds := int32(min(max(r.Duration/time.Second, 0), math.MaxInt32))
	written.Spec.HolderIdentity = &r.Identity
	written.Spec.LeaseDurationSeconds = &seconds
	written.Spec.RenewTime = &metav1.MicroTime{Time: r.Confirmed}
	if written.Spec.AcquireTime == nil {
		written.Spec.AcquireTime = &metav1.MicroTime{Time: r.Confirmed}
	}
	read, err := ReadRegistration(written)
	if err != nil {
		return err
	}
	if read.Duration != r.Duration || !slices.Equal(read.Namespaces, r.Namespaces) ||
		!maps.Equal(read.Released, r.Released) {
		return fmt.Errorf("registration %s/%s: %v in %q cannot be stored as it is",
			l.Namespace, l.Name, r.Duration, r.Namespaces)
	}
	*l = *written
	return nil
}

// ReadRegistration returns the content of a registration, which any writer may have written. If anything is missing,
// out of bounds or ambiguous, it returns an error that names the Lease. Such a reader counts as one that has never
// released anything.
func ReadRegistration(l *coordinationv1.Lease) (lease.Registration, error) {
	r, err := readRegistration(l)
	if err != nil {
		return lease.Registration{}, fmt.Errorf("registration %s/%s: %w", l.Namespace, l.Name, err)
	}
	return r, nil
}

func readRegistration(l *coordinationv1.Lease) (r lease.Registration, err error) {
	if got := l.Labels[v1alpha1.ReaderLabel]; got != "true" {
		return r, fmt.Errorf("label %s is %.20q, want true", v1alpha1.ReaderLabel, got)
	}
	if p := l.Spec.HolderIdentity; p != nil {
		r.Identity = *p
	}
	r.Account = l.Annotations[v1alpha1.ReaderAccountAnnotation]
	for _, s := range [...]struct{ what, says string }{
		{"spec.holderIdentity", r.Identity},
		{"annotation " + v1alpha1.ReaderAccountAnnotation, r.Account},
	} {
		if s.says == "" || len(s.says) > maxName {
			return r, fmt.Errorf("%s has %d bytes, want 1 to %d", s.what, len(s.says), maxName)
		}
	}
	if l.Spec.RenewTime == nil || l.Spec.RenewTime.IsZero() {
		return r, errors.New("spec.renewTime is missing")
	}
	r.Confirmed = l.Spec.RenewTime.Time
	if p := l.Spec.LeaseDurationSeconds; p != nil {
		r.Duration = time.Duration(*p) * time.Second
	}
	if r.Duration <= 0 || r.Duration > lease.MaxRegistration {
		return r, fmt.Errorf("spec.leaseDurationSeconds is %v, want 1s to %v", r.Duration, lease.MaxRegistration)
	}
	if r.Namespaces, err = readNamespaces(l.Annotations[v1alpha1.ReaderNamespacesAnnotation]); err != nil {
		return r, fmt.Errorf("annotation %s: %w", v1alpha1.ReaderNamespacesAnnotation, err)
	}
	if r.Released, err = readReleased(l.Annotations[v1alpha1.ReaderReleasedAnnotation]); err != nil {
		return r, fmt.Errorf("annotation %s: %w", v1alpha1.ReaderReleasedAnnotation, err)
	}
	return r, nil
}

// ReadClaims returns the namespaces that a registration names, also if the rest of it cannot be read. It returns nil,
// which means all, if they cannot be read either.
func ReadClaims(l *coordinationv1.Lease) []string {
	names, err := readNamespaces(l.Annotations[v1alpha1.ReaderNamespacesAnnotation])
	if err != nil {
		return nil
	}
	return names
}

func readNamespaces(text string) ([]string, error) {
	if len(text) > maxList {
		return nil, fmt.Errorf("has %d bytes, want at most %d", len(text), maxList)
	}
	if text == everywhere {
		return nil, nil
	}
	names := strings.Split(text, ",")
	for i, name := range names {
		if err := validNamespace(name); err != nil {
			return nil, err
		}
		if i > 0 && name <= names[i-1] {
			return nil, fmt.Errorf("%q comes after %q, want ascending order", name, names[i-1])
		}
	}
	return names, nil
}

// readReleased reads a JSON object of namespaces and epochs. It rejects a name that comes twice, which encoding/json
// alone would accept.
func readReleased(text string) (map[string]int64, error) {
	if len(text) > maxList {
		return nil, fmt.Errorf("has %d bytes, want at most %d", len(text), maxList)
	}
	if text == "{}" { // nearly always: this runs for each renewal of each reader
		return nil, nil
	}
	var epochs map[string]*int32 // as many bits as the epoch of a Lease has
	if err := json.Unmarshal([]byte(text), &epochs); err != nil || epochs == nil {
		return nil, fmt.Errorf("is no JSON object with epochs of 0 to %d", math.MaxInt32)
	}
	if len(epochs) == 0 {
		return nil, nil
	}
	released := make(map[string]int64, len(epochs))
	for name, epoch := range epochs {
		if err := validNamespace(name); err != nil {
			return nil, err
		}
		if epoch == nil || *epoch < 0 {
			return nil, fmt.Errorf("namespace %s has no epoch of 0 to %d", name, math.MaxInt32)
		}
		released[name] = int64(*epoch)
	}
	if strings.Count(text, ":") != len(epochs) { // no name contains one
		return nil, errors.New("a namespace comes twice")
	}
	return released, nil
}

func validNamespace(name string) error {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Errorf("%.70q is no name of a namespace", name)
	}
	return nil
}

// FreeRegistration removes the finalizer, so that the registration can be deleted.
func FreeRegistration(l *coordinationv1.Lease) {
	l.Finalizers = slices.DeleteFunc(l.Finalizers, func(f string) bool { return f == v1alpha1.ReaderFinalizer })
}
