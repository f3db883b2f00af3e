package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"sync"
	"time"
)

// KeepOptions describe how to keep a program running.
type KeepOptions struct {
	// Wait is the time from the end of a process to the start of the next one.
	Wait time.Duration
	// MayEnd allows the program to end by itself, unless its log shows a crash. Otherwise such an end fails Check.
	MayEnd bool
	// Ended, if set, is called before each wait.
	Ended func(p *Process)
}

// Keeper keeps one program running, as a kubelet does: when a process ends, it starts the next one after a wait.
// Its methods may be called from any goroutine.
type Keeper struct {
	name  string
	start func(run int) (*Process, error)
	o     KeepOptions
	done  chan struct{} // closed when the Keeper starts no further process

	starting sync.Mutex // held during a start, and by Kill to delay the next one

	mu      sync.Mutex
	current *Process
	fault   error // the first unexpected end or failed start
}

// Keep keeps a program running until ctx ends, from its first process on. The function start starts the run of that
// number, 2 and up. The caller ends the last process: see [Keeper.Done].
func Keep(ctx context.Context, name string, first *Process, start func(run int) (*Process, error),
	o KeepOptions) *Keeper {
	k := &Keeper{name: name, start: start, o: o, current: first, done: make(chan struct{})}
	go k.keep(ctx)
	return k
}

func (k *Keeper) keep(ctx context.Context) {
	defer close(k.done)
	for run := 2; ; run++ {
		p := k.Current()
		select {
		case <-p.Ended():
		case <-ctx.Done():
			return
		}
		k.checkEnd(p)
		if k.o.Ended != nil {
			k.o.Ended(p)
		}
		if Pass(ctx, k.o.Wait) != nil {
			return
		}
		k.replace(run)
	}
}

func (k *Keeper) replace(run int) {
	k.starting.Lock()
	defer k.starting.Unlock()
	next, err := k.start(run)
	if err != nil {
		k.fail(err)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current = next
}

// crash matches the logs of Go programs that end by a fault of their own.
var crash = regexp.MustCompile("panic:|fatal error:|DATA RACE")

// checkEnd records a fault if the process should not have ended like this.
func (k *Keeper) checkEnd(p *Process) {
	how := p.Check()
	if how == nil {
		return // it was killed or stopped
	}
	log, err := os.ReadFile(p.Log())
	if err != nil || !k.o.MayEnd || crash.Match(log) {
		k.fail(errors.Join(how, err))
	}
}

func (k *Keeper) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fault == nil {
		k.fault = fmt.Errorf("%s: %w", k.name, err)
	}
}

// Check returns the first unexpected end, or the first start that failed.
func (k *Keeper) Check() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fault
}

// Current is the process that runs, or the last one that ran.
func (k *Keeper) Current() *Process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current
}

// Done is closed after ctx has ended, when no further process will be started. From then on the caller owns Current.
func (k *Keeper) Done() <-chan struct{} { return k.done }

// Kill kills the process and delays the next start by at least this long. It returns false if no process ran.
func (k *Keeper) Kill(ctx context.Context, delay time.Duration) (alive bool, err error) {
	k.starting.Lock()
	defer k.starting.Unlock()
	p := k.Current()
	alive = p.Running()
	if err := p.Kill(); err != nil {
		return alive, err
	}
	return alive, Pass(ctx, delay)
}

// Pause stops the process where it is and returns it. It returns nil if no process runs.
func (k *Keeper) Pause() (*Process, error) {
	p := k.Current()
	err := p.Pause()
	if errors.Is(err, ErrEnded) {
		return nil, nil
	}
	return p, err
}

// Pass returns when d has passed, or early with an error when ctx ends.
func Pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
