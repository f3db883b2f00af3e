package command

import (
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/member/internal/fed"
)

const (
	ns   = "shop"
	us   = "east.fleet"
	them = "west.fleet"
	d    = 12 * time.Second
)

// leaseOf is a Lease as the hub writes it now.
func leaseOf(now lease.Reading, holder string, epoch int64, duration time.Duration) (*coordinationv1.Lease, error) {
	l := &coordinationv1.Lease{}
	return l, wire.Write(lease.Content{
		Term:      lease.Term{Holder: holder, Epoch: epoch, AcquireTime: now.Wall, RenewTime: now.Wall, Duration: duration},
		Namespace: ns, Name: v1alpha1.DefaultLeaseName, Cluster: us, ClusterUID: "uid", Hub: "hub", Skew: time.Second,
	}, "", l)
}

// stage is a gate in a bubble, with a program that is none.
type stage struct {
	t     *testing.T
	clock *clocktest.Bubble
	fed.Terms
	*runner
	ended   chan struct{} // the gate has
	exit    int
	err     error
	mu      sync.Mutex
	started []*fakeGroup
	starts  func() error // if set, what a start does
}

func newStage(t *testing.T, o Options) *stage {
	s := &stage{t: t, clock: clocktest.NewBubble(lease.Reading{Wall: time.Now(), Boot: time.Hour}), ended: make(chan struct{})}
	s.Terms = fed.New(s.clock, time.Second)
	o.Namespace, o.Clock, o.Logger = ns, s.clock, logr.Discard()
	s.runner = newRunner(s.Terms, o, func(until instant, _ int64) (group, error) {
		if s.starts != nil {
			if err := s.starts(); err != nil {
				return nil, err
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		g := &fakeGroup{clock: s.clock, until: until, gone: make(chan struct{}), left: make(chan struct{})}
		s.started = append(s.started, g)
		return g, nil
	})
	go func() {
		defer close(s.ended)
		s.exit, s.err = s.run(t.Context())
	}()
	t.Cleanup(func() { // whatever it does wrong, it ends
		if _, g := s.runs(); g != nil {
			g.exits(g.code())
		}
		<-s.ended
	})
	return s
}

// lease has the cluster see a Lease of now.
func (s *stage) lease(holder string, epoch int64) {
	l, err := leaseOf(s.clock.Now(), holder, epoch, d)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Observe(l)
}

// runs returns how often the program was started, and its last run.
func (s *stage) runs() (int, *fakeGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.started) == 0 {
		return 0, nil
	}
	return len(s.started), s.started[len(s.started)-1]
}

// fakeGroup does what it is told, and notes when.
type fakeGroup struct {
	clock lease.Clock
	gone  chan struct{} // the program has exited
	left  chan struct{} // the watchdog has ended

	mu      sync.Mutex
	until   instant
	deaf    error // of limit
	signals []syscall.Signal
	asked   time.Duration // when SIGTERM came first, as in Reading.Boot
	killed  time.Duration // when end was called first
	lingers time.Duration // how long SIGKILL takes
	status  int
	done    bool // end has returned

	exitedAlready bool
}

func (g *fakeGroup) limit(until instant) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until = until
	return g.deaf
}

// told returns when the watchdog would kill the group.
func (g *fakeGroup) told() instant {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.until
}

func (g *fakeGroup) signal(s syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.signals = append(g.signals, s)
	if s == syscall.SIGTERM && g.asked == 0 {
		g.asked = g.clock.Now().Boot
	}
}

func (g *fakeGroup) exited() <-chan struct{}    { return g.gone }
func (g *fakeGroup) unguarded() <-chan struct{} { return g.left }

func (g *fakeGroup) code() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.status
}

// endsWith sets the exit code of a program that has to be stopped.
func (g *fakeGroup) endsWith(code int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.status = code
}

// hearsNothing has the watchdog be gone for those who tell it something.
func (g *fakeGroup) hearsNothing() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.deaf = syscall.EPIPE
}

// exits has the program exit by itself.
func (g *fakeGroup) exits(code int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.status = code; !g.exitedAlready {
		close(g.gone)
	}
	g.exitedAlready = true
}

func (g *fakeGroup) end() {
	g.mu.Lock()
	g.killed = g.clock.Now().Boot
	lingers := g.lingers
	g.mu.Unlock()
	if lingers > 0 {
		<-time.After(lingers)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done = true
}

// seen returns when SIGTERM and SIGKILL came, 0 if they have not.
func (g *fakeGroup) seen() (asked, killed time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked, g.killed
}
