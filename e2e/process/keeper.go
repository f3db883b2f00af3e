package process

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// Backoff is how long a [Keeper] waits before it starts a program again. The first wait is First. Each further one is
// twice as long, up to Most. After a run of at least Reset the next wait is First again.
type Backoff struct{ First, Most, Reset time.Duration }

// next returns the wait after a run that lasted this long. The wait before that run was last, zero for the first run.
func (b Backoff) next(last, lasted time.Duration) time.Duration {
	if last == 0 || lasted >= b.Reset {
		return b.First
	}
	return min(2*last, b.Most)
}

// KeepOptions say how to keep a program running.
type KeepOptions struct {
	Backoff Backoff
	// MayEnd allows the program to end by itself, unless its log shows a crash. Otherwise such an end fails Check.
	MayEnd bool
	// Ended, if set, is called after each end, before the wait.
	Ended func(p *Process, wait time.Duration)
}

// Keeper keeps one program running, as a kubelet does: when a process ends, it starts the next one after a wait.
// Its methods may be called from any goroutine.
type Keeper struct {
	name  string
	start func(run int) (*Process, error)
	o     KeepOptions

	turn chan struct{} // holds a token unless Kill holds back the next start
	done chan struct{} // closed when the Keeper starts no further process

	mu      sync.Mutex
	current *Process
	ends    int   // of processes that nobody stopped or killed
	fault   error // the first end that must not be
}

// Keep keeps a program running until ctx ends, from its first process on. The function start starts the run of that
// number, 2 and up. Keep leaves the last process to its caller: see [Keeper.Done].
func Keep(ctx context.Context, name string, first *Process, start func(run int) (*Process, error),
	o KeepOptions) *Keeper {
	k := &Keeper{name: name, start: start, o: o, current: first, turn: make(chan struct{}, 1), done: make(chan struct{})}
	k.turn <- struct{}{}
	go func() {
		defer close(k.done)
		k.keep(ctx)
	}()
	return k
}

func (k *Keeper) keep(ctx context.Context) {
	wait, began := time.Duration(0), time.Now()
	for run := 2; ; run++ {
		p := k.Current()
		select {
		case <-p.Ended():
			k.note(p)
		case <-ctx.Done():
			return
		}
		wait = k.o.Backoff.next(wait, time.Since(began))
		if k.o.Ended != nil {
			k.o.Ended(p, wait)
		}
		for ; !k.replace(ctx, run, wait); run++ {
			if ctx.Err() != nil {
				return
			}
			wait = k.o.Backoff.next(wait, 0)
		}
		began = time.Now()
	}
}

// replace starts a run after the wait, and reports whether it did.
func (k *Keeper) replace(ctx context.Context, run int, wait time.Duration) bool {
	if Pass(ctx, wait) != nil {
		return false
	}
	select {
	case <-k.turn:
	case <-ctx.Done():
		return false
	}
	defer func() { k.turn <- struct{}{} }()
	next, err := k.start(run)
	if err != nil {
		k.complain(err)
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current = next
	return true
}

// note judges how a process ended.
func (k *Keeper) note(p *Process) {
	how := p.Check()
	if how == nil {
		return // its owner killed it
	}
	k.mu.Lock()
	k.ends++
	k.mu.Unlock()
	log, err := os.ReadFile(p.Log())
	if err != nil {
		k.complain(err)
		return
	}
	for _, bad := range []string{"panic:", "fatal error:", "DATA RACE"} {
		if !k.o.MayEnd || strings.Contains(string(log), bad) {
			k.complain(how)
			return
		}
	}
}

func (k *Keeper) complain(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fault == nil {
		k.fault = fmt.Errorf("%s: %w", k.name, err)
	}
}

// Check returns the first end that must not be, or the first start that failed.
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

// Done is closed after ctx has ended, when no further process will be started. From then on Current is the caller's.
func (k *Keeper) Done() <-chan struct{} { return k.done }

// Ends counts the processes that ended and that nobody stopped or killed.
func (k *Keeper) Ends() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ends
}

// Kill kills the process, and holds back the next start for at least this long. alive is false if none ran.
func (k *Keeper) Kill(ctx context.Context, empty time.Duration) (alive bool, err error) {
	select {
	case <-k.turn:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	defer func() { k.turn <- struct{}{} }()
	p := k.Current()
	select {
	case <-p.Ended():
	default:
		alive = true
	}
	if err := p.Kill(); err != nil {
		return alive, err
	}
	return alive, Pass(ctx, empty)
}

// Pause stops the process where it is. It returns nil if none runs.
func (k *Keeper) Pause() (*Process, error) {
	p := k.Current()
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

// Pass returns when d has passed, or early with an error when ctx ends.
func Pass(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
