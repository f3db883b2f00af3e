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
	"strconv"
	"strings"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

const (
	outDir = "out"
	// phaseLimit bounds one measurement.
	phaseLimit = 8 * time.Minute
	// leadLimit bounds the wait for leaders, for acts, and for members that may be chosen.
	leadLimit = 2 * time.Minute
)

// measurement is one part of the benchmark. Each has a fleet of its own.
type measurement struct {
	name, what string
	figures    []figure
	fleet      harness.Options
	measure    func(context.Context, *bench)
	looks      bool // at Leases, from the start of the fleet on
}

var measurements = []measurement{
	{
		name: "steady", what: "200 led namespaces in a steady minute, and client-go's elector for as many",
		figures: []figure{
			{"writes.membersPerSecond", 44}, {"writes.hubPerSecond", 0}, {"ours.requestsPerSecond", noAim},
			{"peer.requestsPerSecond", noAim}, {"requestsRatio", 0.2},
		},
		fleet:   harness.Options{Timings: harness.Default, Audit: true, Members: members(teams(ledNamespaces)...)},
		measure: measureSteady,
	},
	{
		name: "blackhole", what: "what one black-holed member costs the other three",
		figures: []figure{{"blackhole.renewalDelayP99Seconds", 0.1}},
		fleet:   blackHoleFleet(), measure: measureBlackHole, looks: true,
	},
	{
		name: "reader", what: "the reader's check, and how soon a promoted cluster has reconciled 1,000 objects",
		figures: []figure{{"reader.nsPerOp", 100}, {"reader.allocsPerOp", 0}, {"reader.resyncSeconds", 1}},
		fleet:   harness.Options{Timings: harness.Fast, Members: members(namespace)},
		measure: measureReaders, looks: true,
	},
	{
		name: "failover", what: "10 failovers against their floor",
		figures: []figure{{"failover.overFloorMedianSeconds", 0.1}, {"failover.overFloorMaxSeconds", 0.5}},
		fleet:   harness.Options{Timings: harness.Fast, ActEvery: 200 * time.Millisecond, Members: members(namespace)},
		measure: measureFailover, looks: true,
	},
	{
		name: "handover", what: "20 planned changes between clusters whose readers acknowledge",
		figures: []figure{{"handover.gapMedianSeconds", 0.15}, {"handover.gapMaxSeconds", 0.5}},
		// The time between two acts is part of every gap.
		fleet: harness.Options{Timings: harness.Default, ActEvery: 5 * time.Millisecond, Register: true,
			Members: members(namespace)},
		measure: measureHandover,
	},
	{
		name: "change", what: "what 200 namespaces that change their leader at once ask of the hub's API server",
		figures: []figure{
			{"change.recordWrites", 2}, {"change.statusWrites", 1}, {"change.events", 1}, {"change.liveReads", 0},
		},
		fleet:   harness.Options{Timings: harness.Fast, Audit: true, Members: members(teams(changed)...)},
		measure: measureChange, looks: true,
	},
	{
		name: "mass", what: "200 namespaces that change their leader at once, for a better one and for a lost one",
		figures: []figure{{"mass.handoverOverFloorSeconds", 3}, {"mass.failoverOverFloorSeconds", 3}},
		fleet:   harness.Options{Timings: harness.Fast, Members: members(teams(changed)...)},
		measure: measureMass, looks: true,
	},
	{
		name: "drain", what: "200 namespaces of a cluster that is drained, 20 at a time",
		figures: []figure{{"drain.seconds", noAim}, {"drain.mostAtOnce", drainedAtOnce}},
		fleet:   harness.Options{Timings: harness.Fast, MostMoves: drainedAtOnce, Members: members(teams(changed)...)},
		measure: measureDrain, looks: true,
	},
	{
		name: "fence", what: "what a fence adds to a write, where 10,000 Leases are",
		figures: []figure{{"fence.p50Milliseconds", noAim}, {"fence.p99Milliseconds", 1}},
		fleet: harness.Options{Timings: harness.Default, Members: []harness.Member{
			{Name: "east", Priority: 1, Namespaces: []string{namespace, unfencedIn}},
		}},
		measure: measureFence,
	},
	{
		name: "renewal", what: "1,000 led namespaces, beside a loop of client-go that updates their Leases at the same rate",
		figures: []figure{
			{"hub.cpuCores1000", 0.5}, {"hub.rssMiB1000", 110}, {"renewalAgeP999Seconds", 10}, {"missedRenewals", 0},
			{"renewal.cpuRatio", 1.6},
		},
		fleet:   harness.Options{Timings: harness.Default, Members: members(teams(renewedNamespaces)...)},
		measure: measureRenewal,
	},
	{
		name: "look", what: "what it takes to look at 1,000 namespaces and 50 Clusters",
		figures: []figure{{"plugin.statusSeconds", 1}, {"plugin.statusLines", 40}, {"scrape.milliseconds", 100}},
		fleet:   harness.Options{Timings: harness.Default, Members: members(teams(renewedNamespaces)...)},
		measure: measureLook,
	},
	{
		name: "follow", what: "how soon objects follow the leader, and what 200 sets cost",
		figures: []figure{
			{"follow.applySeconds", 2}, {"follow.repairSeconds", 2}, {"follow.writesPerSecond", 0}, {"follow.cores", 0.02},
			{"follow.rssMiB", 30},
		},
		fleet:   harness.Options{Timings: harness.Default, Audit: true, Members: members(namespace)},
		measure: measureFollow,
	},
	{
		name: "fifty", what: "what memory 50 members take", figures: []figure{{"hub.rssMiB50", 160}},
		fleet: fiftyFleet(), measure: measureFifty,
	},
}

