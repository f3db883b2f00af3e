package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
)

// Limits of the waits. Failing takes longer than anything that works.
const (
	electLimit   = time.Minute
	changeLimit  = 30 * time.Second
	recoverLimit = 30 * time.Second
)

// play is the demo in its scenes, and what was measured in them.
type play struct {
	*narrator
	d *harness.Drill
	*harness.View
	result result
}

// playLimit bounds all scenes together, which take about a minute.
const playLimit = 5 * time.Minute

// play plays all scenes in time, or says that they took too long.
func (p *play) play(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, playLimit, fmt.Errorf("the scenes have taken longer than %s", playLimit))
	defer cancel()
	for _, scene := range []func(context.Context) error{p.elect, p.failover, p.stay, p.handover} {
		if err := scene(ctx); err != nil {
			return err
		}
	}
	return nil
}

// elect waits until east acts, because its priority is the highest.
func (p *play) elect(ctx context.Context) error {
	p.say("The hub elects. A guestbook controller runs in each member and acts where its cluster leads.")
	p.step("a hub that finds no trace of a predecessor first waits for all that one could have promised")
	if _, err := p.awaitChange(ctx, "east", 0, electLimit); err != nil {
		return err
	}
	_, err := p.onlyActs(ctx, "east", 2*time.Second)
	return err
}

// failover pauses the leader's API server. Its controllers live on, and do not know.
func (p *play) failover(ctx context.Context) error {
	p.say("The leader is lost: its API server stops answering, in the middle of everything.")
	east := p.d.Fleet.Member("east")
	fault := harness.Now().Boot
	if err := east.Pause(); err != nil {
		return err
	}
	p.do(fault, fmt.Sprintf("east's API server is paused (SIGSTOP to process %d)", east.PIDs().APIServer))
	first, err := p.awaitChange(ctx, "west", fault, changeLimit)
	if err != nil {
		return err
	}
	seen := p.Leases["east"].Seen()
	for namespace, at := range first {
		stamp, ok := harness.LastRenewTime(seen, namespace, fault)
		if !ok {
			return fmt.Errorf("%s: no Lease was seen in east that let it act", namespace)
		}
		if took := (at - fault).Seconds(); p.result.Failover == nil || took > *p.result.Failover {
			floor := harness.Floor(p.d.Timings, fault, stamp, 0).Seconds()
			p.result.Failover, p.result.Floor = &took, &floor
		}
	}
	p.step(fmt.Sprintf("failover took %.2f s; no lease of these timings could have let go of east before %.2f s",
		*p.result.Failover, *p.result.Floor))
	_, err = p.onlyActs(ctx, "west", 2*time.Second)
	return err
}

// stay heals the old leader and watches that nothing moves back.
func (p *play) stay(ctx context.Context) error {
	p.say("The old leader comes back. It must learn that it was replaced, and nothing may flap.")
	healed := harness.Now().Boot
	if err := p.d.Fleet.Member("east").Resume(); err != nil {
		return err
	}
	p.do(healed, "east's API server goes on")
	if err := p.d.AwaitEligible(ctx, recoverLimit, "east", namespaces...); err != nil {
		return err
	}
	watched := 2 * (p.d.Timings.Duration + p.d.Timings.Skew)
	p.step(fmt.Sprintf("east is healthy again and has the higher priority; watching for %s that west stays", watched))
	acts, err := p.onlyActs(ctx, "west", watched)
	if err != nil {
		return err
	}
	p.step(fmt.Sprintf("west acted %d times in the meantime, nobody else did", acts))
	return nil
}

// handover changes a label, as an operator does.
func (p *play) handover(ctx context.Context) error {
	p.say("A planned change: the operator gives south the highest priority.")
	edit := harness.Now().Boot
	if err := p.d.SetPriority(ctx, "south", 200); err != nil {
		return err
	}
	p.do(edit, "kubectl label cluster south leasecast.dev/priority=200 --overwrite")
	first, err := p.awaitChange(ctx, "south", edit, changeLimit)
	if err != nil {
		return err
	}
	for _, at := range first {
		if took := (at - edit).Seconds(); p.result.Handover == nil || took > *p.result.Handover {
			p.result.Handover = &took
		}
	}
	p.step(fmt.Sprintf("handover took %.2f s", *p.result.Handover))
	_, err = p.onlyActs(ctx, "south", p.d.Timings.Duration)
	return err
}

// awaitChange returns when each namespace has seen the first act of the cluster after an instant.
func (p *play) awaitChange(ctx context.Context, cluster string, after, limit time.Duration) (map[string]time.Duration,
	error) {
	first := map[string]time.Duration{}
	for _, namespace := range namespaces {
		a, err := p.d.AwaitAct(ctx, limit, cluster+" acts in "+namespace, func(a harness.Act) bool {
			return a.Namespace == namespace && a.Cluster == cluster && a.Begin > after
		})
		if err != nil {
			return nil, err
		}
		first[namespace] = a.Begin
		p.step(fmt.Sprintf("%s: the guestbook in %s acts, in epoch %d", namespace, cluster, a.Epoch))
	}
	return first, nil
}

// onlyActs watches for a while that this cluster acts in every namespace to the end, and no other acts. It
// returns how often it acted.
func (p *play) onlyActs(ctx context.Context, cluster string, d time.Duration) (acted int, err error) {
	begin := harness.Now().Boot
	err = harness.Stay(ctx, d, "only "+cluster+" acts", func(context.Context) error {
		if err := p.d.Check(); err != nil {
			return err
		}
		acted, err = p.inspect(cluster, begin)
		return err
	})
	return acted, err
}

// liveliness is how long a leader's guestbook may go without an act: much longer than it ever should.
const liveliness = 2 * time.Second

func (p *play) inspect(cluster string, begin time.Duration) (acted int, err error) {
	now := harness.Now().Boot
	all, err := p.d.Acts()
	if err != nil {
		return 0, err
	}
	last := map[string]time.Duration{}
	for _, a := range all {
		switch {
		case a.Begin >= begin && a.Cluster != cluster:
			return 0, fmt.Errorf("the guestbook in %s acted in %s", a.Cluster, a.Namespace)
		case a.Cluster == cluster:
			last[a.Namespace] = max(last[a.Namespace], a.Begin)
			if a.Begin >= begin {
				acted++
			}
		}
	}
	for _, namespace := range namespaces {
		if silent := now - last[namespace]; silent > liveliness {
			return 0, errors.New("the guestbook in " + cluster + " has stopped to act in " + namespace)
		}
	}
	return acted, nil
}
