package member

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
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

	"github.com/leasecast/leasecast/api/v1alpha1"
)

const allNamespaces = metav1.NamespaceAll

// managed selects the Leases of the hub.
var managed = labels.Set{v1alpha1.ManagedLabel: "true"}.String()

// backoff is the wait after a failure. It stays short: a leader that cannot see its renewals has until its deadline,
// and clients wait for a successor.
var backoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 5, Cap: 3 * time.Second}

// tooShort bounds the lifetime of a watch below which its end is a failure.
const tooShort = time.Second

// errDue reports that the next turn is due now.
var errDue = errors.New("the next turn is due")

// watched follows the Leases of one namespace, or of all, in turns: it lists them and watches on from there. A watch
// goes on until the next one has begun, so no event between them is missed.
//
// client-go's reflector watches forever. A watch without events looks like a dead one, because an API server sends
// bookmarks only if something changed somewhere. A list is proof. When a renewal of a led term is overdue, the next
// turn comes early and on another connection.
type watched struct {
	namespace string
	client    coordinationv1client.LeaseInterface
	member    *Member
	alarm     *alarm
	synced    chan struct{} // closed by the first list
	syncOnce  sync.Once
	failure   atomic.Pointer[string] // why the last request failed; nil: the last list was answered, or there was none
	listed    atomic.Int64           // when the last list was answered, as in Reading.Boot; at first, of New
	known     atomic.Bool            // a list since run began has been applied
	asked     atomic.Int64           // when the unanswered list was sent, without a watch, as in Reading.Boot; 0: none

	// The fields below belong to run.
	stream  *stream       // nil: no watch
	version uint64        // of the newest list or event that was applied; 0: unknown
	listing bool          // a list is under way
	since   []watch.Event // the events since the list was sent
	line    *line         // the line of the last turn
	doing   string        // list or watch
	empty   trouble       // no Lease exists anywhere
	hurry   hurry
}

// stream is a watch under way.
type stream struct {
	watch.Interface
	end   context.CancelFunc
	line  *line
	began time.Duration // as in Reading.Boot
}

func newWatched(m *Member, client coordinationv1client.LeasesGetter, namespace string) *watched {
	w := &watched{
		namespace: namespace, client: client.Leases(namespace), member: m, alarm: m.terms.alarm(namespace), synced: make(chan struct{}),
	}
	w.fresh()
	return w
}

// String names the watch in errors.
func (w *watched) String() string {
	if w.namespace == allNamespaces {
		return "all namespaces"
	}
	return "namespace " + w.namespace
}

func (w *watched) now() time.Duration { return w.member.clock.Now().Boot }

// fresh records that a list was answered just now.
func (w *watched) fresh() {
	w.failure.Store(nil)
	w.asked.Store(0)
	now := w.now()
	w.listed.Store(int64(now))
	w.alarm.hear(now)
}

// everListed reports whether the Leases were ever listed.
func (w *watched) everListed() bool {
	select {
	case <-w.synced:
		return true
	default:
		return false
	}
}

// run follows the Leases until ctx ends. It drops the hurry of an earlier run.
func (w *watched) run(ctx context.Context) {
	defer w.drop()
	defer w.known.Store(false)
	w.hurry = hurry{}
	delay := backoff.DelayFunc()
	for ctx.Err() == nil {
		err := w.turn(ctx)
		if err == nil {
			err = w.lasts(ctx, tooShort)
		}
		if err == nil {
			w.member.outages.works(w)
			delay = backoff.DelayFunc()
			err = w.follow(ctx)
		}
		switch {
		case ctx.Err() != nil, err == nil, errors.Is(err, errDue):
		default:
			w.failed(err)
			w.hurry.failures++
			w.pause(ctx, delay())
		}
	}
}

