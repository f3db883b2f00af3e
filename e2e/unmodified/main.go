// Command unmodified drills fenced locks: a real kube-controller-manager and a real core manager of Cluster API run in each
// of three members, elect themselves with locks of their cluster, and know nothing of our Leases. A fence lets them hold
// that lock where their cluster leads. They write all the time, because the drill undoes what they do. The leader changes by failovers, handovers and
// losses of the hub. It writes out/drill-unmodified.json. Use it through make:
//
//	make drill SCENARIO=unmodified
//	make drill SCENARIO=unmodified DRILL="-failovers 10"
//
// It fails if a program ever worked in two clusters at once, or in one of them after the stop time of its lock.
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

func main() {
	failovers := flag.Int("failovers", 50, "how many failovers to judge")
	flag.Parse()
	harness.Quiet()
	harness.Run("unmodified", func(ctx context.Context) error { return drill(ctx, *failovers) })
}

// result is what is written.
type result struct {
	// verdict is that of all programs together.
	verdict
	Programs  map[string]verdict `json:"programs"`
	Failovers int                `json:"failovers"`
	Handovers int                `json:"handovers"`
	// HubLosses are those that were longer than a term and the stop time.
	HubLosses int `json:"hubLosses"`
}

func drill(ctx context.Context, failovers int) (err error) {
	file := filepath.Join(outDir, "drill-unmodified.json")
	if err := os.RemoveAll(file); err != nil {
		return fmt.Errorf("remove the last result: %w", err)
	}
	began := time.Now()
	say := func(line string) { fmt.Printf("%7.1f s  %s\n", time.Since(began).Seconds(), line) }
	programs := []*program{controllerManager(), clusterAPI()}
	d, err := harness.Start(ctx, stageOptions(filepath.Join(outDir, "drill-unmodified"), say, programs...))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	s, err := begin(ctx, d, say, programs...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r, err := s.play(ctx, failovers)
	if err != nil {
		return err
	}
	if err := harness.WriteReport(file, r); err != nil {
		return err
	}
	fmt.Printf("\n%d failovers, %d handovers, %d losses of the hub: %d overlaps and %d late writes among %d; at worst nobody wrote for %.1f s, the closest two holders were %.1f s apart\n",
		r.Failovers, r.Handovers, r.HubLosses, r.Overlaps, r.Late, r.Writes, r.WorstGapSeconds, r.ClosestSeconds)
	return r.failed()
}

// failed is an error if a controller worked where it must not, or if nothing was seen.
func (r result) failed() error {
	if len(r.Breaches) > 0 {
		return fmt.Errorf("%d breaches; the first: %s", len(r.Breaches), r.Breaches[0])
	}
	for name, v := range r.Programs {
		if v.Writes == 0 || v.Changes == 0 || v.Holds == 0 {
			return fmt.Errorf("no %s wrote after another one, or no log tells of its lock: nothing was seen", name)
		}
	}
	return nil
}
