package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/leasecast/leasecast/e2e/process"
)

// restartAfter is how long a place stays empty, as in a Deployment whose process has crashed.
const restartAfter = 500 * time.Millisecond

// slot is a place for a process. When one ends, the next takes its place.
type slot struct {
	name  string
	start func(generation int) (*process.Process, error)
	// mayEnd: such a process ends by itself when it has lost what it needs.
	mayEnd bool

	turn chan struct{} // holds a token while nobody keeps the place empty
	done chan struct{} // closed when keep has returned

	mu      sync.Mutex
	process *process.Process
	ends    int   // of processes that were not killed
	fault   error // the first end that must not be
}

// newSlot fills a place, and keeps it filled until ctx ends; then it kills the last process. first may be nil.
func newSlot(ctx context.Context, name string, mayEnd bool, first *process.Process, start func(int) (*process.Process, error)) (*slot, error) {
	s := &slot{name: name, mayEnd: mayEnd, start: start, process: first, turn: make(chan struct{}, 1), done: make(chan struct{})}
	s.turn <- struct{}{}
	if first == nil {
		var err error
		if s.process, err = start(1); err != nil {
			return nil, err
		}
	}
	go func() {
		defer close(s.done)
		s.keep(ctx)
	}()
	return s, nil
}

func (s *slot) keep(ctx context.Context) {
	for generation := 2; ; generation++ {
		p := s.current()
		select {
		case <-p.Ended():
			s.note(p)
		case <-ctx.Done():
			s.complain(p.Kill())
			return
		}
		if pass(ctx, restartAfter) != nil {
			return
		}
		select {
		case <-s.turn:
		case <-ctx.Done():
			return
		}
		next, err := s.start(generation)
		s.turn <- struct{}{}
		if err != nil {
			s.complain(err)
			return
		}
		s.mu.Lock()
		s.process = next
		s.mu.Unlock()
	}
}

// note looks at how a process ended.
func (s *slot) note(p *process.Process) {
	how := p.Check()
	if how == nil {
		return // it was killed
	}
	s.mu.Lock()
	s.ends++
	s.mu.Unlock()
	log, err := os.ReadFile(p.Log())
	if err != nil {
		s.complain(err)
		return
	}
	for _, bad := range []string{"panic:", "fatal error:", "DATA RACE"} {
		if !s.mayEnd || strings.Contains(string(log), bad) {
			s.complain(how)
			return
		}
	}
}

func (s *slot) complain(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault == nil && err != nil {
		s.fault = fmt.Errorf("%s: %w", s.name, err)
	}
}

// check returns the first end that must not be.
func (s *slot) check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault
}

func (s *slot) current() *process.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// restarts is how many processes ended that were not killed.
func (s *slot) restarts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ends
}

// kill kills the process and keeps its place empty for a while. alive is false if there was none.
func (s *slot) kill(ctx context.Context, empty time.Duration) (alive bool, err error) {
	select {
	case <-s.turn:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	defer func() { s.turn <- struct{}{} }()
	p := s.current()
	select {
	case <-p.Ended():
	default:
		alive = true
	}
	if err := p.Kill(); err != nil {
		return alive, err
	}
	return alive, pass(ctx, empty)
}

// pause stops the process where it stands. It returns nil if there is none.
func (s *slot) pause() (*process.Process, error) {
	p := s.current()
	if err := p.Pause(); err != nil {
		select {
		case <-p.Ended():
			return nil, nil
		default:
			return nil, err
		}
	}
	return p, nil
}

// pass returns when d has passed, or early with an error when ctx ends.
func pass(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
