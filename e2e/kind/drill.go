package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	leasereport "github.com/leasecast/leasecast/cmd/kubectl-leasecast/report"
	"github.com/leasecast/leasecast/e2e/guestbook/acts"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	// patience bounds the wait for an outcome that is late.
	patience = 2 * time.Minute
	// watched is how long a leader is watched that must go on: longer than a term that is not renewed.
	watched = 17 * time.Second
	// quiet is how long no cluster must act when a term has ended.
	quiet = 3 * time.Second
	// endLimit is the longest that a term outlives its hub: D.
	endLimit = 16 * time.Second
	// recoverLimit is for what was broken: a node starts, its controllers elect, the hub connects.
	recoverLimit = 4 * time.Minute
)

func resultFile() string { return filepath.Join("out", "kind-drill.json") }

// testbed is a drill that goes on.
type testbed struct {
	*place
	hub  client.Client
	logs map[string]*actLog // of all guestbooks, by file
}

// actLog is the act log of a process, which may have ended.
type actLog struct {
	*harness.ActLog
	ended bool
}

// drill makes so many faults, and writes what came of them, also after a failure.
func drill(ctx context.Context, p *place, rounds int) {
	must.Do(os.RemoveAll(resultFile()), "remove the last result")
	needEngine(ctx)
	st := &testbed{place: p, hub: p.client(), logs: map[string]*actLog{}}
	st.begin(ctx)
	st.ask(ctx)
	began := harness.Now().Boot
	var rs []round
	var broken error
	for i := 0; i < rounds && broken == nil; i++ {
		r := round{Fault: faults[i%len(faults)].name, Expected: faults[i%len(faults)].expect}
		broken = must.Try(func() { st.round(ctx, faults[i%len(faults)], &r) })
		rs = append(rs, r)
		p.say("round %d of %d: %s", i+1, rounds, r)
	}
	acts, err := st.acts()
	result := report(rs, harness.Judge(acts))
	p.say("%d rounds, %d failovers, %d overlaps, nobody acted for %.1f s at worst; see %s and %s",
		result.Rounds, result.Failovers, result.Overlaps, result.WorstGap, resultFile(), harness.ReportFile)
	flaws := errors.Join(broken, result.flaws())
	must.Do(errors.Join(err, flaws, harness.WriteReport(resultFile(), result),
		page(began, rs, acts, flaws).WriteFile(harness.ReportFile)))
}

// page draws the rounds. No Leases are watched here, so no floors are known.
func page(began time.Duration, rounds []round, acts []harness.Act, flaws error) *harness.Page {
	p := harness.NewPage("Drill on kind", "Acts are what guestbook controllers logged. All clocks are one machine's.",
		began,
		harness.Now().Boot)
	if flaws != nil {
		p.Problems = strings.Split(flaws.Error(), "\n")
	}
	for _, r := range rounds {
		p.AddFault(r.fault, r.Fault)
	}
	n := leasereport.Namespace{Name: managed}
	for _, c := range members {
		n.Rows = append(n.Rows, leasereport.Row{Cluster: c.name, Acted: p.Spans(acts, managed, c.name, silence)})
	}
	p.Namespaces = []leasereport.Namespace{n}
	p.Gaps(func(string, leasereport.Gap) time.Duration { return 0 })
	return p
}

// begin gives the drill fresh logs, and waits until all is well.
func (st *testbed) begin(ctx context.Context) {
	must.Do(must.Try(func() { awaitSettled(ctx, st.hub, recoverLimit) }),
		"the drill breaks what make kind-up has made: run that first")
	st.say("restarting the guestbooks")
	var g errgroup.Group
	for _, c := range members {
		g.Go(func() error {
			return must.Try(func() {
				must.Get(st.kubectl(ctx, c, "-n", guestbookHome, "rollout", "restart", "deployment/guestbook"))
				must.Do(st.rolledOut(ctx, c, guestbookHome, "guestbook"))
			})
		})
	}
	must.Do(g.Wait())
	must.Get(st.acts())
	for file, log := range st.logs { // of processes before the drill
		if log.ended {
			delete(st.logs, file)
			must.Do(os.Remove(file))
		}
	}
}

// ask asks the hub, through the API server's tunnel to its Pod, what the loss of the leader would do.
func (st *testbed) ask(ctx context.Context) {
	leader := awaitSettled(ctx, st.hub, recoverLimit)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out := must.Get(execute(ctx, nil, filepath.Join(st.root, "dist", runtime.GOARCH, "kubectl-leasecast"), "what-if",
		"--kubeconfig="+st.kubeconfig(hub), "-n="+harness.FleetNamespace, "--without="+leader, "-o=json"))
	must.FailIf(!strings.Contains(out, `"withinSeconds"`), "what-if got no times from the hub: %s", out)
	st.say("what-if --without %s: %s", leader, strings.Join(strings.Fields(out), " "))
}

