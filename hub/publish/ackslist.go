package publish

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/assign"
)

// Queue keys that name no Lease. One lists the readers of the member, the other removes expired registrations.
var (
	listReadersKey   = types.NamespacedName{Name: "roll"}
	removeExpiredKey = types.NamespacedName{Name: "sweep"}
)

const (
	// readersTimeout bounds each list of readers, and each removal of a registration.
	readersTimeout = 3 * time.Second
	// listReadersEvery is how often readers are listed while no question is open. These lists find the
	// registrations of processes that died.
	listReadersEvery = 15 * time.Second
	// firstListPause and longestListPause bound the pause before readers are listed again while a question is
	// open. The pause doubles each time. Usually a watch is faster.
	firstListPause, longestListPause = 100 * time.Millisecond, time.Second
	// unknownSkew is used for ε until a policy's ε is known.
	unknownSkew = time.Minute
)

// ReaderSelector selects the registrations of readers in a member.
func ReaderSelector() labels.Selector {
	return labels.SelectorFromSet(labels.Set{v1alpha1.ReaderLabel: "true"})
}

// ObserveReader records a registration from a watch.
func (p *Publisher) ObserveReader(obj *coordinationv1.Lease) {
	p.mu.Lock()
	p.history.observe(obj.ResourceVersion)
	p.acks.skew = p.slack()
	p.acks.observe(obj, p.Clock.Now())
	done := p.noteReleases()
	p.mu.Unlock()
	p.notify(done)
}

// ObserveReaderGone records that a watch showed the end of a registration. Do not call it for a registration that a
// new list merely lacks: its reader may still act.
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

// listReaders lists the readers consistently. A list without a resource version is at least as new as everything
// that was answered before the list was sent.
func (p *Publisher) listReaders(ctx context.Context) {
	p.mu.Lock()
	asked, newest := p.acks.asked, p.history.newestVersion
	p.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, readersTimeout)
	defer cancel()
	sent := p.Clock.Now()
	list, whole, err := p.pagesOfReaders(bounded)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		p.noteOutcome(false, sent, nil)
	} else {
		p.Log.V(1).Info("The readers could not be listed", "reason", reason.Unreachable, "err", err.Error())
	}
	p.mu.Lock()
	olderState := err == nil && (older(list.ResourceVersion, newest) || p.acks.contradicts(list.Items))
	was := p.toldFull // a watch may have exceeded the bound since
	if err == nil {
		if olderState {
			p.distrustAcks(list.ResourceVersion)
		}
		p.history.observe(list.ResourceVersion)
		p.acks.skew = p.slack()
		if whole {
			p.acks.observeList(list.Items, list.ResourceVersion, asked, p.Clock.Now())
		} else {
			p.acks.observePart(list.Items, p.Clock.Now())
		}
		if len(p.acks.expired(p.Clock.Now(), p.slack())) > 0 {
			p.Queue.Add(removeExpiredKey)
		}
	}
	done := p.noteReleases()
	p.listReadersLater()
	full := p.acks.full
	p.toldFull = full
	p.mu.Unlock()
	p.notify(done)
	p.logOlderState(olderState)
	if full != was {
		p.Log.Info("The bound on registrations of readers was passed, "+
			"so that planned changes wait until terms have run out, or is kept again",
			"reason", reason.TooManyReaders, "kept", !full, "bound", tooMany)
	}
	if full && !was {
		p.tellOfReader(types.NamespacedName{}, reason.TooManyReaders,
			tooMany+", so planned changes there wait until terms have run out: delete those that nobody needs")
	}
}

// readersPage is how many registrations one list request returns.
const readersPage = 500

// pagesOfReaders lists the registrations of readers, all in one state of the member. It stops when there are more
// than are kept, and then returns false.
func (p *Publisher) pagesOfReaders(ctx context.Context) (all *coordinationv1.LeaseList, whole bool, err error) {
	o := metav1.ListOptions{LabelSelector: ReaderSelector().String(), Limit: readersPage}
	bytes := 0
	for {
		page, err := p.Client.Leases(metav1.NamespaceAll).List(ctx, o)
		if err != nil {
			return nil, false, err
		}
		if all == nil {
			all = page
		} else {
			all.Items = append(all.Items, page.Items...)
		}
		if o.Continue = page.Continue; o.Continue == "" {
			return all, true, nil
		}
		bytes += page.Size()
		if len(all.Items) > maxRegistrations || bytes > maxRegistrationsBytes {
			return all, false, nil
		}
	}
}

// TooManyReaders reports whether the member's registrations exceed a bound. While they do, planned changes wait until
// terms have expired.
func (p *Publisher) TooManyReaders() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acks.full
}

// Readers returns how many registrations of readers the member is known to have.
func (p *Publisher) Readers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.acks.registrations)
}

// listReadersLater schedules the next list of readers. The caller holds mu.
func (p *Publisher) listReadersLater() {
	if !p.acks.unanswered() {
		p.Queue.AddAfter(listReadersKey, listReadersEvery)
		return
	}
	p.Queue.AddAfter(listReadersKey, p.listPause)
	p.listPause = min(2*p.listPause, longestListPause)
}

// noteReleases records in the status what all readers have released, and returns the namespaces. The caller holds
// mu, and calls notify after it has released mu.
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

// logSilent logs which readers had not answered a question when it ended.
func (p *Publisher) logSilent(key types.NamespacedName, readers []string) {
	if len(readers) > 0 {
		p.Log.Info("Readers did not release a revoked term, so that it had to run out",
			"reason", reason.WaitingForReaders, "lease", key, "readers", readers)
	}
	for _, name := range readers[:min(len(readers), mostTold)] {
		namespace, name, _ := strings.Cut(name, "/")
		p.tellOfReader(types.NamespacedName{Namespace: namespace, Name: name}, reason.ReaderSilent, fmt.Sprintf(
			"the reader %s/%s did not release the term of namespace %s, so that it had to run out: "+
				"see whether it runs, or delete its registration",
			namespace, name, key.Namespace))
	}
}

// mostTold bounds how many readers are reported after one handover.
const mostTold = 5

func (p *Publisher) tellOfReader(registration types.NamespacedName, why reason.Reason, message string) {
	if p.TellOfReader != nil {
		p.TellOfReader(registration, why, message)
	}
}

// askReaders asks the readers to release a term, if the request of the step has certainly revoked it. The caller
// holds mu.
//
// The answers count only if no reader can be missing from the list, or can have missed the revocation. So
// askReaders does not ask:
//
//   - while the member's etcd, and its readers' registrations with it, may have been restored;
//   - while a late request may still create a leader's Lease, if this one is deleted;
//   - if readers may have accepted an edit with a higher epoch.
func (p *Publisher) askReaders(key types.NamespacedName, l *leaseSyncer, s step) {
	now := p.Clock.Now()
	if s.revokes == 0 || l.want.Role != assign.Revoke || l.want.Revoked.Epoch != s.revokes ||
		p.mayMissReaders(now, l.timings.LongestPromise) || now.Boot < l.createPendingUntil ||
		l.status.PoisonedEpoch > s.revokes {
		return
	}
	p.acks.ask(key, s.revokes)
	p.listReadersNow()
}
