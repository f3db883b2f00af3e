// Package wire turns a lease.Content into a coordination.k8s.io/v1 Lease and back. It is the only place that maps
// content to fields and annotations. Hub and readers share it. Authors of controllers use package member instead. This
// package may change with any version.
package wire

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// labels are on every Lease of a hub.
var labels = map[string]string{
	v1alpha1.ManagedLabel:   "true",
	v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue,
}

// Write puts the content, and its MAC, into l. Other content of l (UID, resourceVersion, labels of others) stays. It
// never sets strategy or preferredHolder, which would start the API server's own coordinated election. Times are cut to
// microseconds, as a Lease stores them: a little earlier, so a little less is promised.
//
// It fails if a Lease cannot store the content as it is. An epoch or a duration must fit 32 bits, a duration must be
// whole seconds, and a skew whole milliseconds.
func Write(c lease.Content, seal string, l *coordinationv1.Lease) error {
	if c.Epoch < 0 || c.Epoch > math.MaxInt32 {
		return fmt.Errorf("lease %s/%s: epoch %d does not fit leaseTransitions", c.Namespace, c.Name, c.Epoch)
	}
	seconds := c.Duration / time.Second
	if c.Duration%time.Second != 0 || seconds <= 0 || seconds > math.MaxInt32 {
		return fmt.Errorf("lease %s/%s: duration %v does not fit leaseDurationSeconds", c.Namespace, c.Name, c.Duration)
	}
	if c.Skew < 0 || c.Skew%time.Millisecond != 0 {
		return fmt.Errorf("lease %s/%s: clock skew %v is not whole milliseconds", c.Namespace, c.Name, c.Skew)
	}
	c.AcquireTime, c.RenewTime = c.AcquireTime.Truncate(time.Microsecond), c.RenewTime.Truncate(time.Microsecond)
	epoch, duration := int32(c.Epoch), int32(seconds)

	l.Namespace, l.Name = c.Namespace, c.Name
	if l.Labels == nil {
		l.Labels = map[string]string{}
	}
	maps.Copy(l.Labels, labels)
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	l.Annotations[v1alpha1.ClusterAnnotation] = c.Cluster
	l.Annotations[v1alpha1.ClusterUIDAnnotation] = c.ClusterUID
	l.Annotations[v1alpha1.HubAnnotation] = c.Hub
	if c.Skew != 0 {
		l.Annotations[v1alpha1.MaxClockSkewAnnotation] = strconv.FormatInt(c.Skew.Milliseconds(), 10)
	} else {
		delete(l.Annotations, v1alpha1.MaxClockSkewAnnotation)
	}
	if c.OpenLocks != "" {
		l.Annotations[v1alpha1.OpenLocksAnnotation] = c.OpenLocks
	} else {
		delete(l.Annotations, v1alpha1.OpenLocksAnnotation)
	}
	l.Annotations[v1alpha1.SealAnnotation] = seal
	l.Spec = coordinationv1.LeaseSpec{
		HolderIdentity:       &c.Holder,
		LeaseDurationSeconds: &duration,
		AcquireTime:          &metav1.MicroTime{Time: c.AcquireTime},
		RenewTime:            &metav1.MicroTime{Time: c.RenewTime},
		LeaseTransitions:     &epoch,
	}
	return nil
}

// Read returns the content of a Lease, and its seal. A missing field reads as its zero value, which promises nothing.
// Read does not verify the seal, which shows whether to believe the content.
func Read(l *coordinationv1.Lease) (c lease.Content, seal string) {
	c = lease.Content{
		Namespace:  l.Namespace,
		Name:       l.Name,
		Cluster:    l.Annotations[v1alpha1.ClusterAnnotation],
		ClusterUID: l.Annotations[v1alpha1.ClusterUIDAnnotation],
		Hub:        l.Annotations[v1alpha1.HubAnnotation],
		OpenLocks:  l.Annotations[v1alpha1.OpenLocksAnnotation],
	}
	if ms, err := strconv.ParseInt(l.Annotations[v1alpha1.MaxClockSkewAnnotation], 10, 32); err == nil {
		c.Skew = max(0, time.Duration(ms)*time.Millisecond)
	}
	if p := l.Spec.HolderIdentity; p != nil {
		c.Holder = *p
	}
	if p := l.Spec.LeaseTransitions; p != nil {
		c.Epoch = int64(*p)
	}
	if p := l.Spec.LeaseDurationSeconds; p != nil {
		c.Duration = time.Duration(*p) * time.Second
	}
	if p := l.Spec.AcquireTime; p != nil {
		c.AcquireTime = p.Time
	}
	if p := l.Spec.RenewTime; p != nil {
		c.RenewTime = p.Time
	}
	return c, l.Annotations[v1alpha1.SealAnnotation]
}

// Labelled reports whether a Lease has the label by which readers find it. The label is not sealed, but no reader sees
// a Lease without it. The other label names the writer of the Lease for people. It is restored with the next write
// only.
func Labelled(l *coordinationv1.Lease) bool { return l.Labels[v1alpha1.ManagedLabel] == "true" }

// MadeByHub reports whether a hub made the Lease, even if it was edited since: it carries any of the marks that only a
// hub writes. A Lease without them has another owner and is never overwritten.
func MadeByHub(l *coordinationv1.Lease) bool {
	if l.Labels[v1alpha1.ManagedLabel] != "" {
		return true
	}
	for _, key := range []string{v1alpha1.SealAnnotation, v1alpha1.ClusterAnnotation, v1alpha1.HubAnnotation} {
		if l.Annotations[key] != "" {
			return true
		}
	}
	return false
}