// acts returns all acts so far, also of processes that have ended. An act of a process that ended has ended with it.
func (st *testbed) acts() ([]harness.Act, error) {
	return must.Return(func() (all []harness.Act) {
		for _, c := range members {
			for _, file := range must.Get(acts.Logs(st.place.acts(c))) {
				log := st.logs[file]
				if log == nil {
					log = &actLog{ActLog: harness.NewActLog(file)}
					st.logs[file] = log
				}
				if !log.ended {
					log.ended = must.Get(acts.Ended(file)) // before it is read: then it is complete
					if log.ended {
						must.Do(log.Ended(harness.Now().Boot))
					}
				}
				all = append(all, must.Get(log.Acts())...)
			}
		}
		return all
	})
}

// round makes one fault when all is well, waits for its outcome, and puts things right. A wrong outcome is no error: it
// is in the round.
func (st *testbed) round(ctx context.Context, f fault, r *round) {
	r.Leader = awaitSettled(ctx, st.hub, recoverLimit)
	i := slices.IndexFunc(members, func(c cluster) bool { return c.name == r.Leader })
	must.FailIf(i < 0, "%q leads, which is no member of the drill", r.Leader)
	leader := members[i]
	for _, c := range members {
		must.Do(must.Await(ctx, recoverLimit, "the guestbook in "+c.name+" could act",
			func(ctx context.Context) error { return st.warm(ctx, c) }))
	}
	began := harness.Now().Boot
	must.Get(st.awaitAct(ctx, time.Minute, leader.name+" acts",
		func(a harness.Act) bool { return a.Cluster == leader.name && a.Begin > began }))
	at := harness.Now().Boot
	r.fault = harness.Span{From: at, To: harness.Unfinished}
	undo, err := f.make(ctx, st, leader)
	// Also when the drill is interrupted.
	undoOnce := sync.OnceValue(func() error { return undo(context.WithoutCancel(ctx)) })
	if err != nil {
		must.Do(errors.Join(err, undoOnce()))
	}
	if err := must.Try(func() { st.follow(ctx, f.expect, leader, at, undoOnce, r) }); err != nil {
		r.Wrong = err.Error()
	}
	must.Do(undoOnce())
	r.Next = awaitSettled(ctx, st.hub, recoverLimit)
	now := harness.Now().Boot
	r.fault.To = now
	r.Gap = longestGap(must.Get(st.acts()), at, now).Seconds()
}

// follow waits for the outcome of a fault that was begun at an instant and is complete now.
func (st *testbed) follow(ctx context.Context, expect outcome, leader cluster, at time.Duration, undo func() error,
	r *round) {
	complete := harness.Now().Boot
	switch expect {
	case unmoved:
		must.Do(must.Stay(ctx, watched, leader.name+" goes on", func(context.Context) error {
			now := harness.Now().Boot // first: the time for reading is no pause of the leader
			acts := must.Get(st.acts())
			return unbroken(acts, leader.name, at, now)
		}))
	case outage: // the term ends while there is no hub, and a later one begins when the hub is back
		by := complete + endLimit
		must.Do(process.Pass(ctx, by+quiet-harness.Now().Boot))
		before := must.Get(st.acts())
		must.Do(silent(before, by))
		back := harness.Now().Boot
		must.Do(undo())
		first := must.Get(st.awaitAct(ctx, recoverLimit, "a cluster acts again",
			func(a harness.Act) bool { return a.Begin > by }))
		r.Seconds = (first.Begin - back).Seconds()
		must.Do(later(before, first))
	default:
		first := must.Get(st.awaitAct(ctx, patience, "another cluster than "+leader.name+" acts",
			func(a harness.Act) bool { return a.Begin > at && a.Cluster != leader.name }))
		r.Seconds = max(0, first.Begin-complete).Seconds()
		must.Do(moved(expect, leader, first, complete))
	}
}

// awaitAct returns the first act that matches.
func (st *testbed) awaitAct(ctx context.Context, limit time.Duration, what string,
	match func(harness.Act) bool) (first harness.Act, err error) {
	err = must.Await(ctx, limit, what, func(context.Context) (err error) {
		first, err = harness.FirstAct(st.acts, match)
		return err
	})
	return first, err
}