// bench is a run of the benchmark, with the fleet of the measurement that is under way.
type bench struct {
	*harness.Drill
	view    *harness.View
	figures figures
	began   time.Time
	phase   string
}

func main() {
	harness.Quiet()
	must.Run("bench", func(ctx context.Context) {
		if args := os.Args[1:]; len(args) == 2 && args[0] == loopArg {
			updateLoop(ctx, args[1])
		} else {
			run(ctx, args)
		}
	})
}

func run(ctx context.Context, names []string) {
	chosen, result := must.Get(choose(names)), filepath.Join(outDir, "bench.json")
	must.Do(os.RemoveAll(result), "remove the last result")
	b := &bench{figures: figures{}, began: time.Now()}
	var failed []error
	for _, m := range chosen {
		b.phase = m.name
		b.say("%s", m.what)
		if err := b.measure(ctx, m); err != nil {
			failed = append(failed, fmt.Errorf("%s could not be measured: %w", m.name, err))
		}
		must.FailIf(ctx.Err() != nil, "interrupted")
	}
	fmt.Printf("\n%s\n", b.figures.table(chosen))
	must.Do(errors.Join(append(failed, b.figures.write(result, chosen))...))
}

// measure starts a fleet for a measurement, and makes it.
func (b *bench) measure(ctx context.Context, m measurement) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, phaseLimit, fmt.Errorf("it took longer than %s", phaseLimit))
	defer cancel()
	o := m.fleet
	o.Dir, o.Progress = b.dir(), func(line string) { b.say("%s", line) }
	if b.Drill, err = harness.Start(ctx, o); err != nil {
		return err
	}
	err = must.Try(func() {
		if m.looks {
			b.view = must.Get(b.Look(ctx))
			defer b.view.Close()
		}
		m.measure(ctx, b)
		for _, is := range m.figures {
			if _, ok := b.figures[is.key]; !ok {
				must.Fail("there is no %s", is.key)
			}
		}
	})
	return errors.Join(err, b.Stop())
}

// choose returns the measurements of these names, all of them if there are none.
func choose(names []string) ([]measurement, error) {
	if len(names) == 0 {
		return measurements, nil
	}
	var known []string
	for _, m := range measurements {
		known = append(known, m.name)
	}
	var chosen []measurement
	for _, name := range names {
		i := slices.Index(known, name)
		if i < 0 {
			return nil, fmt.Errorf("there is no measurement %q: choose from %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, measurements[i])
	}
	return chosen, nil
}

// dir is the folder of the measurement.
func (b *bench) dir() string { return filepath.Join(outDir, "bench", b.phase) }

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

// namespace is the one of measurements that have one.
const namespace = "shop"

// clusters are the members of most measurements. The first one leads first.
var clusters = []string{"east", "west", "south"}

// members are these clusters, with the same namespaces each.
func members(namespaces ...string) []harness.Member { return harness.Members(clusters, namespaces...) }

// figure is a value of out/bench.json.
type figure struct {
	key string
	// most is what it should be at most. A negative one is no aim: the value is for information.
	most float64
}

// noAim is the aim of a figure for information.
const noAim = -1

// figures are the measured values, by key.
type figures map[string]float64

// table shows the figures beside their aims.
func (f figures) table(chosen []measurement) string {
	var out strings.Builder
	line := func(key, value, aim, verdict string) {
		fmt.Fprintf(&out, "%34s  %12s  %6s  %s\n", key, value, aim, verdict)
	}
	line("figure", "measured", "aim", "")
	for _, m := range chosen {
		for _, is := range m.figures {
			v, measured := f[is.key]
			value, aim, verdict := "not measured", "", ""
			if measured {
				value = strconv.FormatFloat(v, 'f', 4, 64)
			}
			if is.most > noAim {
				aim = fmt.Sprintf("≤ %v", is.most)
			}
			if measured && aim != "" && v > is.most {
				verdict = "MISSED"
			}
			line(is.key, value, aim, verdict)
		}
	}
	return out.String()
}

// write writes the figures into a file. What could not be measured is null.
func (f figures) write(file string, chosen []measurement) error {
	all := map[string]*float64{}
	for _, m := range chosen {
		for _, is := range m.figures {
			all[is.key] = nil
			if v, ok := f[is.key]; ok {
				all[is.key] = &v
			}
		}
	}
	return harness.WriteReport(file, all)
}

// quantile returns the least of the values that is not exceeded by a share q of them. There must be some.
func quantile(values []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	i := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

func median(values []time.Duration) time.Duration { return quantile(values, 0.5) }

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
