// Command drill plays a named scenario on a fleet of real control planes, and narrates it. It writes out/report.html,
// with who could act, who acted, and each gap against its floor. Use it through make:
//
//	make drill SCENARIO=leader-lost
//	make demo                            also writes out/demo.json
//
// It exits with 1 if two clusters ever acted at once, or if the fleet does not do what the scenario expects. It also
// leaves such a fleet running, with kubeconfigs in out/, and stops it:
//
//	make up
//	make down
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	// changeLimit bounds each wait. Failing takes longer than anything that works.
	changeLimit = time.Minute
	// playLimit bounds a scenario. Each takes less than a minute.
	playLimit = 5 * time.Minute
)

var (
	members    = []string{"east", "west", "south"}
	namespaces = []string{"ledger", "shop"}
)

// outDir is the folder of everything that is left behind, below the current one.
const outDir = "out"

// demoFile has the figures of the demo.
var demoFile = filepath.Join(outDir, "demo.json")

// scenario is what is played, once east leads both namespaces.
type scenario struct {
	title string
	play  func(context.Context, *drill)
}

// drill is a scenario that goes on.
type drill struct {
	*harness.Narrator
	*harness.Drill
	view *harness.View
	// leaders are the clusters that must have acted, in order, in each namespace.
	leaders []string
	figures figures
	isDemo  bool // so the figures are written
}

// figures are the content of out/demo.json. Of the namespaces the slowest counts. What did not happen is null.
type figures struct {
	// Failover is the time from the fault to the first act of the next leader, Floor its lower bound.
	Failover *float64 `json:"failover.seconds"`
	Floor    *float64 `json:"failover.floorSeconds"`
	// Handover is the time from the edit of the label to the first act of the next leader.
	Handover *float64 `json:"handover.seconds"`
	// Overlaps counts all that harness.Judge finds wrong.
	Overlaps int `json:"overlaps"`
}

func main() {
	harness.Quiet()
	must.Run("drill", func(ctx context.Context) {
		switch name := strings.Join(os.Args[1:], " "); name {
		case "up":
			up(ctx)
		case "down":
			down(ctx)
		case serveArg:
			serve(ctx)
		default:
			run(ctx, name)
		}
	})
}

// cast is the fleet, whose logs are in a folder below out.
func cast(folder string, actEvery time.Duration, progress func(string)) harness.Options {
	return harness.Options{Members: harness.Members(members, namespaces...), Timings: harness.Fast,
		ActEvery: actEvery, Dir: filepath.Join(outDir, folder), Progress: progress}
}

func run(ctx context.Context, name string) {
	s, ok := scenarios[name]
	must.FailIf(!ok, "unknown scenario %q: make drill SCENARIO=… takes one of %s, cronjob, unmodified", name,
		strings.Join(slices.Sorted(maps.Keys(scenarios)), ", "))
	must.Do(errors.Join(os.RemoveAll(harness.ReportFile), os.RemoveAll(demoFile)), "remove the last report")
	n := harness.NewNarrator()
	n.Say(s.title)
	started := must.Get(harness.Start(ctx, cast("drill", 100*time.Millisecond, n.Step)))
	err := must.Try(func() {
		d := &drill{Narrator: n, Drill: started, view: must.Get(started.Look(ctx)), isDemo: name == "demo"}
		defer d.view.Close()
		limited, cancel := context.WithTimeoutCause(ctx, playLimit, fmt.Errorf("it takes more than %s", playLimit))
		defer cancel()
		played := must.Try(func() {
			d.next(limited, "east", 0)
			must.Do(process.Pass(limited, d.Timings.Duration))
			s.play(limited, d)
		})
		must.Do(context.Cause(ctx))
		d.judge(s.title, played)
	})
	n.Step("cleaning up")
	must.Do(errors.Join(err, started.Stop()))
}

// next returns the first act of a cluster in each namespace after an instant. It must be the next leader of each.
func (d *drill) next(ctx context.Context, cluster string, after time.Duration) (first map[string]time.Duration) {
	d.leaders, first = append(d.leaders, cluster), map[string]time.Duration{}
	for _, namespace := range namespaces {
		a := must.Get(d.AwaitAct(ctx, changeLimit, cluster+" acts in "+namespace, func(a harness.Act) bool {
			return a.Namespace == namespace && a.Cluster == cluster && a.Begin > after
		}))
		first[namespace] = a.Begin
		d.Step(fmt.Sprintf("%s: the guestbook in %s acts, in epoch %d", namespace, cluster, a.Epoch))
	}
	return first
}

// stays watches for a while. What acts then is judged at the end.
func (d *drill) stays(ctx context.Context, cluster string) {
	length := 2 * (d.Timings.Duration + d.Timings.Skew)
	d.Step(fmt.Sprintf("watching for %s that %s stays", length, cluster))
	must.Do(must.Stay(ctx, length, cluster+" stays", func(context.Context) error { return d.Check() }))
}

// recovered waits until east may lead again.
func (d *drill) recovered(ctx context.Context) {
	must.Do(d.AwaitEligible(ctx, changeLimit, "east", namespaces...))
	d.Step("east may lead again")
}

// judge judges what the guestbooks did, and writes the page.
func (d *drill) judge(title string, played error) {
	acts := must.Get(d.Acts())
	var problems []string
	if played != nil {
		problems = append(problems, strings.Split(played.Error(), "\n")...)
	}
	verdicts := harness.Judge(acts)
	for _, b := range harness.Breaches(verdicts) {
		problems = append(problems, b.String())
		d.figures.Overlaps++
	}
	for _, v := range verdicts {
		if played == nil && !slices.Equal(v.Leaders, d.leaders) {
			problems = append(problems, fmt.Sprintf("%s: %v acted in this order, want %v", v.Namespace, v.Leaders, d.leaders))
		}
	}
	page := d.view.Report(title, d.Narrator, acts, problems...)
	must.Do(page.WriteFile(harness.ReportFile))
	if d.isDemo {
		must.Do(harness.WriteReport(demoFile, d.figures))
	}
	sentence, kept := page.Verdict()
	d.Say(sentence)
	d.Step("drawn in " + harness.ReportFile + ", logs in out/drill")
	must.FailIf(!kept, "%s", sentence)
}
