package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	utilclock "k8s.io/utils/clock"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock"
	"github.com/leasecast/leasecast/member"
)

// Exit codes of the gate itself, as timeout(1) and env(1) have them. All others are the program's.
const (
	Failed     = 125
	CannotExec = 126
	NotFound   = 127
)

// EpochVariable names the variable with the epoch of the program's term, for systems that can refuse a lower one.
const EpochVariable = variablePrefix + "EPOCH"

// variablePrefix begins the name of every variable that a gate sets. A program inherits none from another gate.
const variablePrefix = "LEASECAST_"

// look is the longest time between two checks of term and clocks, soonest the shortest.
const (
	look    = 100 * time.Millisecond
	soonest = time.Millisecond
)

// Options configure what is run, and where.
type Options struct {
	// Namespace is the namespace that must be led.
	Namespace string
	// Command is the program and its arguments.
	Command []string
	// StopAhead is how long before the deadline SIGTERM is sent, at most a third of the term's duration. 0: a quarter.
	// In a registered Member the duration counts as 15 s at most.
	StopAhead time.Duration
	// Signals are passed on to the program.
	Signals <-chan os.Signal
	// Logger receives each start and end of the program.
	Logger logr.Logger
}

// Leader reports when this cluster leads: a [member.Member].
type Leader interface {
	Lead(ctx context.Context, namespace string, f func(ctx context.Context) error) error
	State(namespace string) member.State
}

// group is a running program with all its processes.
type group interface {
	// limit sets the instant at which the watchdog kills the group.
	limit(until instant) error
	signal(s syscall.Signal)
	// exited is closed when the program itself has ended. Then code is its exit code.
	exited() <-chan struct{}
	code() int
	// unguarded is closed when the watchdog has ended.
	unguarded() <-chan struct{}
	// end kills all processes that are left, and returns when they are gone.
	end()
}

// exit is the exit code of a program that has ended by itself.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

var (
	errNotFound   = errors.New("the program is not there")
	errCannotExec = errors.New("the program cannot be started")
	// errAsked reports that a signal has asked the gate to end.
	errAsked = errors.New("asked to end")
	// errUnguarded reports that nothing would kill the program if the gate were paused.
	errUnguarded = errors.New("the watchdog has ended, so the program was killed")
)

// Run runs the program whenever this cluster leads. It returns the exit code for the gate. This is the program's own if
// the program has ended by itself or by a signal to the gate. Otherwise it is one of the gate's codes, with an error.
// No process of the group is left then.
//
// Run starts this program again as the watchdog, so main begins with:
//
//	if len(os.Args) == 2 && os.Args[1] == command.Watchdog {
//		command.RunWatchdog()
//	}
//
// Run is called once in a process, because it waits for all children.
func Run(ctx context.Context, l Leader, o Options) (code int, err error) {
	groups, err := newGroups(o.Command)
	if err != nil {
		return startCode(err), err
	}
	return (&runner{Options: o, clock: &clock.System{}, leader: l, start: groups}).run(ctx)
}

// startCode is the exit code for a program that cannot be started.
func startCode(err error) int {
	switch {
	case errors.Is(err, errNotFound):
		return NotFound
	case errors.Is(err, errCannotExec):
		return CannotExec
	}
	return Failed
}

type runner struct {
	Options
	clock  lease.Clock // judges the deadline, as the watchdog's does
	leader Leader
	start  func(until instant, epoch int64) (group, error)

	mu      sync.Mutex
	current group // nil: none runs
	asked   bool  // a signal has asked the gate to end
	code    int   // of the last run
	cancel  context.CancelCauseFunc
}

func (r *runner) run(ctx context.Context) (code int, err error) {
	ctx, r.cancel = context.WithCancelCause(ctx)
	defer r.cancel(nil)
	go r.passOn(ctx)
	err = r.leader.Lead(ctx, r.Namespace, r.lead)
	var own exit
	switch {
	case errors.As(err, &own):
		return int(own), nil
	case errors.Is(err, errAsked):
		return r.code, nil
	}
	return startCode(err), err
}

// passOn passes signals on to the program. If no program runs, a signal that asks for the end ends the gate.
func (r *runner) passOn(ctx context.Context) {
	for {
		select {
		case s := <-r.Signals:
			r.pass(s.(syscall.Signal))
		case <-ctx.Done():
			return
		}
	}
}

