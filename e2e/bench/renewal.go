package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
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
func measureRenewal(ctx context.Context, b *bench) (err error) {
	d, err := b.start(ctx, harness.Options{Timings: harness.Default, Members: members(teams(renewedNamespaces)...)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	if err := awaitLed(ctx, d, clusters[0], renewedNamespaces); err != nil {
		return err
	}
	b.say("%d namespaces are led; waiting %s for the beginning to be over", renewedNamespaces, 2*d.Timings.Duration)
	if err := process.Pass(ctx, 2*d.Timings.Duration); err != nil {
		return err
	}
	v, err := d.Look(ctx)
	if err != nil {
		return err
	}
	defer v.Close()
	began := harness.Now().Boot
	hub, err := sample(ctx, d.LatestHub().PID(), renewalWindow)
	if err != nil {
		return errors.Join(err, d.Check()) // a hub that has ended has no figures
	}
	ended := harness.Now().Boot
	if err := errors.Join(d.Check(), awaitLed(ctx, d, clusters[0], renewedNamespaces)); err != nil {
		return err
	}
	ages, missed := renewalAges(renewals(v.Leases[clusters[0]].Seen()), 2*d.Timings.Renew, began, ended)
	rate := float64(len(ages)) / (ended - began).Seconds()
	if due := renewedNamespaces / d.Timings.Renew.Seconds(); rate < due/2 {
		return fmt.Errorf("only %.0f renewals a second were seen, want some %.0f", rate, due)
	}
	b.say("the hub takes %.3f cores and %.0f MiB for %.1f renewals a second: age p99.9 %.2f s, max %.2f s; %d missed",
		hub.cores, hub.rssMiB, rate, quantile(ages, 0.999).Seconds(), quantile(ages, 1).Seconds(), missed)
	b.figures[cpuCores1000], b.figures[rssMiB1000] = hub.cores, hub.rssMiB
	b.figures[renewalAgeP999], b.figures[missedRenewals] = quantile(ages, 0.999).Seconds(), float64(missed)
	if err := d.LatestHub().Stop(); err != nil {
		return err
	}
	loop, loopRate, err := measureLoop(ctx, b, d, v)
	if err != nil {
		return fmt.Errorf("the loop: %w", err)
	}
	b.say("the loop takes %.3f cores for %.1f updates a second", loop.cores, loopRate)
	b.figures[cpuRatio] = (hub.cores / rate) / (loop.cores / loopRate)
	return nil
}

// measureLoop runs the loop as a process of its own, and returns what it takes and how many updates a second are seen.
func measureLoop(ctx context.Context, b *bench, d *harness.Drill, v *harness.View) (_ usage, rate float64, err error) {
	dir, err := filepath.Abs(filepath.Join(outDir, "bench", b.phase))
	if err != nil {
		return usage{}, 0, err
	}
	kubeconfig := filepath.Join(dir, "loop.kubeconfig")
	// By the same proxy as the hub's requests.
	server := d.Fleet.Member(clusters[0])
	if err := fleet.WriteKubeconfig(kubeconfig, clusters[0], server.ViaProxy(server.AdminConfig())); err != nil {
		return usage{}, 0, err
	}
	program, err := os.Executable()
	if err != nil {
		return usage{}, 0, err
	}
	p, err := process.Start("loop", filepath.Join(dir, "loop.log"), program, loopArg, kubeconfig)
	if err != nil {
		return usage{}, 0, err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	if err := process.Pass(ctx, loopWarmUp); err != nil {
		return usage{}, 0, err
	}
	v.Leases[clusters[0]].Take() // what was before does not count
	u, err := sample(ctx, p.PID(), loopWindow)
	updates := len(v.Leases[clusters[0]].Take())
	if err = errors.Join(err, p.Check()); err == nil && updates == 0 {
		err = errors.New("no update was seen")
	}
	return u, float64(updates) / loopWindow.Seconds(), err
}

// updateLoop is this program as the loop, until ctx ends: each Lease is updated once in a renewal interval, in
// protobuf, as the hub does.
func updateLoop(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.ContentType = -1, runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	selector := metav1.ListOptions{LabelSelector: v1alpha1.ManagedLabel + "=true"}
	leases, err := client.CoordinationV1().Leases("").List(ctx, selector)
	if err != nil {
		return err
	}
	if len(leases.Items) == 0 {
		return errors.New("there is no Lease to update")
	}
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
	return group.Wait()
}

// renewalAges returns how old the Leases of leaders were when a renewal was seen between two instants, and how many
// renewals were late: their stamp came later than limit after the one before.
func renewalAges(
	all map[string][]renewal, limit, from, to time.Duration,
) (ages []time.Duration, missed int) {
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
func sample(ctx context.Context, pid int, d time.Duration) (u usage, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return u, err
	}
	first, err := p.Stat()
	if err != nil {
		return u, err
	}
	begin := harness.Now().Boot
	for now := begin; now-begin < d; {
		if err := process.Pass(ctx, sampleEvery); err != nil {
			return u, err
		}
		last, err := p.Stat()
		if err != nil {
			return u, err
		}
		now = harness.Now().Boot
		u.cores = (last.CPUTime() - first.CPUTime()) / (now - begin).Seconds()
		u.rssMiB = max(u.rssMiB, float64(last.ResidentMemory())/(1<<20))
	}
	return u, nil
}
