// Command cronjob drills schedules: the real CronJob controller runs in each of three members and knows nothing of
// Leases. A fence lets its Jobs be created where their cluster leads. The leader changes about once a minute, often just
// when a tick is due: by handovers, failovers and losses of the hub. It writes out/drill-cronjob.json. Use it through
// make:
//
//	make drill SCENARIO=cronjob
//	make drill SCENARIO=cronjob DRILL=-unwoken      without the hub's right to wake CronJobs
//
// It fails if a tick ran twice, or in a cluster that did not lead.
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

// options of a drill.
type options struct {
	ticks    int
	cronJobs int
	unwoken  bool
	seed     uint64
}

func main() {
	var o options
	flag.IntVar(&o.ticks, "ticks", 300, "how many ticks to judge at least")
	flag.IntVar(&o.cronJobs, "cronjobs", 25, "how many CronJobs tick each minute")
	flag.BoolVar(&o.unwoken, "unwoken", false, "take away the right to wake CronJobs, to see how late they are without")
	flag.Uint64Var(&o.seed, "seed", 1, "chooses how long before or after a tick the leader changes")
	flag.Parse()
	harness.Quiet()
	harness.Run("cronjob", func(ctx context.Context) error { return drill(ctx, o) })
}

// result is what is written.
type result struct {
	verdict
	Minutes  int      `json:"minutes"`
	CronJobs int      `json:"cronJobs"`
	Woken    bool     `json:"woken"`
	Terms    int      `json:"terms"`
	Changes  []string `json:"changes"`
}

func drill(ctx context.Context, o options) (err error) {
	file := filepath.Join(outDir, "drill-cronjob.json")
	if err := os.RemoveAll(file); err != nil {
		return fmt.Errorf("remove the last result: %w", err)
	}
	began := time.Now()
	say := func(line string) { fmt.Printf("%7.1f s  %s\n", time.Since(began).Seconds(), line) }
	d, err := harness.Start(ctx, stageOptions(filepath.Join(outDir, "drill-cronjob"), say))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	s, err := begin(ctx, d, o, say)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.awaitTick(ctx); err != nil {
		return err
	}
	r, err := s.play(ctx)
	if err != nil {
		return err
	}
	if err := harness.WriteReport(file, r); err != nil {
		return err
	}
	fmt.Printf("\n%d ticks: %d ran twice, %d in a follower, %d were lost, %d of them while a cluster led; the first tick of a term came %.0f s late at worst\n",
		r.Ticks, r.RanTwice, r.RanInFollower, r.Lost, r.LostWhileLed, r.WorstFirstTickSeconds)
	return r.failed()
}

// failed is an error if a tick was run where it must not be.
func (r result) failed() error {
	if len(r.Breaches) > 0 {
		return fmt.Errorf("%d breaches; the first: %s", len(r.Breaches), r.Breaches[0])
	}
	if r.Ticks == r.Lost {
		return errors.New("no tick ran: nothing was seen")
	}
	return nil
}
