package publish

import (
	"crypto/sha256"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// Bounds on the registrations that are kept of a member, and of one account in it, and on their memory. Tenants
// write registrations. If a bound is exceeded, no answer of readers counts, and the hub waits until terms have
// expired.
const (
	MaxRegistrations      = 2000
	maxRegistrationsBytes = 8 << 20
	maxOfAccount          = 500
	maxBytesOfAccount     = 4 << 20
	// registrationOverhead is the memory of a registration beside its texts, in bytes.
	registrationOverhead = 512
)

// tooMany is the message for a member that exceeds the bounds of all its accounts together.
var tooMany = fmt.Sprintf("the cluster has more than %d registrations of readers, or more than %d MiB of them",
	MaxRegistrations, maxRegistrationsBytes>>20)

// all is the account under which all registrations are counted.
const all = ""

// usage is how many registrations there are, and how many bytes they take.
type usage struct{ registrations, bytes int }

// longestText is how many bytes of one text of a registration are kept. A valid text is not longer.
const longestText = 128 << 10

// SlimRegistration drops the fields of a registration that the hub does not use. It is a transform for caches.
func SlimRegistration(o any) (any, error) {
	if slim, ok := slimmed(o); ok {
		return slim, nil
	}
	return o, nil
}

func slimmed(o any) (slim *coordinationv1.Lease, ok bool) {
	l, ok := o.(*coordinationv1.Lease)
	if !ok {
		return nil, false
	}
	slim = &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         l.Namespace,
			Name:              l.Name,
			UID:               l.UID,
			ResourceVersion:   l.ResourceVersion,
			DeletionTimestamp: l.DeletionTimestamp,
			Labels:            l.Labels,
			Annotations:       map[string]string{},
		},
		Spec: l.Spec,
	}
	for key, text := range l.Annotations {
		slim.Annotations[key] = text[:min(len(text), longestText)]
	}
	if p := l.Spec.HolderIdentity; p != nil && len(*p) > longestText {
		cut := (*p)[:longestText]
		slim.Spec.HolderIdentity = &cut
	}
	return slim, true
}

// digest identifies the content of a registration.
type digest [sha256.Size]byte

func digestOf(l *coordinationv1.Lease) digest {
	slim, _ := slimmed(l) // a watch shows only this part
	told := coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Labels: slim.Labels, Annotations: slim.Annotations},
		Spec:       slim.Spec,
	}
	content, err := told.Marshal() // deterministic: sorted map keys, times in microseconds
	if err != nil {
		return digest{} // plain data always marshals
	}
	return sha256.Sum256(content)
}

// newRegistration keeps the fields of a Lease that count.
func newRegistration(l *coordinationv1.Lease, content digest, now lease.Reading, skew time.Duration) *registration {
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
		content:    content,
		reader:     reader,
		account:    "account " + l.Annotations[v1alpha1.ReaderAccountAnnotation],
		unreadable: err != nil,
		future:     err == nil && reader.Confirmed.After(now.Wall.Add(skew)),
		since:      now,
	}
	e.bytes = registrationOverhead + len(e.account) + len(reader.Identity) + len(reader.Account)
	for _, name := range reader.Namespaces {
		e.bytes += len(name) + 16
	}
	for name := range reader.Released {
		e.bytes += len(name) + 48
	}
	return e
}

// store keeps a registration, unless it exceeds a bound.
func (r *acks) store(e *registration) {
	r.drop(e.lease.UID)
	together, account := r.used[all], r.used[e.account]
	switch {
	case together.registrations >= MaxRegistrations, together.bytes+e.bytes > maxRegistrationsBytes:
		r.full = tooMany
	case account.registrations >= maxOfAccount, account.bytes+e.bytes > maxBytesOfAccount:
		r.full = fmt.Sprintf("%.100q has more than %d registrations of readers in the cluster, or more than %d MiB of them",
			e.account, maxOfAccount, maxBytesOfAccount>>20)
	default:
		r.registrations[e.lease.UID] = e
		r.count(e, 1)
	}
}

// drop forgets a registration.
func (r *acks) drop(uid types.UID) {
	if e := r.registrations[uid]; e != nil {
		r.count(e, -1)
		delete(r.registrations, uid)
	}
}

// count adds a registration to the usage of its account and of all, or subtracts it.
func (r *acks) count(e *registration, sign int) {
	for _, of := range []string{all, e.account} {
		u := r.used[of]
		u.registrations += sign
		u.bytes += sign * e.bytes
		if r.used[of] = u; u.registrations == 0 {
			delete(r.used, of)
		}
	}
}
