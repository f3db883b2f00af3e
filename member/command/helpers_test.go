package command

import (
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/member/internal/fed"
	"github.com/leasecast/leasecast/member/internal/musttest"
)

const (
	ns   = "shop"
	us   = "east.fleet"
	them = "west.fleet"
	d    = 12 * time.Second // of a term
)

func pass(d time.Duration) { <-time.After(d) }

// leaseOf is a Lease as the hub writes it now.
func leaseOf(
	t testing.TB, now lease.Reading, holder string, epoch int64, duration time.Duration,
) *coordinationv1.Lease {
	t.Helper()
	l := &coordinationv1.Lease{}
	musttest.Do(t, wire.Write(lease.Content{
		Term:      lease.Term{Holder: holder, Epoch: epoch, AcquireTime: now.Wall, RenewTime: now.Wall, Duration: duration},
		Namespace: ns, Name: v1alpha1.DefaultLeaseName, Cluster: us, ClusterUID: "uid", Hub: "hub", Skew: time.Second,
	}, "", l))
	return l
}

// pausing is the clock of a process that is paused around each of its readings.
type pausing struct {
	*clocktest.Bubble
	pause time.Duration
}

func (c *pausing) Now() lease.Reading {
	c.Suspend(c.pause)
	now := c.Bubble.Now()
	c.Suspend(c.pause)
	return now
}

// testGate is a gate in a bubble, with groups that are no processes.
type testGate struct {
	*runner
	fed.Terms
	t       *testing.T
	clock   *clocktest.Bubble // of its terms
	paused  *pausing          // the gate's own
	signals chan os.Signal
	ended   chan struct{} // the gate has
	exit    int
	err     error

	mu      sync.Mutex
	started []*fakeGroup
	starts  func() error // if set, a start calls it first
}

// newTestGate starts a gate.
func newTestGate(t *testing.T, stopAhead time.Duration) *testGate {
	clock := clocktest.NewBubble(clocktest.Start)
	g := &testGate{
		t: t, Terms: fed.New(clock, time.Second), clock: clock, paused: &pausing{Bubble: clock},
		signals: make(chan os.Signal), ended: make(chan struct{}),
	}
	o := Options{Namespace: ns, StopAhead: stopAhead, Signals: g.signals, Logger: logr.Discard()}
	g.runner = &runner{Options: o, clock: g.paused, leader: g.Terms, start: func(until instant, _ int64) (group, error) {
		if g.starts != nil {
			if err := g.starts(); err != nil {
				return nil, err
			}
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		f := &fakeGroup{clock: g.clock, until: until, gone: make(chan struct{}), left: make(chan struct{})}
		g.started = append(g.started, f)
		return f, nil
	}}
	go func() {
		defer close(g.ended)
		g.exit, g.err = g.run(t.Context())
	}()
	t.Cleanup(func() { // whatever it does wrong, it ends
		if f := g.group(); f != nil {
			f.exits(f.code())
		}
		<-g.ended
	})
	return g
}

// lease observes a Lease of now.
func (g *testGate) lease(holder string, epoch int64) {
	g.t.Helper()
	g.Observe(leaseOf(g.t, g.clock.Now(), holder, epoch, d))
}

// runs returns how often the program was started.
func (g *testGate) runs() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.started)
}

// group returns the group of the last run, nil if there is none.
func (g *testGate) group() *fakeGroup {
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.started) == 0 {
		return nil
	}
	return g.started[len(g.started)-1]
}

// fakeGroup records what it gets, and when.
type fakeGroup struct {
	clock lease.Clock
	gone  chan struct{} // the program has exited
	left  chan struct{} // the watchdog has ended

	mu      sync.Mutex
	until   instant // when the watchdog would kill it
	broken  error   // returned by limit
	signals []syscall.Signal
	asked   time.Duration // when SIGTERM came first, as in Reading.Boot; 0: never
	killed  time.Duration // when end was called first; 0: never
	lingers time.Duration // how long SIGKILL takes
	status  int
	exit    sync.Once
	done    bool // end has returned
}

// set changes the group.
func (f *fakeGroup) set(change func(f *fakeGroup)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// exits lets the program exit by itself.
func (f *fakeGroup) exits(code int) {
	f.set(func(f *fakeGroup) { f.status = code })
	f.exit.Do(func() { close(f.gone) })
}

func (f *fakeGroup) limit(until instant) (err error) {
	f.set(func(f *fakeGroup) { f.until, err = until, f.broken })
	return err
}

func (f *fakeGroup) signal(s syscall.Signal) {
	f.set(func(f *fakeGroup) {
		f.signals = append(f.signals, s)
		if s == syscall.SIGTERM && f.asked == 0 {
			f.asked = f.clock.Now().Boot
		}
	})
}

func (f *fakeGroup) exited() <-chan struct{}    { return f.gone }
func (f *fakeGroup) unguarded() <-chan struct{} { return f.left }

func (f *fakeGroup) code() (code int) {
	f.set(func(f *fakeGroup) { code = f.status })
	return code
}

func (f *fakeGroup) end() {
	var lingers time.Duration
	f.set(func(f *fakeGroup) { f.killed, lingers = f.clock.Now().Boot, f.lingers })
	if lingers > 0 {
		pass(lingers)
	}
	f.set(func(f *fakeGroup) { f.done = true })
}
