package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/worker"
)

// memberState is what this tenure remembers of one member. The controller's lock guards it.
type memberState struct {
	known     bool // its Cluster exists
	connected bool // it was connected at some time
	engaged   engagement
	worker    memberWorker  // nil unless it runs, while the member is engaged
	ended     chan struct{} // closed when the latest worker has ended
}

// engagement is a member that the manager has engaged. The zero value means that it is not engaged.
type engagement struct {
	ctx     context.Context
	cluster cluster.Cluster
}

// memberWorker is the part of [worker.Worker] that the controller uses. The simulation replaces it.
type memberWorker interface {
	Publisher() *publish.Publisher
	Unguarded() error
	Unfenced(f guard.Fence, namespace string) error
	FencedSince(f guard.Fence, namespace string) (since time.Duration, err error)
	LockOf(f guard.Fence) worker.LockState
	Readers(namespace string) int
	Required(namespace string, of worker.Requires) worker.Required
	Wake()
}

// members runs the work in members, and shows decisions what is there.
type members struct {
	*hub
	workersHub worker.Hub

	mu      sync.Mutex // guards what follows; never held across I/O
	running context.Context
	wg      sync.WaitGroup
	of      map[fleet.Key]*memberState
}

// start begins the work in all engaged members.
func (ms *members) start(ctx context.Context) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.running = ctx
	for key, s := range ms.of {
		if s.engaged.ctx != nil {
			ms.begin(key)
		}
	}
}

// stop waits for the end of all work. No worker begins any more.
func (ms *members) stop() {
	ms.mu.Lock()
	ms.running = nil
	ms.mu.Unlock()
	ms.wg.Wait()
}

// keys returns the members that are known.
func (ms *members) keys() []fleet.Key {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return slices.Collect(maps.Keys(ms.of))
}

// noteChange notes whether a member's Cluster exists, and whether the member was ever connected while this replica
// watched. It returns false for one that never was.
func (ms *members) noteChange(key fleet.Key) (connected bool) {
	m, exists := ms.Fleet.Member(key)
	ms.mu.Lock()
	defer ms.mu.Unlock()
	s := ms.member(key)
	s.known = exists
	s.connected = s.connected || m.Connected || s.engaged.ctx != nil
	ms.forget(key)
	return s.connected
}

// member returns the state of a member, and creates it if necessary. The caller holds the lock.
func (ms *members) member(key fleet.Key) *memberState {
	s := ms.of[key]
	if s == nil {
		s = &memberState{}
		ms.of[key] = s
	}
	return s
}

// forget drops a member once its Cluster is gone and it is not engaged: no worker runs. The caller holds the lock.
func (ms *members) forget(key fleet.Key) {
	if s := ms.of[key]; !s.known && s.engaged.ctx == nil {
		delete(ms.of, key)
	}
}

// engage remembers that the manager has engaged a member, and begins the work there once this replica is elected.
func (ms *members) engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	key, err := fleet.ParseKey(name)
	if err != nil {
		return fmt.Errorf("engage: %w", err)
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.member(key).engaged = engagement{ctx: ctx, cluster: cl}
	if ms.running != nil {
		ms.begin(key)
	}
	return nil
}

// begin starts a worker for an engaged member. The caller holds the lock.
//
// An earlier publisher of the same member may renew once more until it has stopped. Until then, a stop of all
// renewals must find it. So the new worker waits for its end.
func (ms *members) begin(key fleet.Key) {
	s := ms.of[key]
	e, before, ended := s.engaged, s.ended, make(chan struct{})
	s.ended = ended
	ctx, cancel := context.WithCancel(ms.running)
	stop := context.AfterFunc(e.ctx, cancel)
	ms.wg.Go(func() {
		defer close(ended)
		defer cancel()
		defer stop()
		if before != nil {
			<-before
		}
		if m, ok := ms.Fleet.Member(key); ok {
			w := ms.newWorker(ctx, m, e.cluster)
			ms.mu.Lock()
			s.worker = w
			ms.mu.Unlock()
			w.Run(ctx)
		}
		ms.mu.Lock()
		defer ms.mu.Unlock()
		if s.worker = nil; s.engaged.ctx == e.ctx {
			s.engaged = engagement{}
		}
		ms.forget(key)
	})
}

func (ms *members) newWorker(ctx context.Context, m fleet.Member, cl cluster.Cluster) *worker.Worker {
	return worker.New(worker.Options{
		Member: m, Cluster: cl, Client: ms.writer(m), Tenants: m.Tenants, Observe: m.Observe, Fleet: ms.Fleet,
		Hub:   ms.workersHub,
		HubID: ms.HubID, Clock: ms.Clock, Promises: ms.promises,
		Log: log.FromContext(ctx).WithName("worker").WithValues("cluster", klog.KRef(m.Fleet, m.Name)),
	})
}

// worker returns the worker that runs in a member, or nil.
func (ms *members) worker(key fleet.Key) memberWorker {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if s := ms.of[key]; s != nil {
		return s.worker
	}
	return nil
}

// workers returns the workers that run in a fleet.
func (ms *members) workers(fleetName string) (ws []memberWorker) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	for key, s := range ms.of {
		if key.Fleet == fleetName && s.worker != nil {
			ws = append(ws, s.worker)
		}
	}
	return ws
}

// publishers returns the publishers of a fleet.
func (ms *members) publishers(fleetName string) (ps []*publish.Publisher) {
	for _, w := range ms.workers(fleetName) {
		if p := w.Publisher(); p != nil {
			ps = append(ps, p)
		}
	}
	return ps
}

// Work is the state of the work in one member.
type Work struct {
	// Guarded: the admission policies that protect the Leases are in force. Checked: this tenure has checked that.
	Guarded, Checked bool
	// Readers is how many registrations of readers there are.
	Readers int
}

// Work returns the state of the work in a member. It returns false while nothing is written there.
func (c *Controller) Work(key fleet.Key) (Work, bool) {
	w := c.members.worker(key)
	if w == nil || w.Publisher() == nil {
		return Work{}, false
	}
	err := w.Unguarded()
	checked := !errors.Is(err, guard.ErrUnchecked)
	return Work{Guarded: err == nil, Checked: checked, Readers: w.Publisher().Readers.Count()}, true
}

// stopRenewing ends all renewals of a namespace, in every member.
func (ms *members) stopRenewing(key types.NamespacedName) {
	for _, p := range ms.publishers(key.Namespace) {
		p.StopRenewing(key.Name)
	}
}
