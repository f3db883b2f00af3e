package controller

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/worker"
)

// memberState is what this tenure remembers of one member. The controller's lock guards it.
type memberState struct {
	known     bool          // its Cluster exists
	problem   fleet.Problem // of the last event on its Cluster
	connected bool          // it was connected at some time
	engaged   engagement
	worker    memberWorker  // nil unless it runs
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
	AccountOf(a v1alpha1.FencedServiceAccount) worker.AccountState
	Readers(namespace string) int
	Wake()
}

// member returns the state of a member, and creates it if necessary. The caller holds the lock.
func (c *Controller) member(key fleet.Key) *memberState {
	s := c.members[key]
	if s == nil {
		s = &memberState{}
		c.members[key] = s
	}
	return s
}

// release forgets a member once its Cluster is gone and no worker runs. The caller holds the lock.
func (c *Controller) release(key fleet.Key) {
	if s := c.members[key]; s != nil && !s.known && s.engaged.ctx == nil && s.worker == nil {
		delete(c.members, key)
	}
}

// Engage implements multicluster.Aware. The fleet engages a member once the member's cluster is certain.
func (c *Controller) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	key, err := fleet.ParseKey(name)
	if err != nil {
		return fmt.Errorf("engage: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.member(key).engaged = engagement{ctx: ctx, cluster: cl}
	if c.running != nil {
		c.begin(key)
	}
	return nil
}

// begin starts a worker for an engaged member. The caller holds the lock.
//
// An earlier publisher of the same member may renew once more until it has stopped. Until then, a stop of all
// renewals must find it. So the new worker waits for its end.
func (c *Controller) begin(key fleet.Key) {
	s := c.members[key]
	e, before, ended := s.engaged, s.ended, make(chan struct{})
	s.ended = ended
	ctx, cancel := context.WithCancel(c.running)
	stop := context.AfterFunc(e.ctx, cancel)
	c.wg.Go(func() {
		defer close(ended)
		defer cancel()
		defer stop()
		if before != nil {
			<-before
		}
		if m, ok := c.Fleet.Member(key); ok {
			w := c.newWorker(ctx, m, e.cluster)
			c.mu.Lock()
			s.worker = w
			c.mu.Unlock()
			w.Run(ctx)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if s.worker = nil; s.engaged.ctx == e.ctx {
			s.engaged = engagement{}
		}
		c.release(key)
	})
}

func (c *Controller) newWorker(ctx context.Context, m fleet.Member, cl cluster.Cluster) *worker.Worker {
	o := worker.Options{
		Member: m, Cluster: cl, Client: c.writer(m), CronJobs: m.CronJobs, Observe: m.Observe, Fleet: c.Fleet, Hub: workersHub{c},
		HubID: c.HubID, Clock: c.Clock, Promises: c.promises,
		Log: log.FromContext(ctx).WithName("worker").WithValues("cluster", klog.KRef(m.Fleet, m.Name)),
	}
	if o.Leases = o.Client.CoordinationV1(); c.Measure != nil {
		o.Leases = c.Measure(m.Key, o.Leases)
	}
	return worker.New(o)
}

// worker returns the worker that runs in a member, or nil.
func (c *Controller) worker(key fleet.Key) memberWorker {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.members[key]; s != nil {
		return s.worker
	}
	return nil
}

// workers returns the workers that run in a fleet.
func (c *Controller) workers(fleetName string) (ws []memberWorker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, s := range c.members {
		if key.Fleet == fleetName && s.worker != nil {
			ws = append(ws, s.worker)
		}
	}
	return ws
}

// publishers returns the publishers of a fleet.
func (c *Controller) publishers(fleetName string) (ps []*publish.Publisher) {
	for _, w := range c.workers(fleetName) {
		if p := w.Publisher(); p != nil {
			ps = append(ps, p)
		}
	}
	return ps
}

// Work is the state of the work in one member.
type Work struct {
	// Guarded: the admission policies that protect the Leases are in force.
	Guarded bool
	// Readers is how many registrations of readers there are.
	Readers int
}

// Work returns the state of the work in a member. It returns false while nothing is written there.
func (c *Controller) Work(key fleet.Key) (Work, bool) {
	if w := c.worker(key); w != nil && w.Publisher() != nil {
		return Work{Guarded: w.Unguarded() == nil, Readers: w.Publisher().Readers()}, true
	}
	return Work{}, false
}

// workersHub is the hub as workers see it.
type workersHub struct{ c *Controller }

func (h workersHub) Serve(ctx context.Context, fleetName string) (seal.Key, bool) {
	s, ok := h.c.serve(ctx, fleetName)
	return s.Key, ok
}

func (h workersHub) Served(fleetName string) bool { return h.c.source.servedBy(fleetName) == h.c.HubID }

func (h workersHub) Serves(fleetName string) bool { return h.c.Serves(fleetName) }

func (h workersHub) MayWrite(fleetName string, now lease.Reading) bool {
	return h.c.mayWrite(fleetName, now)
}

func (h workersHub) Changed(key fleet.Key, namespace string) { h.c.leaseChanged(key, namespace) }

func (h workersHub) FenceNews(key fleet.Key) { h.c.policiesChanged(key.Fleet) }

func (h workersHub) Fences(ctx context.Context, key fleet.Key) (fs []guard.Fence, invalid []string, err error) {
	m, ok := h.c.Fleet.Member(key)
	if !ok {
		return nil, nil, nil
	}
	policies, err := h.c.policiesOf(ctx, key.Fleet)
	if err != nil {
		return nil, nil, err
	}
	lost := func(p *policy) ([]string, error) { return h.c.lostIn(ctx, p, policies, m) }
	return fencesIn(h.c.HubID, policies, m, lost, func(p *policy) bool { return h.c.leadsFor(ctx, p, m) })
}

// RelinquishRecords skips another hub's records.
func (h workersHub) RelinquishRecords(ctx context.Context, fleetName string) error {
	var list v1alpha1.NamespaceLeaderList
	if err := h.c.client.List(ctx, &list, client.InNamespace(fleetName)); err != nil {
		return err
	}
	for i := range list.Items {
		o := &list.Items[i]
		if h.c.fromElsewhere(o) {
			continue
		}
		changed := o.DeepCopy()
		changed.Spec.Hub = v1alpha1.NoHub
		patch := client.MergeFromWithOptions(o, client.MergeFromWithOptimisticLock{})
		if err := h.c.client.Patch(ctx, changed, patch); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

func (h workersHub) RecordReader(key fleet.Key, registration types.NamespacedName, kind, why, message string) {
	if !h.c.Serves(key.Fleet) {
		return
	}
	if registration == (types.NamespacedName{}) {
		h.c.recordOnCluster(key, nil, kind, why, "Register", message)
		return
	}
	// Events about the same objects are merged into one, with the first one's message. So each relates to its own
	// registration.
	h.c.recordOnCluster(key, &corev1.ObjectReference{
		APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease", Namespace: registration.Namespace, Name: registration.Name,
	}, kind, why, "Register", message)
}

func (h workersHub) RecordMended(key fleet.Key, message string) {
	if h.c.Serves(key.Fleet) {
		h.c.recordOnCluster(key, nil, corev1.EventTypeWarning, string(reason.FenceMended), "Fence", message)
	}
}

// recordOnCluster records an event on the Cluster of a member, and relates it to another object, if that is not
// nil.
func (c *Controller) recordOnCluster(key fleet.Key, related runtime.Object, kind, why, action, message string) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	cl := &clusterv1.Cluster{}
	if err := c.client.Get(ctx, types.NamespacedName{Namespace: key.Fleet, Name: key.Name}, cl); err != nil {
		return // it is gone, and its events are of no use any more
	}
	c.events.Eventf(cl, related, kind, why, action, "%s", message)
}
