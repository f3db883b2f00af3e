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
	listReadersKey   = types.NamespacedName{Name: "roll"}
	removeExpiredKey = types.NamespacedName{Name: "sweep"}
)

const (
	// readersTimeout bounds the list of readers, and each request that removes one.
	readersTimeout = 3 * time.Second
	// listReadersEvery is how often readers are listed while nothing is asked of them: this finds
	// the registrations of processes that died.
	listReadersEvery = 15 * time.Second
	// firstListPause and longestListPause bound the pause before readers that are asked are listed
	// again, which doubles from one to the other. A watch is faster, as a rule.
	firstListPause, longestListPause = 100 * time.Millisecond, time.Second
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
	p.history.observe(obj.ResourceVersion)
	p.acks.observe(obj, p.Clock.Now())
	done := p.noteReleases()
	p.mu.Unlock()
	p.notify(done)
}

// ObserveReaderGone takes in that a watch showed the end of a registration. It is not for
// one that a new list merely lacks: its reader may still act.
func (p *Publisher) ObserveReaderGone(uid types.UID) {
	p.mu.Lock()
	p.acks.gone(uid)
	done := p.noteReleases()
	p.mu.Unlock()
	p.notify(done)
}

// listReadersNow has the readers listed at once. The caller holds mu.
func (p *Publisher) listReadersNow() {
	p.listPause = firstListPause
	p.Queue.Add(listReadersKey)
}

// listReaders lists the readers consistently: with no resource version, a list is at least
// as new as everything that was answered before it was sent.
func (p *Publisher) listReaders(ctx context.Context) {
	p.mu.Lock()
	asked, newest := p.acks.asked, p.history.newestVersion
	p.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, readersTimeout)
	defer cancel()
	sent := p.Clock.Now()
	list, err := p.Client.Leases(metav1.NamespaceAll).List(bounded, metav1.ListOptions{LabelSelector: ReaderSelector().String()})
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		p.noteOutcome(false, sent, nil)
	} else {
		p.Log.V(1).Info("The readers could not be listed", "reason", reason.Unreachable, "err", err.Error())
	}
	p.mu.Lock()
	back := err == nil && (older(list.ResourceVersion, newest) || p.acks.contradicts(list.Items))
	if err == nil {
		if back {
			p.distrustAcks(list.ResourceVersion)
		}
		p.history.observe(list.ResourceVersion)
		p.acks.observeList(list.Items, list.ResourceVersion, asked, p.Clock.Now())
		if len(p.acks.expired(p.Clock.Now(), p.slack())) > 0 {
			p.Queue.Add(removeExpiredKey)
		}
	}
	done := p.noteReleases()
	p.listReadersLater()
	p.mu.Unlock()
	p.notify(done)
	p.logOlderState(back)
}

// listReadersLater has the readers listed again in a while. The caller holds mu.
func (p *Publisher) listReadersLater() {
	if !p.acks.unanswered() {
		p.Queue.AddAfter(listReadersKey, listReadersEvery)
		return
	}
	p.Queue.AddAfter(listReadersKey, p.listPause)
	p.listPause = min(2*p.listPause, longestListPause)
}

// noteReleases enters into the facts what all readers have released, and returns the
// namespaces. The caller holds mu, and tells of them after it.
func (p *Publisher) noteReleases() (namespaces []string) {
	for _, q := range p.acks.answered() {
		p.syncer(q.lease).status.Released = q.epoch
		namespaces = append(namespaces, q.lease.Namespace)
	}
	return namespaces
}

func (p *Publisher) notify(namespaces []string) {
	for _, namespace := range namespaces {
		p.Changed(namespace)
	}
}

// logSilent tells of readers for which nobody waits any more.
func (p *Publisher) logSilent(key types.NamespacedName, readers []string) {
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

// removeExpired removes the registrations of readers that must have stopped acting. A process
// that still lives finds its registration gone, and makes another before it goes on.
func (p *Publisher) removeExpired(ctx context.Context) {
	p.mu.Lock()
	dead := p.acks.expired(p.Clock.Now(), p.slack())
	p.mu.Unlock()
	for _, obj := range dead {
		if ctx.Err() != nil || !p.MayWrite(p.Clock.Now()) {
			return
		}
		if err := p.removeRegistration(ctx, obj); err != nil && ctx.Err() == nil {
			p.Log.V(1).Info("The registration of a dead reader could not be removed",
				"reason", reason.Unreachable, "lease", types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}, "err", err.Error())
		}
	}
}

// removeRegistration removes a registration, unless it was confirmed since.
func (p *Publisher) removeRegistration(ctx context.Context, obj *coordinationv1.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, readersTimeout)
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
