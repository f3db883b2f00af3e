// Command fences drills fences with programs that do not read our Leases. It plays one of two scenarios, and writes
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
// Four programs run in each of three members, and elect themselves with locks of their cluster. One is a real
// kube-controller-manager. The others are small electors of client-go and controller-runtime, with and without a
// release of their lock. Each has a policy of its own, which states what is true for it. In each round the hub loses
// the leader, whose API server hangs: see unmodified.go. The drill fails if a program ever worked in two clusters at
// once, or in one of them after the stop time of its lock. With -misstate all policies state half of the renew deadline
// and no release, which is not true for most programs.
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
	"github.com/leasecast/leasecast/e2e/must"
)

// scenario is one that is played on a fleet.
type scenario interface {
	fleet() harness.Options
	play(ctx context.Context, d *harness.Drill) report
}

// report is the result of a scenario.
type report interface {
	String() string
	// failed is an error if a program worked where it must not, or if nothing was seen.
	failed() error
}

func main() {
	harness.Quiet()
	must.Run("fences", func(ctx context.Context) { drill(ctx, os.Args[1:]) })
}

func drill(ctx context.Context, args []string) {
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	dir := filepath.Join("out", "drill-"+name)
	began := time.Now()
	say := func(line string) { fmt.Printf("%7.1f s  %s\n", time.Since(began).Seconds(), line) }
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	var played scenario
	switch name {
	case "cronjob":
		s := &cronTestbed{say: say, cronJobs: 25}
		flags.BoolVar(&s.unwoken, "unwoken", false, "take away the right to wake CronJobs")
		played = s
	case "unmodified":
		s := &testbed{say: say, programs: append([]*program{controllerManager()}, electors(dir)...)}
		flags.IntVar(&s.rounds, "rounds", len(rounds), "how many rounds to play")
		flags.BoolFunc("misstate", "have all policies state what is not true for most programs", func(string) error {
			misstate(s.programs)
			return nil
		})
		played = s
	default:
		must.Fail("unknown scenario %q: want cronjob or unmodified", name)
	}
	must.Do(errors.Join(flags.Parse(args[1:]), os.RemoveAll(dir+".json")))
	o := played.fleet()
	o.Dir, o.Progress = dir, say
	d := must.Get(harness.Start(ctx, o))
	r, err := must.Return(func() report { return played.play(ctx, d) })
	must.Do(errors.Join(err, d.Stop()))
	must.Do(harness.WriteReport(dir+".json", r))
	fmt.Printf("\n%s\n", r)
	must.Do(r.failed())
}
