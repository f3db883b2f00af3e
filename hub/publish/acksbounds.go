package publish

import (
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
)

// Bounds on the registrations that are kept of a member, and on their memory. Tenants write registrations. If a bound
// is exceeded, no answer of readers counts, and the hub waits until terms have expired.
const (
	maxRegistrations      = 2000
	maxRegistrationsBytes = 8 << 20
	// registrationOverhead is the memory of a registration beside its texts, in bytes.
	registrationOverhead = 512
)

// tooMany is the message for a member that exceeds a bound.
var tooMany = fmt.Sprintf("the cluster has more than %d registrations of readers, or more than %d MiB of them",
	maxRegistrations, maxRegistrationsBytes>>20)

// newRegistration keeps the fields of a Lease that count.
func newRegistration(l *coordinationv1.Lease, now lease.Reading, skew time.Duration) *registration {
	reader, err := wire.ReadRegistration(l)
	if err != nil {
		reader = lease.Registration{Namespaces: wire.ReadClaims(l)}
	}
	e := &registration{
		lease: &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:         l.Namespace,
				Name:              l.Name,
				UID:               l.UID,
				ResourceVersion:   l.ResourceVersion,
				DeletionTimestamp: l.DeletionTimestamp,
			},
			Spec: coordinationv1.LeaseSpec{RenewTime: l.Spec.RenewTime},
		},
		reader:     reader,
		unreadable: err != nil,
		future:     err == nil && reader.Confirmed.After(now.Wall.Add(skew)),
		since:      now,
	}
	e.bytes = registrationOverhead + len(reader.Identity) + len(reader.Account)
	for _, name := range reader.Namespaces {
		e.bytes += len(name) + 16
	}
	for name := range reader.Released {
		e.bytes += len(name) + 48
	}
	return e
}

// equals reports whether two versions of a registration have the same content.
func (e *registration) equals(o *registration) bool {
	a, b := e.reader, o.reader
	return e.unreadable == o.unreadable && a.Confirmed.Equal(b.Confirmed) && a.Duration == b.Duration &&
		slices.Equal(a.Namespaces, b.Namespaces) && maps.Equal(a.Released, b.Released)
}

// store keeps a registration, unless it exceeds a bound.
func (r *acks) store(e *registration) {
	r.drop(e.lease.UID)
	if len(r.registrations) >= maxRegistrations || r.bytes+e.bytes > maxRegistrationsBytes {
		r.full = true
		return
	}
	r.registrations[e.lease.UID] = e
	r.bytes += e.bytes
}

// drop forgets a registration.
func (r *acks) drop(uid types.UID) {
	if e := r.registrations[uid]; e != nil {
		r.bytes -= e.bytes
		delete(r.registrations, uid)
	}
}