// turn lists, and watches on from there. The previous watch goes on until then.
func (w *watched) turn(ctx context.Context) error {
	if w.hurry.on {
		if err := w.member.link.leave(w.line); err != nil {
			return err
		}
	}
	w.line = w.member.link.current()
	err := w.list(ctx)
	if err == nil {
		w.line = w.member.link.current() // the list may have shown shorter terms
		err = w.watch(ctx)
	}
	switch {
	case err == nil:
		w.calm()
	case errors.Is(err, context.DeadlineExceeded):
		err = errors.Join(err, w.member.link.leave(w.line))
	}
	return err
}

// list applies all Leases. It asks for no resourceVersion, so the answer is as new as etcd, and an API server that is
// cut off from etcd cannot answer.
func (w *watched) list(ctx context.Context) error {
	before := w.version
	w.doing = "list"
	if w.stream == nil {
		w.asked.CompareAndSwap(0, int64(w.now()))
	}
	w.since, w.listing = nil, true
	defer func() { w.since, w.listing = nil, false }()
	list, err := meanwhile(ctx, w, func(ctx context.Context) (*coordinationv1.LeaseList, error) {
		return w.client.List(ctx, metav1.ListOptions{LabelSelector: managed})
	})
	if err != nil {
		if errors.As(err, new(apierrors.APIStatus)) {
			w.asked.Store(0) // it has answered
		}
		return fmt.Errorf("list leases: %w", err)
	}
	w.fresh()
	version, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("list leases: version %q is no number, by which changes could be ordered", list.ResourceVersion)
	}
	if version < before {
		w.drop() // the previous watch shows the past of a server that was restored since
		w.version, w.since = version, nil
	}
	w.version = max(w.version, version)
	items := with(list.Items, version, w.since)
	w.member.terms.Replace(w.namespace, items)
	w.known.Store(true)
	w.syncOnce.Do(func() { close(w.synced) })
	w.tell(items)
	for i := range items {
		if _, err := w.suit(&items[i]); err != nil {
			return err
		}
	}
	return nil
}

// tell logs what a list has shown.
func (w *watched) tell(items []coordinationv1.Lease) {
	listed := map[string]struct{}{}
	for i := range items {
		listed[items[i].Namespace] = struct{}{}
	}
	if len(items) == 0 && w.namespace == allNamespaces && w.empty.begins("empty", w.now()) {
		w.member.log.Info("There are no Leases of a hub in this cluster, so nothing is led: no LeadershipPolicy selects any of its namespaces, or it has no hub")
	}
	w.member.teller.looksAtAll(w.namespace, listed)
}

// with returns the Leases of a list after the events since.
func with(items []coordinationv1.Lease, version uint64, since []watch.Event) []coordinationv1.Lease {
	for _, e := range since {
		l := e.Object.(*coordinationv1.Lease)
		if versionOf(l) <= version {
			continue
		}
		items = slices.DeleteFunc(items, func(o coordinationv1.Lease) bool { return o.Namespace == l.Namespace && o.Name == l.Name })
		if e.Type != watch.Deleted {
			items = append(items, *l)
		}
	}
	return items
}

