package member

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// managed selects the copies of the hub.
var managed = labels.Set{v1alpha1.ManagedLabel: "true"}.String()

// backoff is how long to wait after a failure. It stays short: a leader that cannot
// see its renewals has until its deadline, and a successor is waited for.
var backoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 5, Cap: 3 * time.Second}

// tooShort is a watch that ends so soon that something is wrong with it.
const tooShort = time.Second

// watched follows the Leases of one namespace, or of all: it lists them, watches for
// a while and starts over. client-go's reflector would go on with watches alone for
// ever, and a watch in which nothing happens cannot be told from a dead one, because an
// API server sends bookmarks only if something changed somewhere. A list is proof.
type watched struct {
	namespace string
	client    coordinationv1client.LeaseInterface
	member    *Member
	synced    chan struct{} // closed by the first list
	syncOnce  sync.Once
	listed    atomic.Int64 // when that last worked, as in Reading.Boot; at first, when New was called
}

func newWatched(m *Member, client coordinationv1client.LeasesGetter, namespace string) *watched {
	w := &watched{namespace: namespace, client: client.Leases(namespace), member: m, synced: make(chan struct{})}
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

func (w *watched) fresh() { w.listed.Store(int64(w.member.clock.Now().Boot)) }

// run follows the Leases until ctx ends.
func (w *watched) run(ctx context.Context) {
	delay, failed := backoff.DelayFunc(), false
	for ctx.Err() == nil {
		err := w.follow(ctx)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			if failed {
				w.member.log.Info("Follows the leases again", "scope", w.String())
			}
			delay, failed = backoff.DelayFunc(), false
		default:
			if !failed { // once, not every few seconds
				w.member.log.Error(err, "Cannot follow the leases, will keep trying", "scope", w.String())
			}
			failed = true
			pause(ctx, delay())
		}
	}
}

// follow lists once and watches until the watch has lasted as long as it should.
func (w *watched) follow(ctx context.Context) error {
	version, err := w.list(ctx)
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	if err := w.watch(ctx, version); err != nil {
		return fmt.Errorf("watch leases: %w", err)
	}
	return nil
}

// list takes in all Leases. It asks for no resourceVersion, so the answer is as new
// as etcd, and an API server that is cut off from etcd has none.
func (w *watched) list(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.member.stale/4)
	defer cancel()
	list, err := w.client.List(ctx, metav1.ListOptions{LabelSelector: managed})
	if err != nil {
		return "", err
	}
	w.fresh()
	w.member.terms.Replace(w.namespace, list.Items)
	w.syncOnce.Do(func() { close(w.synced) })
	return list.ResourceVersion, nil
}

// watch takes in what happens after a list, for a quarter to half of StaleAfter. The
// server is to end it then; if it does not, ctx does.
func (w *watched) watch(ctx context.Context, version string) error {
	quarter := int64(w.member.stale / time.Second / 4)
	seconds := quarter + rand.Int64N(quarter)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second+w.member.stale/8)
	defer cancel()
	began := w.member.clock.Now().Boot
	stream, err := w.client.Watch(ctx, metav1.ListOptions{
		LabelSelector: managed, ResourceVersion: version, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return err
	}
	defer stream.Stop()
	for e := range stream.ResultChan() {
		if err := w.take(e); err != nil {
			return err
		}
	}
	if lasted := w.member.clock.Now().Boot - began; lasted < tooShort {
		return fmt.Errorf("ended after %v, want %ds", lasted, seconds)
	}
	return nil
}

// take takes in one event.
func (w *watched) take(e watch.Event) error {
	if e.Type == watch.Error {
		return apierrors.FromObject(e.Object)
	}
	l, ok := e.Object.(*coordinationv1.Lease)
	if !ok {
		return fmt.Errorf("event %s with a %T", e.Type, e.Object)
	}
	switch e.Type {
	case watch.Added, watch.Modified:
		w.member.terms.Observe(l)
	case watch.Deleted:
		w.member.terms.Delete(l.Namespace, l.Name)
	default: // such as bookmarks, which are not asked for
		return errors.New("unknown event " + string(e.Type))
	}
	return nil
}

// pause returns after d, or when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := utilclock.RealClock{}.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	}
}
