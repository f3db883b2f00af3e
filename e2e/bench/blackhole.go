package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
	// ledEach is how many namespaces each member leads: they exist in it alone.
	ledEach = 10
	// blackHoleWindow is how long renewals are watched, without and with the black hole.
	blackHoleWindow = 20 * time.Second
)

// blackHoleFleet has the fast profile, so that many renewals come in a short time.
func blackHoleFleet() harness.Options {
	o := harness.Options{Timings: harness.Fast}
	for i, name := range append(slices.Clone(clusters), "north") {
		m := harness.Member{Name: name, Priority: 100 - i}
		for n := range ledEach {
			m.Namespaces = append(m.Namespaces, fmt.Sprintf("%s-%d", name, n))
		}
		o.Members = append(o.Members, m)
	}
	return o
}

// measureBlackHole watches the renewals in three members while the link to the fourth is dead without a word.
func measureBlackHole(ctx context.Context, b *bench) {
	others := maps.Clone(b.view.Leases)
	delete(others, clusters[0])
	b.awaitLed(ctx, "", ledEach*(len(others)+1))
	b.say("every member leads; watching the renewals in west, south and north without a fault")
	must.Do(process.Pass(ctx, 2*b.Timings.Renew)) // the first renewals of a term come early
	without := harness.Now().Boot
	must.Do(process.Pass(ctx, blackHoleWindow))
	with := harness.Now().Boot
	b.Fleet.Member(clusters[0]).Proxy().BlackHole()
	b.say("the link to east is dead")
	must.Do(process.Pass(ctx, blackHoleWindow))
	end := harness.Now().Boot
	must.Do(b.Check())
	before, during := allDelays(others, b.Timings.Renew, without, with), allDelays(others, b.Timings.Renew, with, end)
	enough := len(others) * ledEach * int(blackHoleWindow/b.Timings.Renew) / 2
	must.FailIf(len(before) < enough || len(during) < enough,
		"only %d and %d renewals were due, want %d at least", len(before), len(during), enough)
	b.say("renewals late at p99: %.1f ms of %d without the black hole, %.1f ms of %d (worst %.1f ms) with it",
		ms(quantile(before, 0.99)), len(before), ms(quantile(during, 0.99)), len(during), ms(quantile(during, 1)))
	b.figures["blackhole.renewalDelayP99Seconds"] = quantile(during, 0.99).Seconds()
}

func allDelays(watches map[string]*harness.Watch[*coordinationv1.Lease], r, from, to time.Duration) []time.Duration {
	var all []time.Duration
	for _, w := range watches {
		for _, copies := range harness.LedIn(w.Seen()) {
			all = append(all, delays(copies, r, from, to)...)
		}
	}
	return all
}

// delays returns of each renewal of one Lease that was due between two instants how much later it was seen than it was
// due, which is every r after the last stamp. One that is still missing when the time is over counts as seen then.
// One that came early counts as punctual.
func delays(copies []harness.Led, r, from, to time.Duration) []time.Duration {
	var all []time.Duration
	for i, last := range copies {
		due, seen := last.Stamp()+r, to
		if i+1 < len(copies) {
			seen = min(copies[i+1].At.Boot, to)
		}
		if due >= from && due < to {
			all = append(all, max(0, seen-due))
		}
	}
	return all
}

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
	ages, missed := renewalAges(harness.LedIn(leases.Seen()), 2*b.Timings.Renew, began, ended)
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
	must.FailIf(updates == 0, "no update of the loop was seen")
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
func renewalAges(all map[string][]harness.Led, limit, from, to time.Duration) (ages []time.Duration, missed int) {
	for _, copies := range all {
		for i, is := range copies[1:] {
			was := copies[i]
			if is.Stamp()-was.Stamp() > limit || is.Epoch != was.Epoch {
				missed++
			}
			if is.At.Boot >= from && is.At.Boot < to {
				ages = append(ages, is.At.Boot-was.Stamp())
			}
		}
		if to-copies[len(copies)-1].Stamp() > limit {
			missed++
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