// warm returns nil if a member's guestbook could act at once: one of its replicas holds its own election, and renews
// that.
func (st *testbed) warm(ctx context.Context, c cluster) error {
	return fresh(c, must.Get(st.kubectl(ctx, c, "--request-timeout=5s", "-n", guestbookHome, "get", "lease", "guestbook",
		"-o", "jsonpath={.spec.renewTime}")), time.Now())
}

// fresh judges the renewTime of an election that is renewed every two seconds, and abandoned after fifteen.
func fresh(c cluster, renewTime string, now time.Time) error {
	renewed, err := time.Parse(metav1.RFC3339Micro, renewTime)
	if err != nil {
		return fmt.Errorf("the guestbooks in %s have elected none: %w", c.name, err)
	}
	ago := now.Sub(renewed)
	return must.ErrorIf(ago > 8*time.Second,
		"the guestbook that was elected in %s has not renewed that for %v", c.name, ago)
}

// record is the hub's decision.
func record(ctx context.Context, hub client.Client) (*v1alpha1.NamespaceLeader, error) {
	r := &v1alpha1.NamespaceLeader{}
	return r, hub.Get(ctx, client.ObjectKey{Namespace: harness.FleetNamespace, Name: managed}, r)
}

// awaitSettled returns the leader when all is well: one cluster leads, and each other one could.
func awaitSettled(ctx context.Context, hub client.Client, limit time.Duration) (leader string) {
	must.Do(must.Await(ctx, limit, "one cluster leads and each other one could", func(ctx context.Context) error {
		r := must.Get(record(ctx, hub))
		if r.Spec.State != v1alpha1.StateLeading || len(r.Status.Candidates) != len(members) {
			return fmt.Errorf("the record has state %s and %d candidates: %s", r.Spec.State, len(r.Status.Candidates),
				r.Status.Message)
		}
		for _, c := range r.Status.Candidates {
			if !c.Eligible {
				return fmt.Errorf("%s may not lead: %s %s", c.Name, c.Reason, c.Message)
			}
		}
		leader = r.Spec.Leader
		return nil
	}))
	return leader
}

const (
	// failoverLimit is the longest that a failover or a handover may take, counted from when the fault is complete: what
	// is promised for the default timings, 16 s, and the write, the event and the machine's business besides.
	failoverLimit = 20 * time.Second
	// silence is how long a leader's guestbook may pause between two acts, of which it makes four a second.
	silence = 4 * time.Second
)

// round is the result of one fault.
type round struct {
	Fault    string  `json:"fault"`
	Expected outcome `json:"expected"`
	// Leader led before the fault, Next after all was well again.
	Leader string `json:"leader"`
	Next   string `json:"next"`
	// Seconds is the time from when the fault was complete to the next leader's first act; in an outage, from when the
	// hub's node was started again. It is zero if nothing was to move.
	Seconds float64 `json:"seconds"`
	// Gap is the longest time in which nobody acted.
	Gap float64 `json:"gapSeconds"`
	// Wrong is why the outcome is not as expected.
	Wrong string `json:"wrong,omitempty"`

	fault harness.Span // until all was well again
}

// String describes the round.
func (r round) String() string {
	who := r.Leader + " goes on"
	if r.Next != r.Leader {
		who = r.Leader + ", then " + r.Next
	}
	if r.Seconds > 0 {
		who += fmt.Sprintf(" after %.1f s", r.Seconds)
	}
	said := fmt.Sprintf("%s: %s; nobody acted for %.1f s", r.Fault, who, r.Gap)
	if r.Wrong != "" {
		said += "; WRONG: " + r.Wrong
	}
	return said
}

// result is out/kind-drill.json.
type result struct {
	// Rounds counts the faults with the expected outcome, Failovers those of them that cost a leader its lead.
	Rounds    int `json:"rounds"`
	Failovers int `json:"failovers"`
	// Overlaps counts all that harness.Judge finds wrong.
	Overlaps int `json:"overlaps"`
	// WorstGap is the longest time in which nobody acted while there was a hub, WorstOutage while its node was gone too.
	WorstGap    float64 `json:"worstGapSeconds"`
	WorstOutage float64 `json:"worstOutageSeconds"`
	// LeastFailover and WorstFailover are the extremes of the time from a leader's loss to its successor's first act.
	LeastFailover float64 `json:"leastFailoverSeconds"`
	WorstFailover float64 `json:"worstFailoverSeconds"`
	Acts          int     `json:"acts"`
	History       []round `json:"history"`

	breaches []harness.Breach
}

