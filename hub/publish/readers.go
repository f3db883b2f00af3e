package publish

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// The keys in the queue that stand for no copy: to list the readers of the member, and to
// remove the registrations of dead ones.
var (
	rollKey  = types.NamespacedName{Name: "roll"}
	sweepKey = types.NamespacedName{Name: "sweep"}
)

const (
	// rollTimeout bounds the list of readers, and each request that removes one.
	rollTimeout = 3 * time.Second
	// rollEvery is how often readers are listed while nothing is asked of them: this finds
	// the registrations of processes that died.
	rollEvery = 15 * time.Second
	// rollFirst and rollSlowest bound the pause before readers that are asked are listed
	// again, which doubles from one to the other. A watch is faster, as a rule.
	rollFirst, rollSlowest = 100 * time.Millisecond, time.Second
	// unknownSkew stands for ε where no policy has said how large it is.
	unknownSkew = time.Minute
)

// ReaderSelector selects the registrations of readers in a member.
func ReaderSelector() labels.Selector {
	return labels.SelectorFromSet(labels.Set{v1alpha1.ReaderLabel: "true"})
}

// ObserveReader takes in a registration from a watch. The publisher keeps it.
func (p *Publisher) ObserveReader(obj *coordinationv1.Lease) {
	p.mu.Lock()
	p.past.shows(obj.ResourceVersion)
	p.roll.see(obj, p.Clock.Now())
	done := p.released()
	p.mu.Unlock()
	p.tell(done)
}

// ObserveReaderGone takes in that a watch showed the end of a registration. It is not for
// one that a new list merely lacks: its reader may still act.
func (p *Publisher) ObserveReaderGone(uid types.UID) {
	p.mu.Lock()
	p.roll.gone(uid)
	done := p.released()
	p.mu.Unlock()
	p.tell(done)
}

// askSoon has the readers listed at once. The caller holds mu.
func (p *Publisher) askSoon() {
	p.rollPause = rollFirst
	p.Queue.Add(rollKey)
}

// callRoll lists the readers consistently: with no resource version, a list is at least
// as new as everything that was answered before it was sent.
func (p *Publisher) callRoll(ctx context.Context) {
	p.mu.Lock()
	asked, newest := p.roll.asked, p.past.newest
	p.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, rollTimeout)
	defer cancel()
	sent := p.Clock.Now()
	list, err := p.Client.Leases(metav1.NamespaceAll).List(bounded, metav1.ListOptions{LabelSelector: ReaderSelector().String()})
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		p.heard(false, sent, nil)
	} else {
		p.Log.V(1).Info("The readers could not be listed", "reason", reason.Unreachable, "err", err.Error())
	}
	p.mu.Lock()
	back := err == nil && (older(list.ResourceVersion, newest) || p.roll.contradicts(list.Items))
	if err == nil {
		if back {
			p.wentBack(list.ResourceVersion)
		}
		p.past.shows(list.ResourceVersion)
		p.roll.list(list.Items, list.ResourceVersion, asked, p.Clock.Now())
		if len(p.roll.dead(p.Clock.Now(), p.slack())) > 0 {
			p.Queue.Add(sweepKey)
		}
	}
	done := p.released()
	p.askAgain()
	p.mu.Unlock()
	p.tell(done)
	p.tellBack(back)
}

// askAgain has the readers listed again in a while. The caller holds mu.
func (p *Publisher) askAgain() {
	if !p.roll.open() {
		p.Queue.AddAfter(rollKey, rollEvery)
		return
	}
	p.Queue.AddAfter(rollKey, p.rollPause)
	p.rollPause = min(2*p.rollPause, rollSlowest)
}

// released enters into the facts what all readers have released, and returns the
// namespaces. The caller holds mu, and tells of them after it.
func (p *Publisher) released() (namespaces []string) {
	for _, q := range p.roll.answered() {
		p.syncer(q.copy).facts.Released = q.epoch
		namespaces = append(namespaces, q.copy.Namespace)
	}
	return namespaces
}

func (p *Publisher) tell(namespaces []string) {
	for _, namespace := range namespaces {
		p.Changed(namespace)
	}
}

// tellSilent tells of readers for which nobody waits any more.
func (p *Publisher) tellSilent(key types.NamespacedName, readers []string) {
	if len(readers) > 0 {
		p.Log.Info("Readers did not release a revoked term, so that it had to run out",
			"reason", reason.WaitingForReaders, "lease", key, "readers", readers)
	}
}

// slack is ε. The caller holds mu.
func (p *Publisher) slack() time.Duration {
	if p.skew == 0 {
		return unknownSkew
	}
	return p.skew
}

// sweep removes the registrations of readers that must have stopped acting. A process
// that still lives finds its registration gone, and makes another before it goes on.
func (p *Publisher) sweep(ctx context.Context) {
	p.mu.Lock()
	dead := p.roll.dead(p.Clock.Now(), p.slack())
	p.mu.Unlock()
	for _, obj := range dead {
		if ctx.Err() != nil || !p.MayStamp(p.Clock.Now()) {
			return
		}
		if err := p.bury(ctx, obj); err != nil && ctx.Err() == nil {
			p.Log.V(1).Info("The registration of a dead reader could not be removed",
				"reason", reason.Unreachable, "lease", types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}, "err", err.Error())
		}
	}
}

// bury removes a registration, unless it was confirmed since.
func (p *Publisher) bury(ctx context.Context, obj *coordinationv1.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, rollTimeout)
	defer cancel()
	api := p.Client.Leases(obj.Namespace)
	if obj.DeletionTimestamp.IsZero() {
		err := api.Delete(ctx, obj.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &obj.UID, ResourceVersion: &obj.ResourceVersion}})
		if err != nil {
			return ignoreNotFound(err)
		}
	}
	left, err := api.Get(ctx, obj.Name, metav1.GetOptions{})
	if err != nil || left.UID != obj.UID || !left.Spec.RenewTime.Equal(obj.Spec.RenewTime) {
		return ignoreNotFound(err)
	}
	wire.FreeRegistration(left)
	_, err = api.Update(ctx, left, metav1.UpdateOptions{FieldManager: v1alpha1.ManagedByValue})
	return ignoreNotFound(err)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
