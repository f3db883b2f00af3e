package publish

import (
	"cmp"
	"context"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// removeExpired removes the registrations of readers that must have stopped acting. A process that is still alive
// finds its registration gone, and registers again before it goes on.
func (r *Readers) removeExpired(ctx context.Context) {
	r.mu.Lock()
	dead := r.acks.expired(r.Clock.Now())
	r.mu.Unlock()
	for _, obj := range dead {
		if ctx.Err() != nil || !r.MayWrite(r.Clock.Now()) {
			return
		}
		if err := r.removeRegistration(ctx, obj); err != nil && ctx.Err() == nil {
			r.Log.V(1).Info("The expired registration of a reader could not be removed",
				"reason", reason.Unreachable,
				"lease", types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name},
				"err", err.Error())
		}
	}
}

// removeRegistration removes a registration, unless its reader has confirmed it since.
func (r *Readers) removeRegistration(ctx context.Context, obj *coordinationv1.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, readersTimeout)
	defer cancel()
	api := r.Client.Leases(obj.Namespace)
	if obj.DeletionTimestamp.IsZero() {
		if err := api.Delete(ctx, obj.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &obj.UID, ResourceVersion: &obj.ResourceVersion},
		}); err != nil {
			return err
		}
	}
	// A list of one: only lists of registrations are read with all that they may hold (package transport).
	found, err := api.List(ctx, metav1.ListOptions{
		LabelSelector: ReaderSelector().String(),
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, obj.Name).String(),
	})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(found.Items, func(l coordinationv1.Lease) bool { return l.UID == obj.UID })
	if i < 0 || !found.Items[i].Spec.RenewTime.Equal(obj.Spec.RenewTime) {
		return nil
	}
	wire.FreeRegistration(&found.Items[i])
	_, err = api.Update(ctx, &found.Items[i], metav1.UpdateOptions{FieldManager: v1alpha1.ManagedByValue})
	return err
}

// slack returns ε.
func (r *acks) slack() time.Duration { return cmp.Or(r.skew, unknownSkew) }

// longestDuration returns the longest time that a reader may act after it has confirmed its registration.
func (r *acks) longestDuration() (d time.Duration) {
	for _, e := range r.registrations {
		d = max(d, e.reader.Duration)
	}
	return d
}

// expired returns the registrations whose readers must have stopped acting, by both clocks: a wall clock that was
// stepped forward ends nothing. It forgets the ones that are missing.
func (r *acks) expired(now lease.Reading) (ls []*coordinationv1.Lease) {
	skew := r.slack()
	for uid, e := range r.registrations {
		d, until := e.reader.Duration, e.reader.Until()
		if e.unreadable || e.future {
			d = lease.MaxRegistration // its own duration is not trusted
		}
		if e.unreadable || e.future || e.missing {
			until = e.since.Wall.Add(d) // it may have been confirmed once more until then
		}
		switch {
		case now.Boot < e.since.Boot+d+skew, now.Wall.Before(until.Add(skew)):
		case e.missing:
			r.gone(uid)
		default:
			ls = append(ls, e.lease)
		}
	}
	slices.SortFunc(ls, func(a, b *coordinationv1.Lease) int { return cmp.Compare(a.UID, b.UID) })
	return ls
}
