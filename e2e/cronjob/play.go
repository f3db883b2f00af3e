package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leasecast/leasecast/e2e/process"
)

const (
	// lead is how long before a tick a change begins at most, and trail how long after it.
	lead, trail = 8 * time.Second, 2 * time.Second
	// away is how long a member or the hub is lost.
	away = 12 * time.Second
	// lastJobs is how long the Jobs of the last tick are waited for.
	lastJobs = 20 * time.Second
)

// change is a way to change the leader.
type change struct {
	name string
	make func(*stage, context.Context) error
}

var changes = []change{
	{"handover", (*stage).handOver},
	{"failover", (*stage).failOver},
	{"the hub is killed", (*stage).killHub},
	{"the hub is paused", (*stage).pauseHub},
}

// play changes the leader once a minute until there were enough ticks, and judges them.
func (s *stage) play(ctx context.Context) (r result, err error) {
	r = result{CronJobs: s.o.cronJobs, Woken: !s.o.unwoken}
	r.Minutes = (s.o.ticks + s.o.cronJobs - 1) / s.o.cronJobs
	random := rand.New(rand.NewPCG(s.o.seed, 0))
	first := time.Now().Truncate(time.Minute).Add(time.Minute)
	if time.Until(first) < lead {
		first = first.Add(time.Minute)
	}
	var ticks []tick
	for i := range r.Minutes {
		border := first.Add(time.Duration(i) * time.Minute)
		for n := range s.o.cronJobs {
			ticks = append(ticks, tick{cronJob(n).Name, border.UTC()})
		}
		offset := -lead + time.Duration(random.Int64N(int64(lead+trail)))
		if i%3 == 2 {
			offset = 30 * time.Second // far from any tick
		}
		if err := process.Pass(ctx, time.Until(border.Add(offset))); err != nil {
			return r, err
		}
		c := changes[i%len(changes)]
		r.Changes = append(r.Changes, fmt.Sprintf("%s %+.1f s: %s", clock(border), offset.Seconds(), c.name))
		if err := c.make(s, ctx); err != nil {
			return r, fmt.Errorf("%s: %w", c.name, err)
		}
		if err := s.tell(ctx, border, offset, c.name); err != nil {
			return r, err
		}
	}
	last := ticks[len(ticks)-1].at
	if err := process.Pass(ctx, time.Until(last.Add(lastJobs))); err != nil {
		return r, err
	}
	runs, err := s.runs(ctx)
	if err != nil {
		return r, err
	}
	terms := s.terms()
	r.Terms = len(terms)
	r.verdict = judge(ticks, runs, terms)
	return r, s.Check()
}

// tell reports progress.
func (s *stage) tell(ctx context.Context, border time.Time, offset time.Duration, change string) error {
	runs, err := s.runs(ctx)
	if err != nil {
		return err
	}
	in := map[string]int{}
	for _, r := range runs {
		in[r.member]++
	}
	s.say(fmt.Sprintf("%s, %.1f s from the tick of %s; Jobs so far: %v", change, offset.Seconds(), clock(border), in))
	return nil
}

// handOver raises another cluster above all.
func (s *stage) handOver(ctx context.Context) error {
	_, err := s.HandOver(ctx, namespace)
	return err
}

// failOver has the hub lose the leader, whose CronJob controller goes on.
func (s *stage) failOver(ctx context.Context) error {
	return s.FailOver(ctx, namespace, func(ctx context.Context, _ string) error { return process.Pass(ctx, away) })
}

// killHub kills the hub, so that the term ends and nobody leads, and starts another one.
func (s *stage) killHub(ctx context.Context) error {
	_, err := s.KillHub(ctx, namespace, away)
	return err
}

// pauseHub stops the hub for longer than a term.
func (s *stage) pauseHub(ctx context.Context) error {
	_, err := s.PauseHub(ctx, namespace, away)
	return err
}
