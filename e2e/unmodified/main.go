// Command unmodified drills fenced locks: ten programs that know nothing of our Leases run in each of three members,
// and elect themselves with locks of their cluster. Two are a real kube-controller-manager and a real core manager of
// Cluster API. The others are small electors of client-go and controller-runtime, old and new, with and without a
// timeout of their client, with and without a release of their lock. Each has a policy of its own, which states what is
// true for it.
//
// In each round the hub loses the leader, whose API server hangs: see play.go. The drill writes
// out/drill-unmodified.json. Use it through make:
//
//	make drill SCENARIO=unmodified
//	make drill SCENARIO=unmodified DRILL="-misstate -rounds 2"
//
// It fails if a program ever worked in two clusters at once, or in one of them after the stop time of its lock. With
// -misstate all policies state half of the renew deadline and no release, which is not true for most programs.
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
	n := flag.Int("rounds", len(rounds), "how many rounds to play")
	misstated := flag.Bool("misstate", false, "have all policies state that requests take half of the renew deadline and nobody releases a lock")
	flag.Parse()
	harness.Quiet()
	harness.Run("unmodified", func(ctx context.Context) error { return drill(ctx, *n, *misstated) })
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

func drill(ctx context.Context, n int, misstated bool) (err error) {
	file := filepath.Join(outDir, "drill-unmodified.json")
	if err := os.RemoveAll(file); err != nil {
		return fmt.Errorf("remove the last result: %w", err)
	}
	began := time.Now()
	say := func(line string) { fmt.Printf("%7.1f s  %s\n", time.Since(began).Seconds(), line) }
	dir := filepath.Join(outDir, "drill-unmodified")
	programs := append([]*program{controllerManager(), clusterAPI()}, electors(dir)...)
	if misstated {
		misstate(programs)
	}
	d, err := harness.Start(ctx, stageOptions(dir, say, programs...))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	s, err := begin(ctx, d, say, programs...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r, err := s.play(ctx, n)
	if err != nil {
		return err
	}
	if err := harness.WriteReport(file, r); err != nil {
		return err
	}
	fmt.Printf("\nanswered late: %+v", r.AnsweredLate)
	fmt.Printf("\n%d failovers of %d programs in %d rounds: %d overlaps, of %.1f s at worst, and %d late writes among %d; at worst nobody wrote for %.1f s, the closest two holders were %.1f s apart\n",
		r.Failovers, len(r.Programs), r.Rounds, r.Overlaps, r.WorstOverlapSeconds, r.Late, r.Writes, r.WorstGapSeconds, r.ClosestSeconds)
	return r.failed()
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
