// Command bench measures what Leasecast costs and how fast it is, on real control planes. It prints the
// figures beside their aims and writes out/bench.json. It needs the programs that `make k8s build` builds; use it
// through make.
//
//	make bench                           everything, in a quarter of an hour
//	make bench PARTS="steady failover"   only these measurements
//
// It exits with 1 if something could not be measured; a missed aim is a figure like any other.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
)

const (
	outDir = "out"
	// phaseLimit bounds one measurement.
	phaseLimit = 8 * time.Minute
	// leadLimit bounds the wait for leaders and for members that may be chosen.
	leadLimit = 2 * time.Minute
)

// measurement is one part of the benchmark. Each has a fleet of its own.
type measurement struct {
	name, what string
	figures    []figure
	measure    func(context.Context, *bench) error
}

var measurements = []measurement{
	{
		"steady", "200 led namespaces in a steady minute, and client-go's elector for as many", []figure{
			{membersPerSecond, 44}, {hubPerSecond, 0}, {oursRequests, noAim}, {peerRequests, noAim}, {requestsRatio, 0.2},
		}, measureSteady,
	},
	{
		"blackhole", "what one black-holed member costs the other three",
		[]figure{{renewalDelayP99, 0.1}}, measureBlackHole,
	},
	{
		"reader", "the reader's check, and how soon a promoted cluster has reconciled 1,000 objects",
		[]figure{{readerNs, 100}, {readerAllocs, 0}, {resyncSeconds, 1}}, measureReaders,
	},
	{
		"failover", "10 failovers against their floor",
		[]figure{{overFloorMedian, 0.1}, {overFloorMax, 0.5}}, measureFailover,
	},
	{
		"handover", "20 planned changes between clusters whose readers acknowledge",
		[]figure{{handoverGapMedian, 0.15}, {handoverGapMax, 0.5}}, measureHandover,
	},
	{
		"change", "200 namespaces that change their leader at once, for a better one and for a lost one", []figure{
			{changeRecordWrites, 2}, {changeStatusWrites, 1}, {changeEvents, 1}, {changeLiveReads, 0},
			{massHandover, 3}, {massFailover, 3},
		}, measureChange,
	},
	{
		"fence", "what a fence adds to a write, where 10,000 Leases are",
		[]figure{{fenceP50, noAim}, {fenceP99, 1}}, measureFence,
	},
	{
		"renewal", "1,000 led namespaces, beside a loop of client-go that updates their Leases at the same rate", []figure{
			{cpuCores1000, 0.5}, {rssMiB1000, 110}, {renewalAgeP999, 10}, {missedRenewals, 0}, {cpuRatio, 1.6},
		}, measureRenewal,
	},
}

// The keys of out/bench.json.
const (
	membersPerSecond   = "writes.membersPerSecond"
	hubPerSecond       = "writes.hubPerSecond"
	oursRequests       = "ours.requestsPerSecond"
	peerRequests       = "peer.requestsPerSecond"
	requestsRatio      = "requestsRatio"
	renewalDelayP99    = "blackhole.renewalDelayP99Seconds"
	readerNs           = "reader.nsPerOp"
	readerAllocs       = "reader.allocsPerOp"
	resyncSeconds      = "reader.resyncSeconds"
	overFloorMedian    = "failover.overFloorMedianSeconds"
	overFloorMax       = "failover.overFloorMaxSeconds"
	handoverGapMedian  = "handover.gapMedianSeconds"
	handoverGapMax     = "handover.gapMaxSeconds"
	changeRecordWrites = "change.recordWrites"
	changeStatusWrites = "change.statusWrites"
	changeEvents       = "change.events"
	changeLiveReads    = "change.liveReads"
	massHandover       = "mass.handoverOverFloorSeconds"
	massFailover       = "mass.failoverOverFloorSeconds"
	fenceP50           = "fence.p50Milliseconds"
	fenceP99           = "fence.p99Milliseconds"
	cpuCores1000       = "hub.cpuCores1000"
	rssMiB1000         = "hub.rssMiB1000"
	renewalAgeP999     = "renewalAgeP999Seconds"
	missedRenewals     = "missedRenewals"
	cpuRatio           = "renewal.cpuRatio"
)

// bench is a run of the benchmark.
type bench struct {
	figures figures
	began   time.Time
	phase   string
}

func main() {
	harness.Quiet()
	harness.Run("bench", func(ctx context.Context) error {
		if args := os.Args[1:]; len(args) == 2 && args[0] == loopArg {
			return updateLoop(ctx, args[1])
		}
		return run(ctx, os.Args[1:])
	})
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
		b.say("%s", m.what)
		if err := b.measure(ctx, m); err != nil {
			failed = append(failed, fmt.Errorf("%s could not be measured: %w", m.name, err))
		}
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
	}
	fmt.Printf("\n%s\n", b.figures.table(chosen))
	return errors.Join(append(failed, b.figures.write(result, chosen))...)
}

func (b *bench) measure(ctx context.Context, m measurement) error {
	ctx, cancel := context.WithTimeoutCause(ctx, phaseLimit, fmt.Errorf("it took longer than %s", phaseLimit))
	defer cancel()
	if err := m.measure(ctx, b); err != nil {
		return err
	}
	for _, is := range m.figures {
		if _, ok := b.figures[is.key]; !ok {
			return fmt.Errorf("there is no %s", is.key)
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

// start starts a fleet in the folder of the measurement.
func (b *bench) start(ctx context.Context, o harness.Options) (*harness.Drill, error) {
	o.Dir, o.Progress = filepath.Join(outDir, "bench", b.phase), func(line string) { b.say("%s", line) }
	return harness.Start(ctx, o)
}

// say reports progress.
func (b *bench) say(format string, args ...any) {
	fmt.Printf("%6.1f s  %-9s  %s\n", time.Since(b.began).Seconds(), b.phase, fmt.Sprintf(format, args...))
}

// teams are the names of n namespaces.
func teams(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("team-%03d", i)
	}
	return names
}

// clusters are the members of most measurements. The first one leads first.
var clusters = []string{"east", "west", "south"}

// members are these clusters, with the same namespaces each.
func members(namespaces ...string) (all []harness.Member) {
	for i, cluster := range clusters {
		all = append(all, harness.Member{Name: cluster, Priority: 100 - i, Namespaces: namespaces})
	}
	return all
}
