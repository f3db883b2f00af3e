package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	// away is how long the hub is lost: programs that release no lock have stopped by themselves by then.
	away = 14 * time.Second
	// lateAdmission is when electors that take their lock are admitted, after the hub has lost the leader. The term ends 2
	// to 3 s after that, and a fence may refuse them a second earlier.
	lateAdmission = 800 * time.Millisecond
	// stopped is how long an elector that has stopped has done nothing.
	stopped = time.Second
	// etcdLimit is how long etcd hangs. An API server leaves a connection to etcd that is silent for 40 s.
	etcdLimit = 35 * time.Second
)

// fault is what befalls the leader in a round, beside the loss of its way to the hub. In each of them its API server
// answers electors as late as it may.
type fault string

const (
	// whileRenewing: its electors renew their locks.
	whileRenewing fault = "the hub loses the leader, whose API server hangs while electors renew"
	// whileTaking: its electors are restarted, and take their locks shortly before the end of the term.
	whileTaking fault = "the hub loses the leader, whose API server hangs while electors take their locks"
	// withoutEtcd: its etcd hangs, so each write to it hangs in the API server.
	withoutEtcd fault = "the hub loses the leader, whose etcd hangs"
)

// rounds are the faults, in order.
var rounds = []fault{whileTaking, whileRenewing, withoutEtcd, whileTaking, whileRenewing}

// play changes the leader some times, and judges what the programs did.
func (s *stage) play(ctx context.Context, n int) (r result, err error) {
	for i := range n {
		f := rounds[i%len(rounds)]
		changed, err := s.failOver(ctx, f)
		if err != nil {
			return r, fmt.Errorf("round %d, %s: %w", i+1, f, err)
		}
		r.Rounds, r.Failovers = r.Rounds+1, r.Failovers+changed
		programs, err := s.judge()
		if err != nil {
			return r, err
		}
		v := together(programs)
		s.say(fmt.Sprintf("round %d: %s; %d programs failed over, %d writes so far, %d overlaps, %d late",
			i+1, f, changed, v.Writes, v.Overlaps, v.Late))
	}
	r.Programs, err = s.judge()
	r.verdict = together(r.Programs)
	for _, i := range s.instances {
		if e, is := i.(*elector); is {
			r.AnsweredLate.add(e.way.answeredLate())
		}
	}
	return r, err
}

// failOver has the hub lose a leader, until all programs that it led write in another cluster. It returns how many they
// are.
func (s *stage) failOver(ctx context.Context, f fault) (changed int, err error) {
	from, err := s.AwaitLeader(ctx, s.programs[0].namespace, "")
	if err != nil {
		return 0, err
	}
	if err := s.awaitWrites(ctx, "", s.programs); err != nil {
		return 0, err
	}
	var led []*program
	var ways []*elector
	for _, p := range s.programs {
		r, err := s.Record(ctx, p.namespace)
		if err != nil {
			return 0, err
		}
		if r.Spec.Leader != from {
			continue
		}
		led = append(led, p)
		if e, is := s.instance(p, from).(*elector); is {
			ways = append(ways, e)
		}
	}
	server := s.Fleet.Member(from)
	admit := make(chan struct{})
	for _, e := range ways {
		e.way.begin(admit)
		defer e.way.release()
	}
	switch f {
	case whileTaking:
		err = s.restart(ctx, ways)
	case withoutEtcd:
		err = s.rest(ctx, from)
		defer s.resume(from)
	}
	if err == nil {
		server.Proxy().BlackHole()
		err = s.lose(ctx, f, from, led, admit)
		server.Proxy().Heal()
	}
	if err != nil {
		return 0, err
	}
	return len(led), s.recover(ctx, from, led, ways)
}

// restart returns when all electors have asked for their locks again.
func (s *stage) restart(ctx context.Context, electors []*elector) error {
	var group errgroup.Group
	for _, e := range electors {
		group.Go(func() error { return e.restart(ctx) })
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("restart electors: %w", err)
	}
	return s.Await(ctx, patience, "restarted electors ask for their locks", func(context.Context) error {
		for _, e := range electors {
			if waiting, _ := e.way.counts(); waiting == 0 {
				return fmt.Errorf("%s does not ask for its lock", e.name)
			}
		}
		return nil
	})
}

// rest returns when the real programs of a cluster have nothing to do. A write that is under way when etcd hangs is
// stored when it goes on again. No stop time covers that: the program has sent it while it held its lock.
func (s *stage) rest(ctx context.Context, member string) error {
	of := s.controllers(member)
	for _, c := range of {
		c.rest(true)
	}
	return s.Await(ctx, patience, "the programs of "+member+" have nothing to do", func(context.Context) error {
		for _, c := range of {
			if !c.idle() {
				return fmt.Errorf("%s has", c.name)
			}
		}
		return nil
	})
}

// resume ends that.
func (s *stage) resume(member string) {
	for _, c := range s.controllers(member) {
		c.rest(false)
	}
}

// lose returns when the programs write in another cluster than the one that the hub has just lost.
func (s *stage) lose(ctx context.Context, f fault, from string, led []*program, admit chan struct{}) (err error) {
	server := s.Fleet.Member(from)
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(admit)
		return process.Pass(groupCtx, lateAdmission)
	})
	if f == withoutEtcd {
		if err := server.PauseEtcd(); err != nil {
			return err
		}
		group.Go(func() error {
			return errors.Join(process.Pass(groupCtx, etcdLimit), server.ResumeEtcd())
		})
	}
	group.Go(func() error { return s.awaitWrites(groupCtx, from, led) })
	return group.Wait()
}

// recover returns when no answer is held back any more, the electors of the cluster that was lost have stopped, and it
// may lead again.
func (s *stage) recover(ctx context.Context, from string, led []*program, ways []*elector) error {
	err := s.Await(ctx, patience, "all electors of "+from+" have stopped", func(context.Context) error {
		for _, e := range ways {
			if _, held := e.way.counts(); held > 0 {
				return fmt.Errorf("%s waits for an answer", e.name)
			}
			if e.wrote(harness.Now().Boot - stopped) {
				return fmt.Errorf("%s still works", e.name)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	var namespaces []string
	for _, p := range led {
		namespaces = append(namespaces, p.namespace)
	}
	return s.AwaitEligible(ctx, patience, from, namespaces...)
}

// handOver raises the priority of another cluster.
func (s *stage) handOver(ctx context.Context) error {
	from, err := s.AwaitLeader(ctx, s.programs[0].namespace, "")
	if err != nil {
		return err
	}
	if _, err := s.HandOver(ctx, s.programs[0].namespace); err != nil {
		return err
	}
	return s.awaitWrites(ctx, from, s.programs)
}

// pauseHub loses the hub for a while.
func (s *stage) pauseHub(ctx context.Context) error {
	if _, err := s.PauseHub(ctx, s.programs[0].namespace, away); err != nil {
		return err
	}
	return s.awaitWrites(ctx, "", s.programs)
}
