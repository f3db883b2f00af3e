package publish

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
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

// Readers tracks the registered readers of a member, and asks them to release revoked terms.
type Readers struct {
	Options

	mu        sync.Mutex // guards what follows; never held across I/O
	acks      acks
	history   history
	toldFull  bool          // the last report was that registrations exceed a bound
	listPause time.Duration // until readers are listed again
}

// change applies a change. It calls the controller for namespaces whose revoked term all readers have now released.
func (r *Readers) change(f func()) {
	r.mu.Lock()
	f()
	released := r.acks.answered()
	r.mu.Unlock()
	for _, namespace := range released {
		r.Changed(namespace)
	}
}

// Observe records a registration from a watch.
func (r *Readers) Observe(obj *coordinationv1.Lease) {
	r.change(func() {
		r.history.observe(obj.ResourceVersion)
		r.acks.observe(obj, r.Clock.Now())
	})
}

// ObserveGone records that a watch showed the end of a registration. Do not call it for a registration that a new list
// merely lacks: its reader may still act.
func (r *Readers) ObserveGone(uid types.UID) {
	r.change(func() { r.acks.gone(uid) })
}

// TooMany reports whether the member's registrations exceed a bound. While they do, planned changes wait until terms
// have expired.
func (r *Readers) TooMany() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.acks.full
}

// Count returns how many registrations the member is known to have.
func (r *Readers) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.acks.registrations)
}

// begin starts with the version that the member shows at first.
func (r *Readers) begin(version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = history{newestVersion: version, since: r.Clock.Now().Boot}
	r.listNow()
}

// listNow has the readers listed at once. The caller holds mu.
func (r *Readers) listNow() {
	r.listPause = firstListPause
	r.Queue.Add(listReadersKey)
}

// list lists the readers consistently, and reports whether the member answered. A list without a resource version is
// at least as new as everything that was answered before the list was sent.
func (r *Readers) list(ctx context.Context) (answered bool) {
	r.mu.Lock()
	asked, newest := r.acks.asked, r.history.newestVersion
	r.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, readersTimeout)
	defer cancel()
	list, whole, err := r.pages(bounded)
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		r.Log.V(1).Info("The readers could not be listed", "reason", reason.Unreachable, "err", err.Error())
	} else {
		r.mu.Lock()
		olderState := older(list.ResourceVersion, newest) || r.acks.contradicts(list.Items)
		r.mu.Unlock()
		r.see(list.ResourceVersion, olderState)
	}
	var full, was bool
	r.change(func() {
		if err == nil {
			if whole {
				r.acks.observeList(list.Items, list.ResourceVersion, asked, r.Clock.Now())
			} else {
				r.acks.observePart(list.Items, r.Clock.Now())
			}
			if len(r.acks.expired(r.Clock.Now())) > 0 {
				r.Queue.Add(removeExpiredKey)
			}
		} else if errors.Is(err, r.TooLarge) {
			r.acks.full = true
		}
		full, was = r.acks.full, r.toldFull
		r.toldFull = full
	})
	r.listLater()
	if full != was {
		r.Log.Info("The bound on registrations of readers was passed, "+
			"so that planned changes wait until terms have run out, or is kept again",
			"reason", reason.TooManyReaders, "kept", !full, "bound", tooMany)
	}
	if full && !was {
		r.TellOfReader(types.NamespacedName{}, reason.TooManyReaders,
			tooMany+", so planned changes there wait until terms have run out: delete those that nobody needs")
	}
	return err == nil
}

// listLater schedules the next list of readers.
func (r *Readers) listLater() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.acks.unanswered() {
		r.Queue.AddAfter(listReadersKey, listReadersEvery)
		return
	}
	r.Queue.AddAfter(listReadersKey, r.listPause)
	r.listPause = min(2*r.listPause, longestListPause)
}

// readersPage is how many registrations one list request returns.
const readersPage = 500

// pages lists the registrations of readers, all in one state of the member. It stops when there are more
// than are kept, and then returns false.
func (r *Readers) pages(ctx context.Context) (all *coordinationv1.LeaseList, whole bool, err error) {
	o := metav1.ListOptions{LabelSelector: ReaderSelector().String(), Limit: readersPage}
	bytes := 0
	for {
		page, err := r.Client.Leases(metav1.NamespaceAll).List(ctx, o)
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

// ask asks the readers to release a term that was certainly revoked. The answers count only if no reader can be missing
// from the list. So ask does nothing while the member's etcd, and its readers' registrations with it, may have been
// restored. longestPromise is the longest D of any Lease in the member + ε.
func (r *Readers) ask(key types.NamespacedName, epoch int64, longestPromise time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	doubt := max(longestPromise, r.acks.longestDuration()+r.acks.slack())
	if r.Clock.Now().Boot < r.history.since+doubt {
		return
	}
	r.acks.ask(key, epoch)
	r.listNow()
}

// released returns the epoch of the term of a Lease that all readers have released, or zero.
func (r *Readers) released(key types.NamespacedName) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q := r.acks.questions[key.Namespace]; q != nil && q.lease == key && q.released {
		return q.epoch
	}
	return 0
}

// mostTold bounds how many readers are reported after one handover.
const mostTold = 5

// assigned records that a Lease has an assignment, under a policy with this ε. Unless that revokes a term, the readers
// need not answer any more. It reports those that have not.
func (r *Readers) assigned(key types.NamespacedName, revokes bool, skew time.Duration) {
	r.mu.Lock()
	r.acks.skew = max(r.acks.skew, skew)
	var silent []string
	if !revokes {
		silent = r.acks.cancel(key)
	}
	r.mu.Unlock()
	if len(silent) > 0 {
		r.Log.Info("Readers did not release a revoked term, so that it had to run out",
			"reason", reason.WaitingForReaders, "lease", key, "readers", silent)
	}
	for _, name := range silent[:min(len(silent), mostTold)] {
		namespace, name, _ := strings.Cut(name, "/")
		r.TellOfReader(types.NamespacedName{Namespace: namespace, Name: name}, reason.ReaderSilent, fmt.Sprintf(
			"the reader %s/%s did not release the term of namespace %s, so that it had to run out: "+
				"see whether it runs, or delete its registration",
			namespace, name, key.Namespace))
	}
}
