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
	"github.com/leasecast/leasecast/e2e/must"
)

const (
	// changeLimit bounds each wait. Failing takes longer than anything that works.
	changeLimit = time.Minute
	// playLimit bounds all scenes together, which take about a minute.
	playLimit = 5 * time.Minute
	// liveliness is how long a leader's guestbook may go without an act: much longer than it ever should.
	liveliness = 2 * time.Second
)

func resultFile() string { return filepath.Join(outDir, "demo.json") }

// demo plays all scenes, and judges what came of them, also after a failure.
func demo(ctx context.Context) {
	must.Do(os.RemoveAll(resultFile()), "remove the last result")
	n := harness.NewNarrator()
	n.Say("A hub and three members, each a real etcd, kube-apiserver and controller manager.")
	d := must.Get(harness.Start(ctx, cast("demo", 100*time.Millisecond, n.Step)))
	err := must.Try(func() {
		p := &play{Narrator: n, d: d, View: must.Get(d.Look(ctx))}
		defer p.Close()
		limited, cancel := context.WithTimeoutCause(ctx, playLimit, fmt.Errorf("the scenes take more than %s", playLimit))
		defer cancel()
		played := must.Try(func() {
			p.elect(limited)
			p.failover(limited)
			p.stay(limited)
			p.handover(limited)
		})
		must.Do(context.Cause(ctx))
		must.Do(errors.Join(played, must.Try(p.judge)))
	})
	n.Step("cleaning up")
	must.Do(errors.Join(err, d.Stop()))
}

// play is the demo in its scenes, and what was measured in them.
type play struct {
	*harness.Narrator
	d *harness.Drill
	*harness.View
	result result
}

// elect waits until east acts, because its priority is the highest.
func (p *play) elect(ctx context.Context) {
	p.Say("The hub elects. A guestbook controller runs in each member and acts where its cluster leads.")
	p.Step("a hub that finds no trace of a predecessor first waits for all that one could have promised")
	p.awaitChange(ctx, "east", 0)
}

// failover pauses the leader's API server. Its controllers go on, and are not notified.
func (p *play) failover(ctx context.Context) {
	p.Say("The leader is lost: its API server stops answering, in the middle of everything.")
	east := p.d.Fleet.Member("east")
	fault := harness.Now().Boot
	must.Do(east.Pause())
	p.Did(fault, fmt.Sprintf("east's API server is paused (SIGSTOP to process %d)", east.PIDs().APIServer))
	first := p.awaitChange(ctx, "west", fault)
	seen := p.Leases["east"].Seen()
	for namespace, at := range first {
		stamp, ok := harness.LastRenewTime(seen, namespace, fault)
		must.FailIf(!ok, "%s: no Lease was seen in east that let it act", namespace)
		if took := (at - fault).Seconds(); p.result.Failover == nil || took > *p.result.Failover {
			floor := harness.Floor(p.d.Timings, fault, stamp, 0).Seconds()
			p.result.Failover, p.result.Floor = &took, &floor
		}
	}
	p.Step(fmt.Sprintf("failover took %.2f s; no lease of these timings could have let go of east before %.2f s",
		*p.result.Failover, *p.result.Floor))
}

// stay heals the old leader and watches that nothing moves back.
func (p *play) stay(ctx context.Context) {
	p.Say("The old leader comes back. It must learn that it was replaced, and nothing may flap.")
	healed := harness.Now().Boot
	must.Do(p.d.Fleet.Member("east").Resume())
	p.Undid(healed, "east's API server goes on")
	must.Do(p.d.AwaitEligible(ctx, changeLimit, "east", namespaces...))
	watched := 2 * (p.d.Timings.Duration + p.d.Timings.Skew)
	p.Step(fmt.Sprintf("east is healthy again and has the higher priority; watching for %s that west stays", watched))
	p.onlyActs(ctx, "west", watched)
	p.Step("west acted in the meantime, and no other cluster did")
}

// handover changes a label, as an operator does.
func (p *play) handover(ctx context.Context) {
	p.Say("A planned change: the operator gives south the highest priority.")
	edit := harness.Now().Boot
	must.Do(p.d.SetPriority(ctx, "south", 200))
	p.Did(edit, "kubectl label cluster south leasecast.dev/priority=200 --overwrite")
	for _, at := range p.awaitChange(ctx, "south", edit) {
		if took := (at - edit).Seconds(); p.result.Handover == nil || took > *p.result.Handover {
			p.result.Handover = &took
		}
	}
	p.Step(fmt.Sprintf("handover took %.2f s", *p.result.Handover))
}