func report(rounds []round, verdicts []harness.Verdict) result {
	r := result{History: rounds, breaches: harness.Breaches(verdicts)}
	r.Overlaps = len(r.breaches)
	for _, v := range verdicts {
		r.Acts += v.Acts
	}
	for i := range rounds {
		d := &rounds[i]
		d.Seconds, d.Gap = rounded(d.Seconds), rounded(d.Gap)
		if d.Next == "" {
			continue
		}
		if d.Wrong == "" {
			r.Rounds++
		}
		if d.Expected == outage {
			r.WorstOutage = max(r.WorstOutage, d.Gap)
			continue
		}
		r.WorstGap = max(r.WorstGap, d.Gap)
		if d.Expected == failover && d.Seconds > 0 {
			r.Failovers++
			if r.WorstFailover = max(r.WorstFailover, d.Seconds); r.LeastFailover == 0 || d.Seconds < r.LeastFailover {
				r.LeastFailover = d.Seconds
			}
		}
	}
	return r
}

func rounded(s float64) float64 { return math.Round(s*1000) / 1000 }

// flaws is why the drill fails, beside a round that was not finished.
func (r result) flaws() error {
	var errs []error
	for _, b := range r.breaches {
		errs = append(errs, errors.New(b.String()))
	}
	for _, d := range r.History {
		if d.Wrong != "" {
			errs = append(errs, fmt.Errorf("%s: %s", d.Fault, d.Wrong))
		}
	}
	if r.Failovers == 0 && slices.ContainsFunc(r.History, func(d round) bool { return d.Expected == failover }) {
		errs = append(errs, errors.New("no failover was seen"))
	}
	if r.Acts == 0 {
		errs = append(errs, errors.New("nobody has acted: nothing was seen"))
	}
	return errors.Join(errs...)
}

// longestGap is the longest time between from and to in which nobody acted.
func longestGap(acts []harness.Act, from, to time.Duration) (longest time.Duration) {
	acts = slices.Clone(acts)
	slices.SortFunc(acts, func(a, b harness.Act) int { return cmp.Compare(a.Begin, b.Begin) })
	last := from
	for _, a := range acts {
		if a.End < from || a.Begin > to {
			continue
		}
		longest = max(longest, a.Begin-last)
		last = max(last, min(a.End, to))
	}
	return max(longest, to-last)
}

// moved judges the first act of another cluster than the leader, after a fault that was complete at an instant.
func moved(expect outcome, leader cluster, first harness.Act, complete time.Duration) error {
	took := first.Begin - complete
	switch {
	case expect == handover && first.Cluster != successor(leader).name:
		return fmt.Errorf("%s acted, and %s was given the highest priority", first.Cluster, successor(leader).name)
	case expect == failover && took <= 0: // it has another reason
		return fmt.Errorf("%s acted %v before the fault was complete", first.Cluster, -took)
	case took > failoverLimit:
		return fmt.Errorf("that is more than %v", failoverLimit)
	}
	return nil
}

// silent returns an error unless all acts ended by an instant.
func silent(acts []harness.Act, by time.Duration) error {
	for _, a := range acts {
		switch {
		case a.End == harness.Unfinished:
			return fmt.Errorf("%s began an act in epoch %d that goes on", a.Cluster, a.Epoch)
		case a.End > by:
			return fmt.Errorf("%s acted in epoch %d, %v after the term was to end", a.Cluster, a.Epoch, a.End-by)
		}
	}
	return nil
}

// later returns an error unless an act belongs to a later term than all before.
func later(before []harness.Act, first harness.Act) error {
	for _, a := range before {
		if first.Epoch <= a.Epoch {
			return fmt.Errorf("%s acted in epoch %d again, and that had ended: %s acted in epoch %d", first.Cluster,
				first.Epoch, a.Cluster, a.Epoch)
		}
	}
	return nil
}

// unbroken returns an error unless a cluster acted alone, in one epoch, without a pause, from at on.
func unbroken(acts []harness.Act, leader string, at, now time.Duration) error {
	last, epoch := at, int64(0)
	for _, a := range acts {
		switch {
		case a.Begin < at:
			continue
		case a.Cluster != leader:
			return fmt.Errorf("%s acted in epoch %d", a.Cluster, a.Epoch)
		case epoch != 0 && a.Epoch != epoch:
			return fmt.Errorf("its epoch became %d, was %d", a.Epoch, epoch)
		}
		epoch, last = a.Epoch, max(last, a.Begin)
	}
	gap := max(longestGap(acts, at, now), now-last)
	return must.ErrorIf(gap > silence, "it did nothing for %v", gap)
}
