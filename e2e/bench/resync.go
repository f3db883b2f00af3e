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
	readerIn      = "resync"
	resyncObjects = 1000
	resyncRuns    = 5
)

// measureReaders measures what a controller's author sees of the library: the check, and how soon a promoted cluster has
// looked at everything.
func measureReaders(ctx context.Context, b *bench) (err error) {
	o := harness.Options{Timings: harness.Fast, ActEvery: 200 * time.Millisecond, Members: []harness.Member{
		{Name: "east", Priority: 2, Namespaces: []string{readerIn}}, {Name: "west", Priority: 1, Namespaces: []string{readerIn}},
	}}
	d, err := b.start(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	if _, err := d.AwaitAct(ctx, failoverLimit, "east acts", func(a harness.Act) bool { return a.Cluster == "east" }); err != nil {
		return err
	}
	if err := measureReader(ctx, b, d, "east", readerIn); err != nil {
		return fmt.Errorf("the reader's check: %w", err)
	}
	return measureResync(ctx, b, d)
}

// firsts notes when each object was first reconciled in the newest epoch.
type firsts struct {
	mu    sync.Mutex
	epoch int64
	names map[string]bool
	last  time.Duration // when the last one was
}

// Reconcile implements reconcile.Reconciler.
func (f *firsts) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	epoch, _ := member.EpochFrom(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if epoch > f.epoch {
		f.epoch, f.names = epoch, map[string]bool{}
	}
	if epoch == f.epoch && !f.names[req.Name] {
		f.names[req.Name], f.last = true, harness.Now().Boot
	}
	return reconcile.Result{}, nil
}

// all returns when the last of all objects was first reconciled in a later epoch than that, and false if one is missing.
func (f *firsts) all(after int64) (epoch int64, last time.Duration, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.epoch, f.last, f.epoch > after && len(f.names) >= resyncObjects
}

// measureResync takes the lead from east and gives it back, again and again. The time runs from the event that shows the
// Lease until each of many objects was reconciled once, by one worker.
func measureResync(ctx context.Context, b *bench, d *harness.Drill) (err error) {
	east := d.Members["east"]
	for i := range resyncObjects {
		if err := east.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: readerIn, Name: fmt.Sprintf("object-%04d", i)}}); err != nil {
			return err
		}
	}
	copies, err := d.WatchLeases(ctx, "east")
	if err != nil {
		return err
	}
	defer copies.Stop()
	seen, stop, err := runResynced(ctx, d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	var took []time.Duration
	epoch := int64(0)
	for run := range resyncRuns {
		var last time.Duration
		if err := harness.Await(ctx, failoverLimit, "everything is looked at", func(context.Context) error {
			e, at, ok := seen.all(epoch)
			if !ok {
				return fmt.Errorf("not in an epoch after %d", epoch)
			}
			epoch, last = e, at
			return nil
		}); err != nil {
			return err
		}
		if run > 0 { // the first began before the controller did
			promoted, ok := promotedAt(copies.Seen(), epoch)
			if !ok {
				return fmt.Errorf("no Lease of epoch %d was seen", epoch)
			}
			took = append(took, last-promoted)
			b.say(fmt.Sprintf("%d objects were looked at %.3f s after the Lease's event", resyncObjects, took[len(took)-1].Seconds()))
		}
		for i, cluster := range []string{"west", "east"} { // takes over, and gives back
			if err := d.SetPriority(ctx, cluster, 10+2*run+i); err != nil {
				return err
			}
			if _, err := d.AwaitAct(ctx, failoverLimit, cluster+" acts", func(a harness.Act) bool {
				return a.Cluster == cluster && a.Epoch > epoch
			}); err != nil {
				return err
			}
		}
	}
	b.figures[resyncSeconds] = quantile(took, 1).Seconds()
	return nil
}

// promotedAt is when the first Lease of an epoch was seen.
func promotedAt(seen []harness.Sighting[*coordinationv1.Lease], epoch int64) (time.Duration, bool) {
	for _, s := range seen {
		if c, _ := wire.Read(s.Object); !s.Gone && c.Namespace == readerIn && c.Epoch == epoch && c.LeadsHere() {
			return s.At.Boot, true
		}
	}
	return 0, false
}

// runResynced runs a gated controller in east until stop.
func runResynced(ctx context.Context, d *harness.Drill) (seen *firsts, stop func() error, err error) {
	cfg := d.Fleet.Member("east").AdminConfig()
	cfg.Wrap(member.CapWrites)
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{readerIn: {}}},
	})
	if err != nil {
		return nil, nil, err
	}
	m, err := member.New(mgr.GetConfig(), member.Options{Namespaces: []string{readerIn}, MaxClockSkew: d.Timings.Skew})
	if err != nil {
		return nil, nil, err
	}
	seen = &firsts{}
	if err := errors.Join(mgr.Add(m), ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).
		WatchesRawSource(gate.Resync(m, mgr.GetClient(), &corev1.ConfigMapList{})).
		Complete(gate.Gate(m, seen))); err != nil {
		return nil, nil, err
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(running) }()
	return seen, func() error { cancel(); return <-ended }, nil
}