// awaitChange returns each namespace's first act of the cluster after an instant, when it has acted alone for a while.
func (p *play) awaitChange(ctx context.Context, cluster string, after time.Duration) map[string]time.Duration {
	first := map[string]time.Duration{}
	for _, namespace := range namespaces {
		a := must.Get(p.d.AwaitAct(ctx, changeLimit, cluster+" acts in "+namespace, func(a harness.Act) bool {
			return a.Namespace == namespace && a.Cluster == cluster && a.Begin > after
		}))
		first[namespace] = a.Begin
		p.Step(fmt.Sprintf("%s: the guestbook in %s acts, in epoch %d", namespace, cluster, a.Epoch))
	}
	p.onlyActs(ctx, cluster, p.d.Timings.Duration)
	return first
}

// onlyActs watches for a while that this cluster acts in every namespace to the end, and no other acts.
func (p *play) onlyActs(ctx context.Context, cluster string, d time.Duration) {
	begin := harness.Now().Boot
	must.Do(harness.Stay(ctx, d, "only "+cluster+" acts", func(context.Context) error {
		now := harness.Now().Boot
		all, err := p.d.Acts()
		must.Do(errors.Join(err, p.d.Check()))
		last := map[string]time.Duration{}
		for _, a := range all {
			switch {
			case a.Begin >= begin && a.Cluster != cluster:
				return fmt.Errorf("the guestbook in %s acted in %s", a.Cluster, a.Namespace)
			case a.Cluster == cluster:
				last[a.Namespace] = max(last[a.Namespace], a.Begin)
			}
		}
		for _, namespace := range namespaces {
			if now-last[namespace] > liveliness {
				return fmt.Errorf("the guestbook in %s has stopped to act in %s", cluster, namespace)
			}
		}
		return nil
	}))
}

// result is out/demo.json. Of the namespaces the slowest counts. What did not happen is null.
type result struct {
	// Failover is the time from the fault to the first act of the next leader, Floor its lower bound.
	Failover *float64 `json:"failover.seconds"`
	Floor    *float64 `json:"failover.floorSeconds"`
	// Handover is the time from the edit of the label to the first act of the next leader.
	Handover *float64 `json:"handover.seconds"`
	// Overlaps counts all that harness.Judge finds wrong.
	Overlaps int `json:"overlaps"`
}

// flaws returns why the demo fails: what the guestbooks did, whatever the scenes saw.
func (r result) flaws(verdicts []harness.Verdict) error {
	var errs []error
	for _, b := range harness.Breaches(verdicts) {
		errs = append(errs, errors.New(b.String()))
	}
	if r.Failover == nil || r.Handover == nil {
		errs = append(errs, errors.New("a change of leader is missing"))
	} else if *r.Failover < *r.Floor {
		errs = append(errs, fmt.Errorf("failover took %.3f s, less than the %.3f s for which east may have acted",
			*r.Failover, *r.Floor))
	}
	for _, namespace := range namespaces {
		i := slices.IndexFunc(verdicts, func(v harness.Verdict) bool { return v.Namespace == namespace })
		if i < 0 || !slices.Equal(verdicts[i].Leaders, leaders) {
			errs = append(errs, fmt.Errorf("%s: the clusters did not act in the order %v", namespace, leaders))
		}
	}
	return errors.Join(errs...)
}

// judge judges what the guestbooks did, and writes the page and the file.
func (p *play) judge() {
	acts := must.Get(p.d.Acts())
	verdicts := harness.Judge(acts)
	p.result.Overlaps = len(harness.Breaches(verdicts))
	flaws := p.result.flaws(verdicts)
	var problems []string
	if flaws != nil {
		problems = strings.Split(flaws.Error(), "\n")
	}
	page := p.Report("The demo: a leader is lost, comes back, and another one is ordered", p.Narrator, acts, problems...)
	must.Do(errors.Join(page.WriteFile(harness.ReportFile), harness.WriteReport(resultFile(), p.result)))
	p.Say(fmt.Sprintf("%d acts of three guestbooks judged: %d overlaps.", len(acts), p.result.Overlaps))
	sentence, _ := page.Verdict()
	p.Step(sentence)
	p.Step(fmt.Sprintf("who could act and who did is drawn in %s; results are in %s, logs in out/demo", harness.ReportFile,
		resultFile()))
	must.Do(flaws)
}
