package member

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	utilclock "k8s.io/utils/clock"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

const allNamespaces = metav1.NamespaceAll

// managed selects the Leases of the hub.
var managed = labels.Set{v1alpha1.ManagedLabel: "true"}.String()

// backoff is the wait after a failure. It stays short: a leader that cannot see its renewals has until its deadline,
// and clients wait for a successor.
var backoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 5, Cap: 3 * time.Second}

const (
	// steadyAfter is how long a watch has to last to count as working.
	steadyAfter = time.Second
	// watchTimeout is how long the API server keeps a watch open.
	watchTimeout = 10 * time.Minute
)

// errRelist reports that the next list is due now.
var errRelist = errors.New("the next list is due")

// watcher follows the Leases of one namespace, or of all: it lists them, watches on from there, and lists again when
// the watch has shown nothing for a while. client-go's reflector would not do that: a watch without events looks like a
// dead one, and a list is proof. The reflector also retries a refused watch without reporting the failure.
type watcher struct {
	namespace string
	client    coordinationv1client.LeaseInterface
	member    *Member
	synced    chan struct{}                      // closed by the first list
	jitter    float64                            // in [0, 1): readers of a silent hub do not list at once
	problem   atomic.Pointer[string]             // why the Leases cannot be followed; nil: they can
	known     atomic.Bool                        // a list since run began has been applied
	seen      atomic.Int64                       // when a list or an event last arrived, as in Reading.Boot
	asked     atomic.Int64                       // when the first unanswered list was sent, as in Reading.Boot; 0: none
	relist    atomic.Pointer[context.CancelFunc] // ends the last watch; nil: there was none

	// The fields below belong to run.
	took     time.Duration  // by the last list
	timeouts int            // since the last list
	delay    wait.DelayFunc // after the next failure
}

func newWatcher(m *Member, client coordinationv1client.LeasesGetter, namespace string) *watcher {
	w := &watcher{
		namespace: namespace, client: client.Leases(namespace), member: m,
		synced: make(chan struct{}), jitter: rand.Float64(),
	}
	w.seen.Store(int64(w.now()))
	return w
}

// String names the watch in errors.
func (w *watcher) String() string {
	if w.namespace == allNamespaces {
		return "all namespaces"
	}
	return "namespace " + w.namespace
}

func (w *watcher) now() time.Duration { return w.member.clock.Now().Boot }

// run follows the Leases until ctx ends.
func (w *watcher) run(ctx context.Context) {
	defer w.known.Store(false)
	w.delay = backoff.DelayFunc()
	for ctx.Err() == nil {
		began := w.now()
		err := w.follow(ctx)
		if lasted := w.now() - began; err == nil && lasted < steadyAfter {
			err = fmt.Errorf("watch leases: ended after %v", lasted)
		}
		if err != nil && !errors.Is(err, errRelist) && ctx.Err() == nil {
			w.problem.Store(w.member.reporter.failed("watch of "+w.String(), "Cannot follow leases", err, "scope", w.String()))
			pause(ctx, w.delay(), nil)
		}
	}
}

// follow lists, and watches on from there until the next list is due.
func (w *watcher) follow(ctx context.Context) error {
	version, err := w.list(ctx)
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opening := utilclock.RealClock{}.AfterFunc(w.timeout(), cancel)
	seconds := int64(watchTimeout / time.Second)
	stream, err := w.client.Watch(ctx, metav1.ListOptions{
		LabelSelector: managed, ResourceVersion: version, TimeoutSeconds: &seconds,
	})
	if err == nil {
		defer stream.Stop()
	}
	if !opening.Stop() {
		w.timeouts++
		err = context.DeadlineExceeded
	}
	if err != nil {
		return fmt.Errorf("watch leases: %w", err)
	}
	w.relist.Store(&cancel)
	return w.handleEvents(ctx, stream)
}

