package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
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
)

// Outcome is the result of a schedule.
type Outcome struct {
	Seed uint64
	// Began and Over are boot readings: of the beginning and of the end of the last fault.
	Began, Over time.Duration
	Faults      []*Applied
	// Acts counts the writes of readers, Changes how often the leader of a namespace changed.
	Acts, Changes int
	// Overlaps are pairs of permits that break a rule.
	Overlaps []harness.Breach
	// Margin is the least time between a leader's last deadline and its successor's first permit; 0 without a change.
	Margin time.Duration
	// Gap is the longest time without an act in a namespace.
	Gap time.Duration
	// Recovery is the time from the end of the last fault until every namespace has a leader that acts.
	Recovery time.Duration
	// Stuck lists the namespaces that had none, and what else did not recover.
	Stuck []string
	// Registers counts the histories that were checked. Unordered describes those that are not linearizable.
	Registers int
	Unordered []string
	// StaleFenced counts the writes that the fenced register took after a write of a later term.
	StaleFenced int
	// Unsound is why the evidence cannot be trusted, empty if it can.
	Unsound string

	permits []harness.Act
}

// Failed reports whether anything broke a rule.
func (o *Outcome) Failed() bool {
	return len(o.Overlaps) > 0 || len(o.Stuck) > 0 || o.Unsound != "" || len(o.Unordered) > 0 || o.StaleFenced > 0
}

// play plays a schedule and judges it. After an error the schedule cannot be judged, and the stage is broken.
func (st *stage) play(ctx context.Context, s Schedule) (*Outcome, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, playLimit, fmt.Errorf("it takes longer than %s", playLimit))
	defer cancel()
	o := &Outcome{Seed: s.Seed, Began: harness.Now().Boot}
	o.Faults = make([]*Applied, len(s.Faults))
	all, faultCtx := errgroup.WithContext(ctx)
	for i, f := range s.Faults {
		o.Faults[i] = &Applied{Fault: f}
		all.Go(func() error {
			if err := st.playFault(faultCtx, o.Began, o.Faults[i]); err != nil {
				return fmt.Errorf("%s: %w", f, err)
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return o, err
	}
	o.Over = harness.Now().Boot
	if err := st.recover(ctx, o); err != nil {
		return o, err
	}
	return o, errors.Join(st.check(), st.judge(o))
}

func (st *stage) playFault(ctx context.Context, began time.Duration, a *Applied) error {
	if err := process.Pass(ctx, began+a.At-harness.Now().Boot); err != nil {
		return err
	}
	if a.Target == Leader {
		a.Target = st.leader(a.Namespace)
	}
	unlock, err := st.lock(ctx, slices.Sorted(slices.Values(a.locks())))
	if err != nil {
		return err
	}
	defer unlock()
	a.Began = harness.Now().Boot
	err = st.apply(ctx, a)
	a.Ended = harness.Now().Boot
	return err
}

// leader is the member that acted last in a namespace.
func (st *stage) leader(namespace string) string {
	for _, w := range slices.Backward(st.store.Writes()) {
		if w.Namespace == namespace && w.Taken {
			return writer(w)
		}
	}
	return homes(namespace)[0]
}

// recover waits until all is well again, and notes what is not well in time.
func (st *stage) recover(ctx context.Context, o *Outcome) error {
	err := harness.Await(ctx, floor+slack, "every namespace has a leader that acts", func(context.Context) error {
		if err := st.check(); err != nil {
			return err
		}
		o.Recovery, o.Stuck = recovery(st.store.Writes(), o.Over)
		if len(o.Stuck) > 0 {
			return errors.New(o.Stuck[0])
		}
		return nil
	})
	if ctx.Err() != nil {
		return err
	}
	err = harness.Await(ctx, healing, "all is well", st.well)
	if ctx.Err() != nil {
		return err
	}
	if err != nil {
		o.Stuck = append(o.Stuck, err.Error())
	}
	// The late writes of a reader that was just resumed are part of the evidence.
	return process.Pass(ctx, time.Second)
}

// well returns nil if every cluster is eligible and every namespace is led.
func (st *stage) well(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, member := range memberNames() {
		if err := st.eligible(ctx, member); err != nil {
			return fmt.Errorf("%s: %w", member, err)
		}
	}
	for _, namespace := range allNamespaces() {
		r, err := st.d.Record(ctx, namespace)
		if err != nil {
			return err
		}
		if r.Spec.State != v1alpha1.StateLeading {
			return fmt.Errorf("%s: state %s: %s", namespace, r.Spec.State, r.Status.Message)
		}
	}
	return nil
}

// judge looks at the evidence.
func (st *stage) judge(o *Outcome) error {
	ended, since := harness.Now().Boot, o.Began-overlap
	calls, err := st.calls(since)
	if err != nil {
		return err
	}
	st.store.Forget(since)
	writes := st.store.Writes()
	o.permits = permits(calls)
	for _, w := range writes {
		if w.At >= o.Began {
			o.Acts++
		}
	}
	verdicts := harness.Judge(o.permits)
	o.Overlaps = harness.Breaches(verdicts)
	for _, v := range verdicts {
		o.Changes += len(v.Changes)
	}
	o.Margin, _ = margin(verdicts)
	o.Gap = worstGap(writes)
	o.Registers, o.Unordered = linearizable(calls, since, ended)
	o.StaleFenced = stale(writes)
	if off, member := clockError(calls, writes); off > 2*reading {
		o.Unsound = fmt.Sprintf("the clock of the reader in %s is %v off: the rest is worth nothing", member, off)
	}
	if len(o.permits) == 0 {
		return errors.New("nobody acted: nothing was seen")
	}
	return nil
}
