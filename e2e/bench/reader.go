package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/gate"
)

// readerRuns is how often the check is measured. The fastest run counts: other programs, which a shared
// machine always has, can only add to what the check takes.
const readerRuns = 5

// measureReader measures "do I lead?" of a Member that watches a real API server and holds a term that the hub renews
// in the meantime.
func measureReader(ctx context.Context, b *bench) {
	m := must.Get(member.New(b.Fleet.Member(clusters[0]).AdminConfig(), member.Options{
		Namespaces: []string{namespace}, MaxClockSkew: b.Timings.Skew,
	}))
	running, stop := context.WithCancel(ctx)
	var stopped sync.WaitGroup
	stopped.Go(func() { _ = m.Start(running) }) // without it no term is held
	defer stopped.Wait()
	defer stop()
	must.Do(must.Await(ctx, leadLimit, "the cluster leads by the member library", func(context.Context) error {
		_, ok := m.Term(namespace)
		return must.ErrorIf(!ok, "it does not")
	}))
	var perOp []float64
	var allocs int64
	for range readerRuns {
		denied := 0
		r := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := m.Term(namespace); !ok {
					denied++
				}
			}
		})
		must.FailIf(r.N == 0 || denied > 0, "%d of %d checks said no: the term did not last", denied, r.N)
		perOp = append(perOp, float64(r.T.Nanoseconds())/float64(r.N))
		allocs = max(allocs, r.AllocsPerOp())
	}
	slices.Sort(perOp)
	b.say("the reader's check takes %.1f to %.1f ns, %d allocations", perOp[0], perOp[readerRuns-1], allocs)
	b.figures["reader.nsPerOp"], b.figures["reader.allocsPerOp"] = perOp[0], float64(allocs)
}

const (
	resyncObjects = 1000
	resyncRuns    = 5
)

// measureReaders measures what a controller's author sees of the library: the check, and how soon a promoted cluster
// has reconciled everything.
func measureReaders(ctx context.Context, b *bench) {
	b.awaitLed(ctx, clusters[0], 1)
	measureReader(ctx, b)
	measureResync(ctx, b)
}

// progress notes when the last object was first reconciled in the latest epoch.
type progress struct {
	mu    sync.Mutex
	epoch int64
	names map[string]bool
	last  time.Duration
}

// Reconcile implements reconcile.Reconciler.
func (p *progress) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	epoch, _ := member.EpochFrom(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names == nil || epoch > p.epoch {
		p.epoch, p.names = epoch, map[string]bool{}
	}
	if epoch == p.epoch && !p.names[req.Name] {
		p.names[req.Name], p.last = true, harness.Now().Boot
	}
	return reconcile.Result{}, nil
}

// in returns when the last object was reconciled in a later epoch than that.
func (p *progress) in(after int64) (epoch int64, last time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.epoch <= after || len(p.names) < resyncObjects {
		return after, 0, fmt.Errorf("%d objects were reconciled in epoch %d", len(p.names), p.epoch)
	}
	return p.epoch, p.last, nil
}

// measureResync takes the lead from the first cluster and gives it back, again and again. The time runs from the event
// that shows the Lease until each of many objects was reconciled once, by one worker.
func measureResync(ctx context.Context, b *bench) {
	for i := range resyncObjects {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("object-%04d", i)}}
		must.Do(b.Members[clusters[0]].Create(ctx, o))
	}
	p := &progress{}
	defer runResynced(ctx, b, p)()
	var took []time.Duration
	var epoch int64
	for run := range resyncRuns {
		var last time.Duration
		must.Do(must.Await(ctx, leadLimit, "everything is reconciled", func(context.Context) (err error) {
			epoch, last, err = p.in(epoch)
			return err
		}))
		if run > 0 { // the first term began before the controller did
			led := harness.LedIn(b.view.Leases[clusters[0]].Seen())[namespace]
			promoted := slices.IndexFunc(led, func(l harness.Led) bool { return l.Epoch == epoch })
			must.FailIf(promoted < 0, "no Lease of epoch %d was seen", epoch)
			took = append(took, last-led[promoted].At.Boot)
			b.say("%d objects were reconciled %.3f s after the Lease's event", resyncObjects, took[run-1].Seconds())
		}
		for i, cluster := range []string{clusters[1], clusters[0]} { // takes over, and gives back
			must.Do(b.SetPriority(ctx, cluster, 1000+2*run+i))
			b.awaitLed(ctx, cluster, 1)
		}
	}
	b.figures["reader.resyncSeconds"] = quantile(took, 1).Seconds()
}

// runResynced runs a gated controller in the first cluster until stop.
func runResynced(ctx context.Context, b *bench, p *progress) (stop func()) {
	cfg := b.Fleet.Member(clusters[0]).AdminConfig()
	cfg.Wrap(member.CapWrites)
	mgr := must.Get(ctrl.NewManager(cfg, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
	}))
	m := must.Get(member.New(cfg, member.Options{Namespaces: []string{namespace}, MaxClockSkew: b.Timings.Skew}))
	must.Do(errors.Join(mgr.Add(m), gate.ControllerManagedBy(mgr, m).For(&corev1.ConfigMap{}).Complete(p)))
	running, cancel := context.WithCancel(ctx)
	var ended sync.WaitGroup
	ended.Go(func() { _ = mgr.Start(running) }) // without it nothing is reconciled
	return func() { cancel(); ended.Wait() }
}