// handleEvents handles events until the next list is due: when the watch ends, or has shown nothing for a quarter to
// half of StaleAfter.
func (w *watcher) handleEvents(ctx context.Context, stream watch.Interface) error {
	quarter := w.member.stale / 4
	idle := utilclock.RealClock{}.NewTimer(quarter + rand.N(quarter))
	defer idle.Stop()
	steady := utilclock.RealClock{}.NewTimer(steadyAfter)
	defer steady.Stop()
	for {
		select {
		case e, open := <-stream.ResultChan():
			if !open {
				return nil
			}
			idle.Reset(quarter + rand.N(quarter))
			if err := w.handle(e); err != nil {
				return err
			}
		case <-steady.C():
			w.delay = backoff.DelayFunc()
			w.problem.Store(nil)
			w.member.reporter.works("watch of "+w.String(), "Follows leases again", "scope", w.String())
		case <-idle.C():
			return errRelist
		case <-ctx.Done():
			return errRelist
		}
	}
}

// list applies all Leases, and returns their version. It asks for no resourceVersion, so the answer is as new as etcd,
// and an API server that is cut off from etcd cannot answer.
func (w *watcher) list(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout())
	defer cancel()
	sent := w.now()
	w.asked.CompareAndSwap(0, int64(sent))
	list, err := w.client.List(ctx, metav1.ListOptions{LabelSelector: managed})
	switch {
	case errors.As(err, new(apierrors.APIStatus)):
		w.asked.Store(0) // it has answered
		return "", err
	case errors.Is(err, context.DeadlineExceeded):
		w.timeouts++
		return "", err
	case err != nil:
		return "", err
	}
	now := w.now()
	w.asked.Store(0)
	w.seen.Store(int64(now))
	w.took, w.timeouts = now-sent, 0
	w.member.terms.Replace(w.namespace, list.Items)
	w.known.Store(true)
	if !w.everListed() {
		close(w.synced)
	}
	w.member.logStates(w.namespace, len(list.Items))
	for i := range list.Items {
		if _, err := w.suit(&list.Items[i]); err != nil {
			return "", err
		}
	}
	return list.ResourceVersion, nil
}

// handle applies one event.
func (w *watcher) handle(e watch.Event) error {
	w.seen.Store(int64(w.now()))
	l, ok := e.Object.(*coordinationv1.Lease)
	if !ok {
		return fmt.Errorf("watch leases: %w", apierrors.FromObject(e.Object))
	}
	if e.Type == watch.Deleted {
		w.member.terms.Delete(l.Namespace, l.Name)
	} else {
		w.member.terms.Observe(l)
	}
	w.member.logState(l.Namespace)
	replaced, err := w.suit(l)
	if replaced && err == nil {
		return errRelist
	}
	return err
}

// suit has connections pinged often enough for the duration in a Lease. It reports whether they were replaced.
func (w *watcher) suit(l *coordinationv1.Lease) (replaced bool, err error) {
	c, _ := wire.Read(l)
	return w.member.connections.suit(c.Duration)
}

// timeout bounds the wait for an answer. Before an overdue renewal's term ends, two requests fit. A slow server gets
// more time: twice what the last list took, and twice as much after each timeout.
func (w *watcher) timeout() time.Duration {
	_, duration := w.member.connections.get()
	least := max(duration/8, leastTimeout, 2*w.took)
	return min(least<<min(w.timeouts, 10), w.member.stale/4)
}

// overdue is called when the renewal of a term is overdue, and often while it stays so. If the watch has shown nothing
// for two thirds of the term's duration, it may be dead, and overdue has it replaced. A list that shows no renewal
// counts as well, so a silent hub costs few lists.
func (w *watcher) overdue(now, duration time.Duration) {
	silence := duration*2/3 + time.Duration(w.jitter*float64(duration/12))
	if end := w.relist.Load(); end != nil && now-time.Duration(w.seen.Load()) >= silence {
		(*end)()
	}
}

// everListed reports whether the Leases were ever listed.
func (w *watcher) everListed() bool {
	select {
	case <-w.synced:
		return true
	default:
		return false
	}
}
