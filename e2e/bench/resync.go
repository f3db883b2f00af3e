package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/gate"
)

const (
	resyncNamespaces = 5
	resyncObjects    = 1000 // in each
	resyncRuns       = 5
	// actTakes is how long one reconcile takes in which a controller does something: about as long as a few writes.
	actTakes = 10 * time.Millisecond
)

// readerIn is the namespace in which every object is waited for.
var readerIn = resyncIn()[0]

func resyncIn() (names []string) {
	for i := range resyncNamespaces {
		names = append(names, fmt.Sprintf("resync-%d", i))
	}
	return names
}

// measureReaders measures what a controller's author sees of the library: the check, how soon a promoted cluster has
// looked at everything, and how soon it begins where much is to be done in several namespaces at once.
func measureReaders(ctx context.Context, b *bench) (err error) {
	o := harness.Options{Timings: harness.Fast, ActEvery: 200 * time.Millisecond, Members: []harness.Member{
		{Name: "east", Priority: 2, Namespaces: resyncIn()}, {Name: "west", Priority: 1, Namespaces: resyncIn()},
	}}
	d, err := b.start(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	if _, err := d.AwaitAct(ctx, failoverLimit, "east acts", func(a harness.Act) bool {
		return a.Cluster == "east" && a.Namespace == readerIn
	}); err != nil {
		return err
	}
	if err := measureReader(ctx, b, d, "east", readerIn); err != nil {
		return fmt.Errorf("the reader's check: %w", err)
	}
	return measureResync(ctx, b, d)
}

// progress notes when each object of a namespace was first reconciled in its newest epoch.
type progress struct {
	takes time.Duration // a reconcile

	mu  sync.Mutex
	all map[string]*term // by namespace
}

// term is the progress in one term.
type term struct {
	epoch       int64
	names       map[string]bool
	first, last time.Duration // when they were
}

// Reconcile implements reconcile.Reconciler.
func (p *progress) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	epoch, _ := member.EpochFrom(ctx)
	p.note(epoch, req)
	if p.takes > 0 {
		select {
		case <-time.After(p.takes):
		case <-ctx.Done():
		}
	}
	return reconcile.Result{}, nil
}

func (p *progress) note(epoch int64, req reconcile.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := harness.Now().Boot
	t := p.all[req.Namespace]
	if t == nil || epoch > t.epoch {
		t = &term{epoch: epoch, names: map[string]bool{}, first: now}
		p.all[req.Namespace] = t
	}
	if epoch == t.epoch && !t.names[req.Name] {
		t.names[req.Name], t.last = true, now
	}
}

// after returns the progress in a later epoch than that, and false if there is none of so many objects.
func (p *progress) after(namespace string, epoch int64, objects int) (term, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.all[namespace]
	if t == nil {
		return term{}, false
	}
	return *t, t.epoch > epoch && len(t.names) >= objects
}

