package main

import (
	"context"
	"fmt"
	"time"
)

const (
	// away is how long the hub is lost: the leader's programs have stopped by themselves by then.
	away = 14 * time.Second
	// between is how many failovers there are for each other change.
	between = 4
)

// play changes the leader until there were enough failovers, and judges what the controllers did.
func (s *stage) play(ctx context.Context, failovers int) (r result, err error) {
	others := []struct {
		name  string
		make  func(context.Context) error
		count *int
	}{
		{"a handover", s.handOver, &r.Handovers},
		{"the hub is killed", s.killHub, &r.HubLosses},
		{"the hub is paused", s.pauseHub, &r.HubLosses},
	}
	for r.Failovers < failovers {
		if err := s.failOver(ctx); err != nil {
			return r, fmt.Errorf("failover %d: %w", r.Failovers+1, err)
		}
		r.Failovers++
		if err := s.tell(fmt.Sprintf("failover %d", r.Failovers)); err != nil {
			return r, err
		}
		if r.Failovers%between != 0 {
			continue
		}
		other := others[(r.Failovers/between-1)%len(others)]
		if err := other.make(ctx); err != nil {
			return r, fmt.Errorf("%s: %w", other.name, err)
		}
		*other.count++
		if err := s.tell(other.name); err != nil {
			return r, err
		}
	}
	r.Programs, err = s.judge()
	r.verdict = together(r.Programs)
	return r, err
}

// tell reports progress.
func (s *stage) tell(change string) error {
	programs, err := s.judge()
	if v := together(programs); err == nil {
		s.say(fmt.Sprintf("%s; %d writes so far, %d breaches", change, v.Writes, len(v.Breaches)))
	}
	return err
}

// failOver has the hub lose the leader, whose programs go on, until those of the next one write.
func (s *stage) failOver(ctx context.Context) error { return s.FailOver(ctx, namespace, s.awaitWrite) }

func (s *stage) handOver(ctx context.Context) error {
	leader, err := s.HandOver(ctx, namespace)
	if err != nil {
		return err
	}
	return s.awaitWrite(ctx, leader)
}

func (s *stage) killHub(ctx context.Context) error {
	leader, err := s.KillHub(ctx, namespace, away)
	if err != nil {
		return err
	}
	return s.awaitWrite(ctx, leader)
}

func (s *stage) pauseHub(ctx context.Context) error {
	leader, err := s.PauseHub(ctx, namespace, away)
	if err != nil {
		return err
	}
	return s.awaitWrite(ctx, leader)
}
