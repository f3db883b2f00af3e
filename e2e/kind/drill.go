package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/guestbook/acts"
	"github.com/leasecast/leasecast/e2e/harness"
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

// stage is a drill that goes on.
type stage struct {
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
func drill(ctx context.Context, p *place, rounds int) (err error) {
	if err := os.RemoveAll(resultFile()); err != nil {
		return fmt.Errorf("remove the last result: %w", err)
	}
	if _, err := docker(ctx, "version"); err != nil {
		return noEngine(err)
	}
	st := &stage{place: p, logs: map[string]*actLog{}}
	if st.hub, err = p.client(); err != nil {
		return err
	}
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
	acts, read := st.acts()
	result := report(done, harness.Judge(acts))
	err = errors.Join(err, read, result.flaws(), harness.WriteReport(resultFile(), result))
	p.say("%d rounds, %d failovers, %d overlaps, nobody acted for %.1f s at worst; see %s",
		result.Rounds, result.Failovers, result.Overlaps, result.WorstGap, resultFile())
	return err
}

// begin gives the drill fresh logs, and waits until all is well.
func (st *stage) begin(ctx context.Context) error {
	if _, err := awaitSettled(ctx, st.hub, recoverLimit); err != nil {
		return fmt.Errorf("%w\nthe drill breaks what make kind-up has made: run that first", err)
	}
	st.say("restarting the guestbooks")
	var g errgroup.Group
	for _, c := range members {
		g.Go(func() error {
			err := done(st.kubectl(ctx, c, "-n", guestbookHome, "rollout", "restart", "deployment/guestbook"))
			if err != nil {
				return err
			}
			return st.rolledOut(ctx, c, guestbookHome, "guestbook")
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if _, err := st.acts(); err != nil {
		return err
	}
	for file, log := range st.logs { // of processes before the drill
		if log.ended {
			delete(st.logs, file)
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	return nil
}

// acts returns all acts so far, also of processes that have ended. An act of a process that ended has ended with it.
func (st *stage) acts() (all []harness.Act, err error) {
	for _, c := range members {
		files, err := acts.Logs(st.place.acts(c))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			log := st.logs[file]
			if log == nil {
				log = &actLog{ActLog: harness.NewActLog(file)}
				st.logs[file] = log
			}
			if !log.ended {
				if log.ended, err = acts.Ended(file); err != nil { // before it is read: then it is complete
					return nil, err
				}
				if log.ended {
					err = log.Ended(harness.Now().Boot)
				}
			}
			logged, readErr := log.Acts()
			if err := errors.Join(err, readErr); err != nil {
				return nil, err
			}
			all = append(all, logged...)
		}
	}
	return all, nil
}

// round makes one fault when all is well, waits for its outcome, and puts things right. It is an error if that fails. A
// wrong outcome is in the round.
func (st *stage) round(ctx context.Context, f fault) (r round, err error) {
	r = round{Fault: f.name, Expected: f.expect}
	if r.Leader, err = awaitSettled(ctx, st.hub, recoverLimit); err != nil {
		return r, err
	}
	i := slices.IndexFunc(members, func(c cluster) bool { return c.name == r.Leader })
	if i < 0 {
		return r, fmt.Errorf("%q leads, which is no member of the drill", r.Leader)
	}
	leader := members[i]
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
	at := harness.Now().Boot
	undo, err := f.make(ctx, st, leader)
	if err != nil {
		return r, errors.Join(err, undo(context.WithoutCancel(ctx)))
	}
	// Also when the drill is interrupted.
	undoOnce := sync.OnceValue(func() error { return undo(context.WithoutCancel(ctx)) })
	if err := st.follow(ctx, f.expect, leader, at, undoOnce, &r); err != nil {
		r.Wrong = err.Error()
	}
	if err := undoOnce(); err != nil {
		return r, err
	}
	if r.Next, err = awaitSettled(ctx, st.hub, recoverLimit); err != nil {
		return r, err
	}
	now := harness.Now().Boot
	acts, err := st.acts()
	r.Gap = longestGap(acts, at, now).Seconds()
	return r, err
}

// follow waits for the outcome of a fault that was begun at an instant and is complete now.
func (st *stage) follow(ctx context.Context, expect outcome, leader cluster, at time.Duration,
	undo func() error, r *round) error {
	complete := harness.Now().Boot
	switch expect {
	case unmoved:
		return harness.Stay(ctx, watched, leader.name+" goes on", func(context.Context) error {
			now := harness.Now().Boot // first: the time for reading is no pause of the leader
			acts, err := st.acts()
			if err != nil {
				return err
			}
			return unbroken(acts, leader.name, at, now)
		})
	case outage:
		return st.isOut(ctx, complete+endLimit, undo, r)
	}
	first, err := st.awaitAct(ctx, patience, "another cluster than "+leader.name+" acts", func(a harness.Act) bool {
		return a.Begin > at && a.Cluster != leader.name
	})
	if err != nil {
		return err
	}
	r.Seconds = max(0, first.Begin-complete).Seconds()
	return moved(expect, leader, first, complete)
}

// isOut watches that the term ends by an instant while there is no hub, and that a later one begins when the hub is
// back.
func (st *stage) isOut(ctx context.Context, by time.Duration, undo func() error, r *round) error {
	if err := process.Pass(ctx, by+quiet-harness.Now().Boot); err != nil {
		return err
	}
	before, err := st.acts()
	if err != nil {
		return err
	}
	if err := silent(before, by); err != nil {
		return err
	}
	back := harness.Now().Boot
	if err := undo(); err != nil {
		return err
	}
	first, err := st.awaitAct(ctx, recoverLimit, "a cluster acts again", func(a harness.Act) bool { return a.Begin > by })
	if err != nil {
		return err
	}
	r.Seconds = (first.Begin - back).Seconds()
	return later(before, first)
}

// awaitAct returns the first act that matches.
func (st *stage) awaitAct(ctx context.Context, limit time.Duration, what string,
	match func(harness.Act) bool) (first harness.Act, err error) {
	err = harness.Await(ctx, limit, what, func(context.Context) (err error) {
		first, err = harness.FirstAct(st.acts, match)
		return err
	})
	return first, err
}

// warm returns nil if a member's guestbook could act at once: one of its replicas holds its own election, and renews
// that.
func (st *stage) warm(ctx context.Context, c cluster) error {
	raw, err := st.kubectl(ctx, c, "--request-timeout=5s", "-n", guestbookHome, "get", "lease", "guestbook", "-o",
		"jsonpath={.spec.renewTime}")
	if err != nil {
		return err
	}
	return fresh(c, raw, time.Now())
}

// fresh judges the renewTime of an election that is renewed every two seconds, and abandoned after fifteen.
func fresh(c cluster, renewTime string, now time.Time) error {
	renewed, err := time.Parse(metav1.RFC3339Micro, renewTime)
	if err != nil {
		return fmt.Errorf("the guestbooks in %s have elected none: %w", c.name, err)
	}
	if ago := now.Sub(renewed); ago > 8*time.Second {
		return fmt.Errorf("the guestbook that was elected in %s has not renewed that for %v", c.name, ago)
	}
	return nil
}

// record is the hub's decision.
func record(ctx context.Context, hub client.Client) (*v1alpha1.NamespaceLeader, error) {
	r := &v1alpha1.NamespaceLeader{}
	return r, hub.Get(ctx, client.ObjectKey{Namespace: harness.FleetNamespace, Name: managed}, r)
}

// awaitSettled returns the leader when all is well: one cluster leads, and each other one could.
func awaitSettled(ctx context.Context, hub client.Client, limit time.Duration) (leader string, err error) {
	err = harness.Await(ctx, limit, "one cluster leads and each other one could", func(ctx context.Context) error {
		r, err := record(ctx, hub)
		if err != nil {
			return err
		}
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
	})
	return leader, err
}
