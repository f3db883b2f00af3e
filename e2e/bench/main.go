// Command bench measures what Leasecast costs and how fast it is, on real control planes. It prints the
// figures beside their targets and writes out/bench.json. It needs the programs that `make k8s build` builds; use it
// through make.
//
//	go run ./e2e/bench                          everything, in about half an hour
//	go run ./e2e/bench steady failover          only these measurements
//	go run ./e2e/bench -scale.for=1m scale      a shorter look at the large fleet, which alone takes 12 minutes
//
// The measurements are: reader, steady, blackhole, failover, handover, change and fence (together twenty minutes); peer,
// what people do today, and ours beside it, under the same fault (five minutes each); scale, a large fleet for long.
//
// It exits with 1 if something could not be measured; a missed target is a figure like any other.
package main

import (
	"context"
	"errors"
	"flag"
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
)

// measurement is one part of the benchmark. Each has a fleet of its own.
type measurement struct {
	name, what string
	keys       []string
	measure    func(context.Context, *bench) error
	// longer, if set, is added to the limit.
	longer func(sizes) time.Duration
}

// sizes are the sizes of a measurement. The figures and their targets are those of the defaults.
type sizes struct {
	compared, faults int // namespaces and faults of peer and ours
	scaled, more     int // namespaces of scale, and its members beside the three
	scaleFor         time.Duration
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

func (s sizes) perFault() time.Duration { return time.Duration(s.faults) * 2 * time.Minute }

var measurements = []measurement{
	{
		"steady", "what 100 led namespaces cost in a steady minute",
		[]string{membersPerSecond, hubPerSecond, cpuCores, rssMiB}, measureSteady, nil,
	},
	{
		"blackhole", "what one black-holed member costs the other three",
		[]string{renewalDelayP99}, measureBlackHole, nil,
	},
	{
		"reader", "the reader's check, how soon a promoted cluster has looked at 1,000 objects, and begun in each of 5 namespaces",
		[]string{readerNs, readerAllocs, resyncSeconds, firstActSeconds}, measureReaders, nil,
	},
	{
		"failover", "20 failovers against their floor",
		[]string{overFloorMedian, overFloorMax}, measureFailover, nil,
	},
	{
		"handover", "40 planned changes between clusters whose readers say when they have stopped",
		[]string{handoverGapMedian, handoverGapP99}, measureHandover, nil,
	},
	{
		"change", "200 namespaces that change their leader at once, for a better one and for a lost one",
		[]string{changeRecordWrites, changeStatusWrites, changeEvents, changeLiveReads, massHandover, massFailover}, measureChange, nil,
	},
	{
		"fence", "what a fence costs an API server that has 10,000 Leases",
		[]string{fenceP50, fenceP99, fenceMemory}, measureFence, nil,
	},
	{
		peerName, "what people do today: client-go's elector against one API server, a candidate in each cluster",
		[]string{peerRequests, peerP50, peerP99, peerMax}, measurePeer, sizes.perFault,
	},
	{
		oursName, "the same namespaces, clusters, duration and fault with Leasecast",
		[]string{oursRequests, oursP50, oursP99, oursMax}, measureOurs, sizes.perFault,
	},
	{
		"scale", "one hub that leads many namespaces for long",
		[]string{cpuCores1000, rssMiB1000, renewalAgeP999, missedRenewals}, measureScale,
		func(s sizes) time.Duration { return s.scaleFor },
	},
}

// Both give one figure more together.
const (
	peerName = "peer"
	oursName = "ours"
)

// bench is a run of the benchmark.
type bench struct {
	sizes   sizes
	figures figures
	began   time.Time
	phase   string
}

func main() {
	const name = "bench"
	if args := os.Args[1:]; len(args) > 0 && (args[0] == candidateArg || args[0] == readerArg) {
		harness.Run(name, func(ctx context.Context) error { return runChild(ctx, args) })
	}
	harness.Quiet()
	harness.Run(name, func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

// parse reads the command line.
func parse(args []string) (sizes, []measurement, error) {
	var s sizes
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.IntVar(&s.compared, "compare.namespaces", 200, "namespaces of the measurements peer and ours")
	flags.IntVar(&s.faults, "compare.faults", 3, "faults in each of them")
	flags.IntVar(&s.scaled, "scale.namespaces", 1000, "namespaces of the measurement scale")
	flags.IntVar(&s.more, "scale.more", 0, "members that it has beside the three")
	flags.DurationVar(&s.scaleFor, "scale.for", 10*time.Minute, "how long it lasts")
	if err := flags.Parse(args); err != nil {
		return s, nil, err
	}
	if s.compared < 1 || s.faults < 1 || s.scaled < 1 || s.scaleFor < time.Minute {
		return s, nil, errors.New("want at least one namespace, one fault and one minute")
	}
	chosen, err := choose(flags.Args())
	return s, chosen, err
}

func run(ctx context.Context, args []string) error {
	sizes, chosen, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	result := filepath.Join(outDir, "bench.json")
	if err := os.RemoveAll(result); err != nil {
		return fmt.Errorf("remove the last result: %w", err)
	}
	b := &bench{sizes: sizes, figures: figures{}, began: time.Now()}
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
	b.figures.compare()
	fmt.Printf("\n%s\n", b.figures.table(chosen))
	if err := b.figures.write(result, chosen); err != nil {
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

func (b *bench) measure(ctx context.Context, m measurement) error {
	limit := phaseLimit
	if m.longer != nil {
		limit += m.longer(b.sizes)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %s", limit))
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

// start starts a fleet in the folder of the measurement.
func (b *bench) start(ctx context.Context, o harness.Options) (*harness.Drill, error) {
	o.Dir, o.Progress = b.dir(), b.say
	return harness.Start(ctx, o)
}

// dir is the folder of a measurement's logs.
func (b *bench) dir() string { return filepath.Join(outDir, "bench", b.phase) }

// say reports progress.
func (b *bench) say(text string) {
	fmt.Printf("%6.1f s  %-9s  %s\n", time.Since(b.began).Seconds(), b.phase, text)
}