func (r *runner) pass(s syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = r.asked || s == syscall.SIGTERM || s == syscall.SIGINT || s == syscall.SIGQUIT
	switch {
	case r.current != nil:
		r.current.signal(s)
	case r.asked:
		r.code = 0 // the last run was meant to be stopped
		r.cancel(errAsked)
	}
}

// lead runs the program in one term, again and again if it had to be stopped.
func (r *runner) lead(ctx context.Context) error {
	term, _ := member.TermFrom(ctx)
	for r.await(ctx, term) {
		if err := r.once(ctx, term); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// await returns true when enough of the term is left to start the program, and false when the context ends.
func (r *runner) await(ctx context.Context, term member.Term) bool {
	for ctx.Err() == nil {
		if s := r.see(ctx, term); s.remaining > s.stopAhead+s.killAhead {
			return true
		}
		select {
		case <-utilclock.RealClock{}.After(look):
		case <-ctx.Done():
		}
	}
	return false
}

// see reads the clock before the term: a pause in between makes less remain.
func (r *runner) see(ctx context.Context, term member.Term) situation {
	s := situation{now: r.clock.Now()}
	s.remaining = term.Remaining()
	s.over = ctx.Err() != nil || s.remaining == 0
	state := r.leader.State(r.Namespace)
	s.elsewhere = state.Leader != "" && state.Leader != state.Cluster
	if s.stopAhead = state.Duration / 4; r.StopAhead > 0 {
		s.stopAhead = min(r.StopAhead, state.Duration/3) // more would stop a program whose term is renewed in time
	}
	s.killAhead = killAhead(state.Duration, s.stopAhead)
	return s
}

// once runs the program until no process of it is left. It returns nil if the program had to be stopped, and exit if it
// has ended by itself.
func (r *runner) once(ctx context.Context, term member.Term) error {
	var now run
	first := r.see(ctx, term)
	if now.next(first) != 0 {
		return nil
	}
	g, err := r.start(now.until, term.Epoch())
	if err != nil {
		return r.unlessKilled(err, now.until, term)
	}
	r.begin(g, term, first.stopAhead)
	defer r.finish(g)
	limit, done := now.until, ctx.Done()
	for {
		select {
		case <-g.exited():
			if now.stopping || ctx.Err() != nil {
				return nil
			}
			return r.unlessKilled(exit(g.code()), limit, term)
		case <-g.unguarded():
			return r.unlessKilled(errUnguarded, limit, term)
		case <-done:
			done = nil // seen
		case <-utilclock.RealClock{}.After(min(look, max(soonest, now.until.in(r.clock.Now())))):
		}
		switch now.next(r.see(ctx, term)) {
		case syscall.SIGKILL:
			return nil
		case syscall.SIGTERM:
			g.signal(syscall.SIGTERM) // before the log, which may block
			r.Logger.Info("Stops the program", "namespace", r.Namespace, "epoch", term.Epoch())
		}
		if !now.until.near(limit) {
			if err := g.limit(now.until); err != nil {
				return r.unlessKilled(fmt.Errorf("%w: %w", errUnguarded, err), limit, term)
			}
			limit = now.until
		}
	}
}

// unlessKilled returns nil if the watchdog has killed the group at its limit, and err otherwise. The watchdog
// kills itself too. So after that no program can join its group, and it reads no renewal.
func (r *runner) unlessKilled(err error, limit instant, term member.Term) error {
	if term.Holds() && !limit.come(r.clock.Now()) {
		return err
	}
	r.Logger.Info("The program's time is up", "namespace", r.Namespace, "epoch", term.Epoch(), "err", err.Error())
	return nil
}

// begin passes signals on to a group from now on. If the gate was already asked to end, the group gets SIGTERM at once.
func (r *runner) begin(g group, term member.Term, stopAhead time.Duration) {
	r.mu.Lock()
	r.current = g
	if r.asked {
		g.signal(syscall.SIGTERM)
	}
	r.mu.Unlock() // the log may block, and signals must be passed on
	r.Logger.Info("Runs the program", "namespace", r.Namespace, "epoch", term.Epoch(), "stopAhead", stopAhead.String())
}

// finish returns when nothing is left of a group. The term is not released before that.
func (r *runner) finish(g group) {
	g.end()
	r.mu.Lock()
	r.current, r.code = nil, g.code()
	if r.asked {
		r.cancel(errAsked)
	}
	r.mu.Unlock()
	r.Logger.Info("The program has ended", "namespace", r.Namespace, "code", g.code())
}
