package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/lines"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	// undoEvery is how often the drill undoes what a program writes.
	undoEvery = 200 * time.Millisecond
	// acquired is what an elector logs when it has taken its lock.
	acquired = "Successfully acquired lease"
)

// restarts are the waits before a program that has ended is started again.
var restarts = process.Backoff{First: time.Second, Most: 2 * time.Second, Reset: 10 * time.Second}

// controller is a program in one member. It ends when it loses its lock, and is started again, as a kubelet does. What
// it did is judged by its log, by its ends, and by what it wrote.
type controller struct {
	*program
	member string
	client client.Client
	keeper *process.Keeper
	seen   *harness.Watch[client.Object]
	stop   context.CancelFunc
	done   chan struct{} // closed when nothing is undone any more

	mu     sync.Mutex // guards what follows
	log    *lines.File
	taken  []time.Duration // when it took its lock
	ends   []time.Duration // when its processes had ended
	writes []harness.Act
	failed error // why what it does cannot be undone

	last   client.Object // as it was seen last
	kept   bool          // that is as the program keeps it
	rests  bool          // nothing is undone
	undone time.Duration // when the first request to undo that was sent; zero: not yet
}

// startController starts a program in a member, and undoes what it does, until close is called.
func startController(ctx context.Context, d *harness.Drill, p *program, member string) (instance, error) {
	c := &controller{program: p, member: member, client: d.Members[member], done: make(chan struct{})}
	start, err := p.install(ctx, d, member)
	if err != nil {
		return nil, err
	}
	c.seen, err = harness.Observe(ctx, d.Members[member], p.list, p.object, client.InNamespace(p.namespace),
		client.MatchingFields{"metadata.name": p.named})
	if err != nil {
		return nil, fmt.Errorf("what %s writes in %s: %w", p.name, member, err)
	}
	first, err := start()
	if err != nil {
		c.seen.Stop()
		return nil, err
	}
	c.log = lines.Follow(first.Log())
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	c.keeper = process.Keep(running, first.Name(), first, func(int) (*process.Process, error) { return start() },
		process.KeepOptions{Backoff: restarts, MayEnd: true, Ended: func(*process.Process, time.Duration) { c.ended() }})
	go func() {
		defer close(c.done)
		for process.Pass(running, undoEvery) == nil {
			c.take()
			c.remove(running)
		}
	}()
	return c, nil
}

// close stops the program.
func (c *controller) close() error {
	c.stop()
	<-c.done
	<-c.keeper.Done()
	c.seen.Stop()
	return c.keeper.Current().Stop()
}

func (c *controller) in() string { return c.member }

func (c *controller) of() *program { return c.program }

func (c *controller) ended() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends = append(c.ends, harness.Now().Boot)
}

// take notes what was written since the last call. It was written after the request to undo the write before was sent,
// in the second that the API server put on it or later, and before it was seen.
func (c *controller) take() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.seen.Take() {
		kept := !s.Gone && c.did(s.Object)
		if kept && (!c.kept || s.Object.GetUID() != c.last.GetUID()) {
			c.writes = append(c.writes, harness.Act{
				Cluster: c.member, Namespace: c.namespace, Object: c.named, What: "write " + c.named,
				Begin: max(c.undone, harness.BootOf(written(s.Object), s.At)), End: s.At.Boot,
			})
			c.undone = 0
		}
		c.last, c.kept = s.Object, kept
	}
}

// remove undoes what the program has done.
func (c *controller) remove(ctx context.Context) {
	c.mu.Lock()
	last, kept := c.last, c.kept && !c.rests
	if kept && c.undone == 0 {
		c.undone = harness.Now().Boot
	}
	c.mu.Unlock()
	if !kept {
		return
	}
	err := c.undo(ctx, c.client, last)
	hangs := apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err)
	if client.IgnoreNotFound(err) == nil || apierrors.IsConflict(err) || hangs || ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = errors.Join(c.failed, fmt.Errorf("undo what %s wrote in %s: %w", c.name, c.member, err))
}

// rest sets whether what the program does is left as it is.
func (c *controller) rest(rests bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rests = rests
}

// idle reports whether the program has nothing to do.
func (c *controller) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rests && c.kept
}

// check returns an error if the program does not start, or what it does cannot be undone.
func (c *controller) check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.keeper.Check(), c.failed)
}

// wrote reports whether the program has written something since an instant.
func (c *controller) wrote(since time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.writes) > 0 && c.writes[len(c.writes)-1].Begin >= since
}

// acts returns what the program wrote, and when its processes held their lock: from the line in the log until the
// process had ended.
func (c *controller) acts() (writes, holds []harness.Act, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := harness.Now()
	err = c.log.News(func(raw []byte) error {
		var line struct {
			At      float64 `json:"ts"` // milliseconds
			Message string  `json:"msg"`
		}
		if json.Unmarshal(raw, &line) == nil && line.Message == acquired { // other lines may be anything
			c.taken = append(c.taken, harness.BootOf(time.UnixMicro(int64(line.At*1000)), now))
		}
		return nil
	})
	for _, at := range c.taken {
		hold := harness.Act{Cluster: c.member, Namespace: c.namespace, Object: c.lock.Name, What: "hold its lock", Begin: at,
			End: now.Boot}
		for _, end := range c.ends {
			if end >= at {
				hold.End = end
				break
			}
		}
		holds = append(holds, hold)
	}
	return c.writes, holds, err
}
