package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasecast/leasecast/e2e/harness"
)

const (
	// failoverLimit is the longest that a failover or a handover may take, counted from when the fault is complete: what
	// is promised for the default timings, 16 s, and the write, the event and the machine's business besides.
	failoverLimit = 20 * time.Second
	// patience is how long one is waited for that is late.
	patience = 2 * time.Minute
	// watched is how long a leader is looked at that must go on: longer than a term that is not renewed.
	watched = 17 * time.Second
	// silence is how long a leader's guestbook may pause between two acts, of which it makes four a second.
	silence = 4 * time.Second
	// quiet is how long one looks at it that nobody acts when a term has ended.
	quiet = 3 * time.Second
	// endLimit is the longest that a term outlives its hub: D.
	endLimit = 16 * time.Second
	// recoverLimit is for what was broken: a node starts, its controllers elect, the hub connects.
	recoverLimit = 4 * time.Minute
)

// stage is a drill that goes on.
type stage struct {
	*site
	logs *logs
}

// drill makes so many faults, and writes what came of them, also after a failure.
func drill(ctx context.Context, p *place, rounds int) (err error) {
	if err := os.RemoveAll(resultFile()); err != nil {
		return fmt.Errorf("remove the last result: %w", err)
	}
	if _, err := docker(ctx, "version"); err != nil {
		return noEngine(err)
	}
	s, err := p.look()
	if err != nil {
		return err
	}
	st := &stage{s, followLogs()}
	if err := st.begin(ctx); err != nil {
		return err
	}
	var done []round
	for i := range rounds {
		r, broken := st.round(ctx, faults[i%len(faults)])
		done = append(done, r)
		p.say("round %d of %d: %s", i+1, rounds, r)
		if broken != nil {
			err = fmt.Errorf("round %d, %s: %w", i+1, r.Fault, broken)
			break
		}
	}
	acts, read := st.logs.acts()
	result := report(done, harness.Judge(acts))
	err = errors.Join(err, read, result.flaws(), harness.WriteReport(resultFile(), result))
	p.say("%d rounds, %d failovers, %d overlaps, nobody acted for %.1f s at worst; see %s",
		result.Rounds, result.Failovers, result.Overlaps, result.WorstGap, resultFile())
	return err
}

