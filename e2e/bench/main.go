// Command bench measures what Leasecast costs and how fast it is, on real control planes. It prints the
// figures beside their targets and writes out/bench.json. It needs the programs that `make k8s build` builds; use it
// through make.
//
//	go run ./e2e/bench                        everything, in about six minutes
//	go run ./e2e/bench steady failover        only these measurements
//
// It exits with 1 if something could not be measured; a missed target is a figure like any other.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/leasecast/leasecast/e2e/drill"
)

const (
	outDir = "out"
	// startLimit bounds the start of a fleet, with the building of our own programs.
	startLimit = 5 * time.Minute
	// phaseLimit bounds one measurement.
	phaseLimit = 8 * time.Minute
)

// measurement is one part of the benchmark. Each has a fleet of its own.
type measurement struct {
	name, what string
	keys       []string
	measure    func(context.Context, *bench) error
}

var measurements = []measurement{
	{
		"steady", "what 100 led namespaces cost in a steady minute",
		[]string{membersPerSecond, hubPerSecond, cpuCores, rssMiB}, measureSteady,
	},
	{
		"blackhole", "what one black-holed member costs the other three",
		[]string{renewalDelayP99}, measureBlackHole,
	},
	{
		"failover", "the reader's check, and 20 failovers against their floor",
		[]string{readerNs, readerAllocs, overFloorMedian, overFloorMax}, measureFailover,
	},
}

// bench is a run of the benchmark.
type bench struct {
	figures figures
	began   time.Time
	phase   string
}

func main() {
	// The libraries' complaints about servers that we break on purpose help nobody.
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) error {
	chosen, err := choose(names)
	if err != nil {
		return err
	}
	result := filepath.Join(outDir, "bench.json")
	if err := os.RemoveAll(result); err != nil {
		return fmt.Errorf("remove the last result: %w", err)
	}
	b := &bench{figures: figures{}, began: time.Now()}
	var failed []error
	for _, m := range chosen {
		b.phase = m.name
		b.say(m.what)
		if err := b.measure(ctx, m); err != nil {
			failed = append(failed, fmt.Errorf("%s could not be measured: %w", m.name, err))
		}
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
	}
	fmt.Printf("\n%s\n", b.figures.table(chosen))
	if err := b.figures.write(result, chosen); err != nil {
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

func (b *bench) measure(ctx context.Context, m measurement) error {
	ctx, cancel := context.WithTimeoutCause(ctx, phaseLimit, fmt.Errorf("it took longer than %s", phaseLimit))
	defer cancel()
	if err := m.measure(ctx, b); err != nil {
		return err
	}
	for _, key := range m.keys {
		if _, ok := b.figures[key]; !ok {
			return fmt.Errorf("there is no %s", key)
		}
	}
	return nil
}

// choose returns the measurements of these names, all of them if there are none.
func choose(names []string) ([]measurement, error) {
	if len(names) == 0 {
		return measurements, nil
	}
	var chosen []measurement
	for _, name := range names {
		i := slices.IndexFunc(measurements, func(m measurement) bool { return m.name == name })
		if i < 0 {
			var known []string
			for _, m := range measurements {
				known = append(known, m.name)
			}
			return nil, fmt.Errorf("there is no measurement %q: choose from %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, measurements[i])
	}
	return chosen, nil
}

// start puts a fleet on stage in an empty folder.
func (b *bench) start(ctx context.Context, o drill.Options) (*drill.Drill, error) {
	o.Dir = filepath.Join(outDir, "bench", b.phase)
	o.Progress = b.say
	if err := os.RemoveAll(o.Dir); err != nil {
		return nil, fmt.Errorf("empty the folder of the last run: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return drill.Start(ctx, o)
}

// say reports progress.
func (b *bench) say(text string) {
	fmt.Printf("%6.1f s  %-9s  %s\n", time.Since(b.began).Seconds(), b.phase, text)
}

// pass returns when d has passed, or early with an error when ctx ends. Measuring takes time; there is no
// condition to await.
func pass(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
