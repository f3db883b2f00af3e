package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	renewedNamespaces = 1000
	renewalWindow     = 2 * time.Minute
	// loopWindow is how long the loop is measured, loopWarmUp how long it runs before.
	loopWindow, loopWarmUp = time.Minute, 10 * time.Second
	// loopArg makes this program the loop. It is followed by a kubeconfig.
	loopArg = "as-loop"
	// loopWorkers update Leases at once.
	loopWorkers = 4
	sampleEvery = time.Second
)

// measureRenewal has one hub lead many namespaces: what that takes, and whether any renewal is late. Then it stops the
// hub, and updates the same Leases at the same rate by a loop of client-go that does nothing else.
func measureRenewal(ctx context.Context, b *bench) {
	b.awaitLed(ctx, clusters[0], renewedNamespaces)
	b.say("%d namespaces are led; waiting %s for the beginning to be over", renewedNamespaces, 2*b.Timings.Duration)
	must.Do(process.Pass(ctx, 2*b.Timings.Duration))
	leases := must.Get(b.WatchLeases(ctx, clusters[0]))
	defer leases.Stop()
	began := harness.Now().Boot
	hub := sample(ctx, b.LatestHub().PID(), renewalWindow)
	ended := harness.Now().Boot
	must.Do(b.Check())
	b.awaitLed(ctx, clusters[0], renewedNamespaces)
	ages, missed := renewalAges(renewals(leases.Seen()), 2*b.Timings.Renew, began, ended)
	rate := float64(len(ages)) / (ended - began).Seconds()
	if due := renewedNamespaces / b.Timings.Renew.Seconds(); rate < due/2 {
		must.Fail("only %.0f renewals a second were seen, want some %.0f", rate, due)
	}
	b.say("the hub takes %.3f cores and %.0f MiB for %.1f renewals a second: age p99.9 %.2f s, max %.2f s; %d missed",
		hub.cores, hub.rssMiB, rate, quantile(ages, 0.999).Seconds(), quantile(ages, 1).Seconds(), missed)
	b.figures["hub.cpuCores1000"], b.figures["hub.rssMiB1000"] = hub.cores, hub.rssMiB
	b.figures["renewalAgeP999Seconds"] = quantile(ages, 0.999).Seconds()
	b.figures["missedRenewals"] = float64(missed)
	must.Do(b.LatestHub().Stop())
	loop, loopRate := b.measureLoop(ctx, leases)
	b.say("the loop takes %.3f cores for %.1f updates a second", loop.cores, loopRate)
	b.figures["renewal.cpuRatio"] = (hub.cores / rate) / (loop.cores / loopRate)
}

// measureLoop runs the loop as a process of its own, and returns what it takes and how many updates a second are seen.
func (b *bench) measureLoop(ctx context.Context, leases *harness.Watch[*coordinationv1.Lease]) (u usage, rate float64) {
	dir := must.Get(filepath.Abs(b.dir()))
	kubeconfig := filepath.Join(dir, "loop.kubeconfig")
	// By the same proxy as the hub's requests.
	server := b.Fleet.Member(clusters[0])
	must.Do(fleet.WriteKubeconfig(kubeconfig, clusters[0], server.ViaProxy(server.AdminConfig())))
	program := must.Get(os.Executable())
	p := must.Get(process.Start("loop", filepath.Join(dir, "loop.log"), program, loopArg, kubeconfig))
	defer func() { _ = p.Stop() }() // at worst it ends with this program
	must.Do(process.Pass(ctx, loopWarmUp))
	leases.Take() // what was before does not count
	u = sample(ctx, p.PID(), loopWindow)
	updates := len(leases.Take())
	must.Do(p.Check())
	if updates == 0 {
		must.Fail("no update of the loop was seen")
	}
	return u, float64(updates) / loopWindow.Seconds()
}

// updateLoop is this program as the loop, until ctx ends: each Lease is updated once in a renewal interval, in
// protobuf, as the hub does.
func updateLoop(ctx context.Context, kubeconfig string) {
	config := must.Get(clientcmd.BuildConfigFromFlags("", kubeconfig))
	config.QPS, config.ContentType = -1, runtime.ContentTypeProtobuf
	client := must.Get(kubernetes.NewForConfig(config))
	selector := metav1.ListOptions{LabelSelector: v1alpha1.ManagedLabel + "=true"}
	leases := must.Get(client.CoordinationV1().Leases("").List(ctx, selector))
	group, ctx := errgroup.WithContext(ctx)
	pause := harness.Default.Renew * loopWorkers / time.Duration(len(leases.Items))
	for worker := range loopWorkers {
		group.Go(func() error {
			every := time.NewTicker(pause)
			defer every.Stop()
			for i := worker; ; i = (i + loopWorkers) % len(leases.Items) {
				select {
				case <-ctx.Done():
					return nil
				case <-every.C:
				}
				l := &leases.Items[i]
				now := metav1.NowMicro()
				l.Spec.RenewTime = &now
				updated, err := client.CoordinationV1().Leases(l.Namespace).Update(ctx, l, metav1.UpdateOptions{})
				if ctx.Err() != nil {
					return nil
				}
				if err != nil {
					return err
				}
				leases.Items[i] = *updated
			}
		})
	}
	must.Do(group.Wait())
}

// renewalAges returns how old the Leases of leaders were when a renewal was seen between two instants, and how many
// renewals were late: their stamp came later than limit after the one before.
func renewalAges(all map[string][]renewal, limit, from, to time.Duration) (ages []time.Duration, missed int) {
	for _, copies := range all {
		for i, is := range copies {
			next := renewal{seen: to, stamped: to}
			if i+1 < len(copies) {
				next = copies[i+1]
			}
			if next.stamped-is.stamped > limit || next.epoch != is.epoch && i+1 < len(copies) {
				missed++
			}
			if i+1 < len(copies) && next.seen >= from && next.seen < to {
				ages = append(ages, next.seen-is.stamped)
			}
		}
	}
	return ages, missed
}

// usage is the use of processor and memory by a process.
type usage struct {
	cores  float64 // of processor time, on average
	rssMiB float64 // of memory, the most of all samples
}

// sample watches a process for a while.
func sample(ctx context.Context, pid int, d time.Duration) (u usage) {
	p := must.Get(procfs.NewProc(pid))
	first := must.Get(p.Stat())
	begin := harness.Now().Boot
	for now := begin; now-begin < d; {
		must.Do(process.Pass(ctx, sampleEvery))
		last := must.Get(p.Stat())
		now = harness.Now().Boot
		u.cores = (last.CPUTime() - first.CPUTime()) / (now - begin).Seconds()
		u.rssMiB = max(u.rssMiB, float64(last.ResidentMemory())/(1<<20))
	}
	return u
}