// begin gives the drill fresh logs, and waits until all is well.
func (st *stage) begin(ctx context.Context) error {
	if _, err := st.awaitSettled(ctx, recoverLimit); err != nil {
		return fmt.Errorf("%w\nthe drill breaks what make kind-up has made: run that first", err)
	}
	st.say("starting the guestbooks anew")
	var g errgroup.Group
	for _, c := range members {
		st.logs.folders = append(st.logs.folders, st.acts(c))
		g.Go(func() error {
			if _, err := st.kubectlOn(ctx, c, nil, "-n", guestbookHome, "rollout", "restart",
				"deployment/guestbook"); err != nil {
				return err
			}
			return st.rolledOut(ctx, c, guestbookHome, "guestbook")
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, c := range members {
		if err := forget(st.acts(c)); err != nil {
			return fmt.Errorf("remove old act logs: %w", err)
		}
	}
	return nil
}

// round makes one fault when all is well, waits for what must follow, and puts things right. It is an error if that
// fails; what did not follow as it must is in the round.
func (st *stage) round(ctx context.Context, f fault) (r round, err error) {
	r = round{Fault: f.name, Expected: f.expect}
	name, err := st.awaitSettled(ctx, recoverLimit)
	if err != nil {
		return r, err
	}
	leader, err := find(name)
	if err != nil {
		return r, err
	}
	for _, c := range members {
		if err := harness.Await(ctx, recoverLimit, "the guestbook in "+c.name+" could act",
			func(ctx context.Context) error { return st.warm(ctx, c) }); err != nil {
			return r, err
		}
	}
	began := harness.Now().Boot
	if _, err := st.awaitAct(ctx, time.Minute, leader.name+" acts",
		func(a harness.Act) bool { return a.Cluster == leader.name && a.Begin > began }); err != nil {
		return r, err
	}
	r.Leader = leader.name
	at := harness.Now().Boot
	undo, err := f.make(ctx, st.site, leader)
	if err != nil {
		return r, errors.Join(err, undo(context.WithoutCancel(ctx)))
	}
	undo = once(undo)
	if err := st.follow(ctx, f.expect, leader, at, undo, &r); err != nil {
		r.Wrong = err.Error()
	}
	if err := undo(context.WithoutCancel(ctx)); err != nil { // also when the drill is interrupted
		return r, err
	}
	if r.Next, err = st.awaitSettled(ctx, recoverLimit); err != nil {
		return r, err
	}
	now := harness.Now().Boot
	acts, err := st.logs.acts()
	r.Gap = longestGap(acts, at, now).Seconds()
	return r, err
}

func find(name string) (cluster, error) {
	i := slices.IndexFunc(members, func(c cluster) bool { return c.name == name })
	if i < 0 {
		return cluster{}, fmt.Errorf("%q leads, which is none of ours", name)
	}
	return members[i], nil
}

// once has something done no more than once.
func once(undo func(context.Context) error) func(context.Context) error {
	done := false
	return func(ctx context.Context) error {
		if done {
			return nil
		}
		done = true
		return undo(ctx)
	}
}

// follow waits for what must follow a fault that was begun at an instant and is complete now.
func (st *stage) follow(ctx context.Context, expect outcome, leader cluster, at time.Duration,
	undo func(context.Context) error, r *round) error {
	complete := harness.Now().Boot
	switch expect {
	case failover, handover:
		first, err := st.awaitAct(ctx, patience, "another cluster than "+leader.name+" acts", func(a harness.Act) bool {
			return a.Begin > at && a.Cluster != leader.name
		})
		if err != nil {
			return err
		}
		r.Seconds = max(0, first.Begin-complete).Seconds()
		return moved(expect, leader, first, complete)
	case unmoved:
		return st.goesOn(ctx, leader, at)
	case outage:
		return st.isOut(ctx, complete+endLimit, undo, r)
	}
	return fmt.Errorf("unknown outcome %q", expect)
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

// isOut watches that the term ends by an instant while there is no hub, and that a later one begins when the hub is
// back.
func (st *stage) isOut(ctx context.Context, by time.Duration, undo func(context.Context) error, r *round) error {
	if err := harness.Await(ctx, patience, "a term ends without its hub", func(context.Context) error {
		if left := by + quiet - harness.Now().Boot; left > 0 {
			return fmt.Errorf("it may last for %v", left)
		}
		return nil
	}); err != nil {
		return err
	}
	before, err := st.logs.acts()
	if err != nil {
		return err
	}
	if err := silent(before, by); err != nil {
		return err
	}
	back := harness.Now().Boot
	if err := undo(ctx); err != nil {
		return err
	}
	first, err := st.awaitAct(ctx, recoverLimit, "somebody acts again", func(a harness.Act) bool { return a.Begin > by })
	if err != nil {
		return err
	}
	r.Seconds = (first.Begin - back).Seconds()
	return later(before, first)
}

// silent returns what speaks against all acts having ended by an instant.
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

// later returns what speaks against an act being of a later term than all before.
func later(before []harness.Act, first harness.Act) error {
	for _, a := range before {
		if first.Epoch <= a.Epoch {
			return fmt.Errorf("%s acted in epoch %d again, and that had ended: %s acted in epoch %d", first.Cluster,
				first.Epoch, a.Cluster, a.Epoch)
		}
	}
	return nil
}

// goesOn watches that the leader acts on, in one epoch, and nobody else does.
func (st *stage) goesOn(ctx context.Context, leader cluster, at time.Duration) error {
	return harness.Stay(ctx, watched, leader.name+" goes on", func(context.Context) error {
		now := harness.Now().Boot // first: what reading takes is no pause of the leader
		acts, err := st.logs.acts()
		if err != nil {
			return err
		}
		return unbroken(acts, leader.name, at, now)
	})
}

// unbroken returns what speaks against a cluster having acted alone, in one epoch, without a pause, from at on.
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
	if gap := max(longestGap(acts, at, now), now-last); gap > silence {
		return fmt.Errorf("it did nothing for %v", gap)
	}
	return nil
}

// awaitAct returns the first act that matches.
func (st *stage) awaitAct(ctx context.Context, limit time.Duration, what string,
	match func(harness.Act) bool) (first harness.Act, err error) {
	err = harness.Await(ctx, limit, what, func(context.Context) (err error) {
		first, err = harness.FirstAct(st.logs.acts, match)
		return err
	})
	return first, err
}
