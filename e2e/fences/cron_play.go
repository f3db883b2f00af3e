package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	// lead is how long before a tick a change begins at most, and trail how long after it.
	lead, trail = 8 * time.Second, 2 * time.Second
	// lastJobs is how long the Jobs of the last tick are waited for.
	lastJobs = 20 * time.Second
)

// change is a way to change the leader.
type change struct {
	name string
	make func(*cronStage, context.Context) error
}

var changes = []change{
	{"handover", (*cronStage).handOver},
	{"failover", (*cronStage).failOver},
	{"the hub is killed", (*cronStage).killHub},
	{"the hub is paused", (*cronStage).pauseHub},
}

// cronOptions of a drill.
type cronOptions struct {
	ticks    int
	cronJobs int
	unwoken  bool
	seed     uint64
}

// tickResult is out/drill-cronjob.json.
type tickResult struct {
	tickVerdict
	Minutes  int      `json:"minutes"`
	CronJobs int      `json:"cronJobs"`
	Woken    bool     `json:"woken"`
	Terms    int      `json:"terms"`
	Changes  []string `json:"changes"`
}

func (r tickResult) String() string {
	return fmt.Sprintf("%d ticks: %d ran twice, %d in a follower, %d were lost, %d of them while a cluster led; "+
		"the first tick of a term came %.0f s late at worst",
		r.Ticks, r.RanTwice, r.RanInFollower, r.Lost, r.LostWhileLed, r.WorstFirstTickSeconds)
}

// failed is an error if a tick was run where it must not be.
func (r tickResult) failed() error {
	if len(r.Breaches) > 0 {
		return fmt.Errorf("%d breaches; the first: %s", len(r.Breaches), r.Breaches[0])
	}
	if r.Ticks == r.Lost {
		return errors.New("no tick ran: nothing was seen")
	}
	return nil
}

// drillCronJobs plays the scenario cronjob.
func drillCronJobs(ctx context.Context, o cronOptions, dir string, say func(string)) (r report, err error) {
	d, err := harness.Start(ctx, cronStageOptions(dir, say))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	s, err := beginCron(ctx, d, o, say)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.awaitTick(ctx); err != nil {
		return nil, err
	}
	return s.play(ctx)
}

// play changes the leader once a minute until there were enough ticks, and judges them.
func (s *cronStage) play(ctx context.Context) (r tickResult, err error) {
	r = tickResult{CronJobs: s.o.cronJobs, Woken: !s.o.unwoken}
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
		r.Changes = append(r.Changes, fmt.Sprintf("%s %+.1f s: %s", clockTime(border), offset.Seconds(), c.name))
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
	r.tickVerdict = judgeTicks(ticks, runs, terms)
	return r, s.Check()
}

// tell reports progress.
func (s *cronStage) tell(ctx context.Context, border time.Time, offset time.Duration, change string) error {
	runs, err := s.runs(ctx)
	if err != nil {
		return err
	}
	in := map[string]int{}
	for _, r := range runs {
		in[r.member]++
	}
	s.say(fmt.Sprintf("%s, %.1f s from the tick of %s; Jobs so far: %v", change, offset.Seconds(), clockTime(border), in))
	return nil
}

// handOver raises another cluster above all.
func (s *cronStage) handOver(ctx context.Context) error {
	_, err := s.HandOver(ctx, cronNamespace)
	return err
}

// failOver has the hub lose the leader, whose CronJob controller goes on.
func (s *cronStage) failOver(ctx context.Context) error {
	return s.FailOver(ctx, cronNamespace, func(ctx context.Context, _ string) error { return process.Pass(ctx, away) })
}

// killHub kills the hub, so that the term ends and nobody leads, and starts another one.
func (s *cronStage) killHub(ctx context.Context) error {
	_, err := s.KillHub(ctx, cronNamespace, away)
	return err
}

// pauseHub stops the hub for longer than a term.
func (s *cronStage) pauseHub(ctx context.Context) error {
	_, err := s.PauseHub(ctx, cronNamespace, away)
	return err
}