// versionOf returns the version of a Lease, by which API servers order all changes; 0: unknown.
func versionOf(l *coordinationv1.Lease) uint64 {
	version, err := strconv.ParseUint(l.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return version
}

// suit has connections pinged often enough for the duration in a Lease. It reports whether they were not.
func (w *watched) suit(l *coordinationv1.Lease) (changed bool, err error) {
	if l.Spec.LeaseDurationSeconds == nil {
		return false, nil
	}
	return w.member.link.suit(time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second)
}

// watch watches from the last list on, for up to three quarters of StaleAfter. The next turn should replace it before
// that. The server should end it otherwise. If it does not, the context does, after seven eighths.
func (w *watched) watch(ctx context.Context) error {
	w.doing = "watch"
	lasting, end := context.WithTimeout(ctx, w.member.stale*7/8)
	seconds := int64(w.member.stale * 3 / 4 / time.Second)
	version := strconv.FormatUint(w.version, 10)
	opened, err := meanwhile(ctx, w, func(ctx context.Context) (watch.Interface, error) {
		defer context.AfterFunc(ctx, end)()
		opened, err := w.client.Watch(lasting, metav1.ListOptions{LabelSelector: managed, ResourceVersion: version, TimeoutSeconds: &seconds})
		if err != nil && ctx.Err() != nil {
			err = ctx.Err() // its own error is the end of lasting, and hides that it took too long
		}
		return opened, err
	})
	if err != nil {
		end()
		return fmt.Errorf("watch leases: %w", err)
	}
	w.drop()
	w.stream = &stream{Interface: opened, end: end, line: w.line, began: w.now()}
	return nil
}

// drop ends the current watch.
func (w *watched) drop() {
	if w.stream == nil {
		return
	}
	w.stream.Stop()
	w.stream.end()
	if w.stream.line != w.member.link.current() {
		w.stream.line.CloseIdle()
	}
	w.stream = nil
}

// follow handles events until the next turn is due: after a quarter to half of StaleAfter, or earlier.
func (w *watched) follow(ctx context.Context) error {
	quarter := w.member.stale / 4
	return w.lasts(ctx, quarter+rand.N(quarter)-tooShort)
}

// lasts handles events for d. It returns an error when a turn is due before.
func (w *watched) lasts(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return w.handleEvents(ctx.Done())
}

// pause handles events for d, or until a renewal is overdue.
func (w *watched) pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for hurried := w.hurry.on; ctx.Err() == nil && w.hurry.on == hurried; {
		_ = w.handleEvents(ctx.Done()) // the next turn comes anyway
	}
}

// meanwhile sends a request, and handles events until the answer comes. It gives up when the request has taken too
// long, or when a renewal is overdue.
func meanwhile[T any](ctx context.Context, w *watched, send func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, w.requestTimeout())
	defer cancel()
	var answer T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		answer, err = send(ctx)
	}()
	hurried := w.hurry.on
	for w.handleEvents(done) != nil { // the watch has ended, or a renewal is overdue
		if w.hurry.on && !hurried {
			cancel()
		}
	}
	if err != nil && w.hurry.on && !hurried {
		err = errDue
	}
	return answer, err
}

// handleEvents handles events and alarms until done. It returns an error when a turn is due before.
func (w *watched) handleEvents(done <-chan struct{}) error {
	for {
		var events <-chan watch.Event
		if w.stream != nil {
			events = w.stream.ResultChan()
		}
		rings, due := w.alarm.rings, w.hurry.due
		if w.hurry.on {
			rings, due = nil, nil
		}
		select {
		case e, open := <-events:
			if err := w.take(e, open); err != nil {
				return err
			}
		case <-rings:
			w.hurry.due = utilclock.RealClock{}.After(w.delay())
		case <-due:
			if w.hurry.due = nil; w.wanted() {
				w.hurry.on = true
				return errDue
			}
		case <-done:
			return nil
		}
	}
}

// take handles one event, or the end of the watch.
func (w *watched) take(e watch.Event, open bool) error {
	if !open {
		lasted := w.now() - w.stream.began
		w.drop()
		if lasted < tooShort {
			return fmt.Errorf("watch leases: ended after %v", lasted)
		}
		return errDue
	}
	w.alarm.hear(w.now())
	if e.Type == watch.Error {
		w.drop()
		return fmt.Errorf("watch leases: %w", apierrors.FromObject(e.Object))
	}
	l, ok := e.Object.(*coordinationv1.Lease)
	if !ok {
		w.drop()
		return fmt.Errorf("watch leases: event %s with a %T", e.Type, e.Object)
	}
	if version := versionOf(l); version > w.version {
		w.version = version
	} else if version > 0 {
		return nil // a newer list has shown it
	}
	switch e.Type {
	case watch.Added, watch.Modified:
		w.member.terms.Observe(l)
	case watch.Deleted:
		w.member.terms.Delete(l.Namespace, l.Name)
	default: // such as bookmarks, which are not requested
		w.drop()
		return errors.New("watch leases: unknown event " + string(e.Type))
	}
	w.member.teller.looks(l.Namespace)
	if w.listing {
		w.since = append(w.since, e)
	}
	if shorter, err := w.suit(l); shorter {
		return errors.Join(err, errDue)
	}
	return nil
}