// measureResync takes the lead from east and gives it back, again and again. The time runs from the event that shows the
// Lease until each of many objects was reconciled once, and until the first one of each namespace was, by one worker
// each.
func measureResync(ctx context.Context, b *bench, d *harness.Drill) (err error) {
	if err := makeObjects(ctx, d); err != nil {
		return err
	}
	copies, err := d.WatchLeases(ctx, "east")
	if err != nil {
		return err
	}
	defer copies.Stop()
	looks, acts := &progress{all: map[string]*term{}}, &progress{takes: actTakes, all: map[string]*term{}}
	stop, err := runResynced(ctx, d, looks, acts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	var looked, began []time.Duration
	epochs := map[string]int64{}
	for run := range resyncRuns {
		all, firsts, err := awaitProgress(ctx, copies, epochs, looks, acts)
		if err != nil {
			return err
		}
		if run > 0 { // the first began before the controllers did
			looked, began = append(looked, all), append(began, firsts...)
			b.say(fmt.Sprintf("%d objects were looked at %.3f s after the Lease's event; "+
				"the first acts in %d namespaces came %.3f s after theirs, at most", resyncObjects, all.Seconds(), resyncNamespaces, quantile(firsts, 1).Seconds()))
		}
		for i, cluster := range []string{"west", "east"} { // takes over, and gives back
			if err := d.SetPriority(ctx, cluster, 10+2*run+i); err != nil {
				return err
			}
			if _, err := d.AwaitAct(ctx, failoverLimit, cluster+" acts", func(a harness.Act) bool {
				return a.Cluster == cluster && a.Namespace == readerIn && a.Epoch > epochs[readerIn]
			}); err != nil {
				return err
			}
		}
	}
	b.figures[resyncSeconds], b.figures[firstActSeconds] = quantile(looked, 1).Seconds(), quantile(began, 1).Seconds()
	return nil
}

func makeObjects(ctx context.Context, d *harness.Drill) error {
	for _, in := range resyncIn() {
		for i := range resyncObjects {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: fmt.Sprintf("object-%04d", i)}}
			if err := d.Members["east"].Create(ctx, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitProgress waits for terms after those of the epochs, and replaces these. It returns how long it took to look at
// everything in one namespace, and to begin in each.
func awaitProgress(
	ctx context.Context, copies *harness.Watch[*coordinationv1.Lease], epochs map[string]int64, looks, acts *progress,
) (all time.Duration, firsts []time.Duration, err error) {
	var last term
	terms := map[string]term{}
	if err := harness.Await(ctx, failoverLimit, "everything is looked at, and begun everywhere", func(context.Context) (err error) {
		var ok bool
		if last, ok = looks.after(readerIn, epochs[readerIn], resyncObjects); !ok {
			return fmt.Errorf("not looked at everything in an epoch after %d", epochs[readerIn])
		}
		for _, in := range resyncIn() {
			if terms[in], ok = acts.after(in, epochs[in], 1); !ok {
				err = errors.Join(err, fmt.Errorf("not begun in %s in an epoch after %d", in, epochs[in]))
			}
		}
		return err
	}); err != nil {
		return 0, nil, err
	}
	for in, t := range terms {
		promoted, ok := promotedAt(copies.Seen(), in, t.epoch)
		if ok {
			firsts = append(firsts, t.first-promoted)
		}
		if in == readerIn {
			all = last.last - promoted
		}
		if !ok && epochs[in] > 0 {
			return 0, nil, fmt.Errorf("no Lease of epoch %d was seen in %s", t.epoch, in)
		}
		epochs[in] = t.epoch
	}
	return all, firsts, nil
}

// promotedAt is when the first Lease of an epoch was seen.
func promotedAt(seen []harness.Sighting[*coordinationv1.Lease], namespace string, epoch int64) (time.Duration, bool) {
	for _, s := range seen {
		if c, _ := wire.Read(s.Object); !s.Gone && c.Namespace == namespace && c.Epoch == epoch && c.LeadsHere() {
			return s.At.Boot, true
		}
	}
	return 0, false
}

// runResynced runs two gated controllers in east until stop: one that looks, and one that acts.
func runResynced(ctx context.Context, d *harness.Drill, looks, acts *progress) (stop func() error, err error) {
	cfg := d.Fleet.Member("east").AdminConfig()
	cfg.Wrap(member.CapWrites)
	namespaces := map[string]cache.Config{}
	for _, in := range resyncIn() {
		namespaces[in] = cache.Config{}
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, Cache: cache.Options{DefaultNamespaces: namespaces},
	})
	if err != nil {
		return nil, err
	}
	m, err := member.New(mgr.GetConfig(), member.Options{Namespaces: resyncIn(), MaxClockSkew: d.Timings.Skew})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(
		mgr.Add(m),
		gate.ControllerManagedBy(mgr, m).For(&corev1.ConfigMap{}).Named("looks").Complete(looks),
		gate.ControllerManagedBy(mgr, m).For(&corev1.ConfigMap{}).Named("acts").Complete(acts),
	); err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(running) }()
	return func() error { cancel(); return <-ended }, nil
}
