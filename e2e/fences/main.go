// Command fences drills fences with programs that know nothing of our Leases. It plays one of two scenarios, and writes
// out/drill-SCENARIO.json. Use it through make:
//
//	make drill SCENARIO=cronjob
//	make drill SCENARIO=cronjob DRILL=-unwoken      without the hub's right to wake CronJobs
//	make drill SCENARIO=unmodified
//	make drill SCENARIO=unmodified DRILL="-misstate -rounds 2"
//
// # cronjob
//
// The real CronJob controller runs in each of three members. A fence lets its Jobs be created where their cluster
// leads. The leader changes about once a minute, often just when a tick is due: by handovers, failovers and losses of
// the hub. The drill fails if a tick ran twice, or in a cluster that did not lead.
//
// # unmodified
//
// Ten programs run in each of three members, and elect themselves with locks of their cluster. Two are a real
// kube-controller-manager and a real core manager of Cluster API. The others are small electors of client-go and
// controller-runtime, old and new, with and without a timeout of their client, with and without a release of their
// lock. Each has a policy of its own, which states what is true for it. In each round the hub loses the leader, whose
// API server hangs: see play.go. The drill fails if a program ever worked in two clusters at once, or in one of them
// after the stop time of its lock. With -misstate all policies state half of the renew deadline and no release, which
// is not true for most programs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
)

const outDir = "out"

// report is what came of a scenario.
type report interface {
	String() string
	// failed is an error if a program worked where it must not, or if nothing was seen.
	failed() error
}

func main() {
	harness.Quiet()
	harness.Run("fences", func(ctx context.Context) error { return drill(ctx, os.Args[1:]) })
}

func drill(ctx context.Context, args []string) error {
	scenario := ""
	if len(args) > 0 {
		scenario = args[0]
	}
	flags := flag.NewFlagSet(scenario, flag.ExitOnError)
	var play func(dir string, say func(string)) (report, error)
	switch scenario {
	case "cronjob":
		var o cronOptions
		flags.IntVar(&o.ticks, "ticks", 300, "how many ticks to judge at least")
		flags.IntVar(&o.cronJobs, "cronjobs", 25, "how many CronJobs tick each minute")
		flags.BoolVar(&o.unwoken, "unwoken", false, "take away the right to wake CronJobs")
		flags.Uint64Var(&o.seed, "seed", 1, "chooses how long before or after a tick the leader changes")
		play = func(dir string, say func(string)) (report, error) { return drillCronJobs(ctx, o, dir, say) }
	case "unmodified":
		n := flags.Int("rounds", len(rounds), "how many rounds to play")
		misstated := flags.Bool("misstate", false, "have all policies state what is not true for most programs")
		play = func(dir string, say func(string)) (report, error) {
			return drillUnmodified(ctx, *n, *misstated, dir, say)
		}
	default:
		return fmt.Errorf("unknown scenario %q: want cronjob or unmodified", scenario)
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	dir := filepath.Join(outDir, "drill-"+scenario)
	file := dir + ".json"
	if err := os.RemoveAll(file); err != nil {
		return fmt.Errorf("remove the last result: %w", err)
	}
	began := time.Now()
	say := func(line string) { fmt.Printf("%7.1f s  %s\n", time.Since(began).Seconds(), line) }
	r, err := play(dir, say)
	if err != nil {
		return err
	}
	if err := harness.WriteReport(file, r); err != nil {
		return err
	}
	fmt.Printf("\n%s\n", r)
	return r.failed()
}

// result is what is written.
type result struct {
	// verdict is that of all programs together.
	verdict
	Programs map[string]verdict `json:"programs"`
	Rounds   int                `json:"rounds"`
	// Failovers counts those of each program.
	Failovers int `json:"failovers"`
	// AnsweredLate are the requests of electors whose answers the hanging API servers held back, for up to a minute.
	AnsweredLate late `json:"answeredLate"`
}

// drillUnmodified plays the scenario unmodified.
func drillUnmodified(ctx context.Context, n int, misstated bool, dir string, say func(string)) (r report, err error) {
	programs := append([]*program{controllerManager(), clusterAPI()}, electors(dir)...)
	if misstated {
		misstate(programs)
	}
	d, err := harness.Start(ctx, stageOptions(dir, say, programs...))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	s, err := begin(ctx, d, say, programs...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return s.play(ctx, n)
}

func (r result) String() string {
	return fmt.Sprintf("answered late: %+v\n%d failovers of %d programs in %d rounds: %d overlaps, of %.1f s at worst, "+
		"and "+
		"%d late writes among %d; at worst nobody wrote for %.1f s, the closest two holders were %.1f s apart",
		r.AnsweredLate, r.Failovers, len(r.Programs), r.Rounds, r.Overlaps, r.WorstOverlapSeconds, r.Late, r.Writes,
		r.WorstGapSeconds, r.ClosestSeconds)
}

// failed is an error if a program worked where it must not, or if nothing was seen.
func (r result) failed() error {
	if len(r.Breaches) > 0 {
		return fmt.Errorf("%d breaches; the first: %s", len(r.Breaches), r.Breaches[0])
	}
	if l := r.AnsweredLate; r.Rounds >= len(rounds) && (l.Acquisitions == 0 || l.Renewals == 0 || l.Releases == 0) {
		return fmt.Errorf("the answers that came late are %+v: no API server hung", l)
	}
	for name, v := range r.Programs {
		if v.Writes == 0 || v.Changes == 0 || v.Holds == 0 {
			return fmt.Errorf("no %s wrote after another one, or no log tells of its lock: nothing was seen", name)
		}
	}
	return nil
}
