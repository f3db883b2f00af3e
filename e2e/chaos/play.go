package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	// floor is how long the protocol may leave a namespace without a leader after the last fault. A hub is elected after
	// h, and then waits for all that its predecessor may have sent until then.
	floor = 6*time.Second + 3*time.Second + 250*time.Millisecond
	// slack is what a busy machine of two cores adds. A replica that has lost the election begins again.
	// client-go's elector looks every 1 to 2.2 seconds. Dead connections must be detected.
	slack = 10 * time.Second
	// healing bounds the wait until every cluster is eligible again. No namespace waits for that.
	healing = 90 * time.Second
	// playLimit bounds a schedule.
	playLimit = 5 * time.Minute
	// overlap is how much of the time before a schedule its evidence includes. It is longer than a permit.
	overlap = 4 * time.Second
	// mostListed is how many overlaps of a schedule the verdict lists.
	mostListed = 20
)

// Outcome is the result of a schedule, as out/chaos.json has it.
type Outcome struct {
	Seed uint64 `json:"seed"`
	// Verdict lists what is wrong, a line each.
	Verdict []string `json:"verdict"`
	Faults  []string `json:"faults"`
	// Changes is how often the leader of a namespace changed.
	Changes int `json:"leaderChanges"`
	// Margin is the least time between a leader's last deadline and its successor's first permit; 0 without a change.
	Margin float64 `json:"marginSeconds"`
	// Gap is the longest time in which no reader of a namespace got an answer by which it might act.
	Gap float64 `json:"gapSeconds"`
	// Recovery is the time from the end of the last fault until every namespace has a leader that acts.
	Recovery float64 `json:"recoverySeconds"`

	began, over, ended time.Duration // boot readings: of the beginning, the end of the last fault, and the judgement
	faults             []*Applied
	permits            []harness.Act
	// answers counts those by which readers might act.
	answers, overlaps, stuck int
}

// Failed reports whether anything broke a rule.
func (o *Outcome) Failed() bool { return len(o.Verdict) > 0 }

func (o *Outcome) wrong(format string, args ...any) {
	o.Verdict = append(o.Verdict, fmt.Sprintf(format, args...))
}

func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }

// play plays a schedule and judges it. After an error the schedule cannot be judged, and the testbed is broken.
func (st *testbed) play(ctx context.Context, s Schedule) (*Outcome, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, playLimit, fmt.Errorf("it takes longer than %s", playLimit))
	defer cancel()
	o := &Outcome{Seed: s.Seed, Verdict: []string{}, began: harness.Now().Boot}
	err := must.Try(func() { st.playFaults(ctx, s, o) })
	return o, err
}

func (st *testbed) playFaults(ctx context.Context, s Schedule, o *Outcome) {
	all, faultCtx := errgroup.WithContext(ctx)
	for _, f := range s.Faults {
		a := &Applied{Fault: f}
		o.faults = append(o.faults, a)
		all.Go(func() error {
			if err := must.Try(func() { st.playFault(faultCtx, o.began, a) }); err != nil {
				return fmt.Errorf("%s: %w", f, err)
			}
			return nil
		})
	}
	must.Do(all.Wait())
	o.over = harness.Now().Boot
	for _, a := range o.faults {
		o.Faults = append(o.Faults, fmt.Sprintf("%s: %s", a.Fault, a.Effect))
	}
	st.awaitWell(ctx, o)
	must.Do(st.check())
	st.judge(o)
}

func (st *testbed) playFault(ctx context.Context, began time.Duration, a *Applied) {
	must.Do(process.Pass(ctx, began+a.At-harness.Now().Boot))
	if a.Target == Leader {
		a.Target = st.leader(a.Namespace)
	}
	defer st.lock(a.locks())()
	a.Began = harness.Now().Boot
	a.Kind.play(st, ctx, a)
	a.Ended = harness.Now().Boot
}

// leader is the member whose reader was the last to be allowed to act in a namespace.
func (st *testbed) leader(namespace string) string {
	for _, a := range slices.Backward(st.answersSince(0)) {
		if a.Namespace == namespace {
			return a.cluster
		}
	}
	first := slices.IndexFunc(cast, func(m harness.Member) bool { return slices.Contains(m.Namespaces, namespace) })
	return cast[first].Name
}

// awaitWell waits until all is well again, and adds what is not well in time to the verdict.
func (st *testbed) awaitWell(ctx context.Context, o *Outcome) {
	var last time.Duration
	var stuck []string
	err := must.Await(ctx, floor+slack, "every namespace has a leader that acts", func(context.Context) error {
		must.Do(st.check())
		if last, stuck = recovery(st.answersSince(0), o.over); len(stuck) > 0 {
			return errors.New(stuck[0])
		}
		return nil
	})
	if ctx.Err() == nil {
		err = must.Await(ctx, healing, "all is well", st.well)
	}
	if ctx.Err() != nil {
		must.Do(err)
	}
	if err != nil {
		stuck = append(stuck, err.Error())
	}
	o.Recovery, o.stuck = seconds(last), len(stuck)
	o.Verdict = append(o.Verdict, stuck...)
	// The answers of a reader that was just resumed are part of the evidence.
	must.Do(process.Pass(ctx, time.Second))
}

// well is a condition: every cluster is eligible and every namespace is led.
func (st *testbed) well(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, member := range memberNames() {
		must.Do(st.eligible(ctx, member))
	}
	for _, namespace := range allNamespaces() {
		if r := must.Get(st.d.Record(ctx, namespace)); r.Spec.State != v1alpha1.StateLeading {
			return fmt.Errorf("%s: state %s: %s", namespace, r.Spec.State, r.Status.Message)
		}
	}
	return nil
}

// judge judges the evidence.
func (st *testbed) judge(o *Outcome) {
	answers := st.answersSince(o.began - overlap)
	o.ended = harness.Now().Boot
	if o.permits = permits(answers); len(o.permits) == 0 {
		must.Fail("nobody acted: nothing was seen")
	}
	for _, a := range answers {
		if a.Answered >= o.began {
			o.answers++
		}
	}
	verdicts := harness.Judge(o.permits)
	breaches := harness.Breaches(verdicts)
	for i, b := range breaches[:min(len(breaches), mostListed)] {
		for _, a := range []*harness.Act{&b.Earlier, &b.Later} {
			a.Begin, a.End = a.Begin-o.began, a.End-o.began
		}
		o.wrong("%d of %d overlaps: %s", i+1, len(breaches), b)
	}
	o.overlaps = len(breaches)
	for _, v := range verdicts {
		o.Changes += len(v.Changes)
	}
	least, _ := margin(verdicts)
	o.Margin, o.Gap = seconds(least), seconds(worstGap(answers))
}
