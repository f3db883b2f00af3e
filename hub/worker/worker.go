// Package worker does the hub's work in one member. A Worker lives from the engagement of the member to its end. It
// owns the publisher, the watches of Leases and registrations, the keeper of the guard and the fences, and the observer
// of what is fenced. It makes no decisions: package controller asks a Worker for its publisher, and assigns each
// Lease's content through it.
//
// The rest works without acknowledged handover (readers.go).
package worker

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/fleet/wake"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/seal"
)

// ServeRetry is how often a worker retries to serve a fleet.
const ServeRetry = 300 * time.Millisecond

// Options configure a Worker. All fields are required.
type Options struct {
	// Member is pinned, or moving to another hub. Cluster holds the member's caches and the connection of its
	// watches.
	Member  fleet.Member
	Cluster cluster.Cluster
	// Client reaches the member. Its requests must end with their context.
	Client kubernetes.Interface
	// Tenants is for clients of what tenants of the member write. It must not hold up other requests.
	Tenants func() *rest.Config
	// Observe records the outcome of a request to the member.
	Observe func(health.Observation)
	Fleet   Fleet
	Hub     Hub
	// HubID is the mark of this installation.
	HubID    string
	Clock    lease.Clock
	Promises *publish.Promises
	Log      logr.Logger
}

func (o Options) mayWrite() bool { return o.Hub.MayWrite(o.Member.Fleet, o.Clock.Now()) }

// Fleet is the part of [fleet.Provider] that a Worker uses.
type Fleet interface {
	Member(key fleet.Key) (fleet.Member, bool)
	Members(fleetName string) []fleet.Member
	Forget(key fleet.Key)
}

// Hub is what a Worker needs from the hub. Only Serve, Fences, Requires and RelinquishRecords may
// block.
type Hub interface {
	// Serve has this installation serve the member's fleet, and returns the key of its seal. It returns false if
	// another installation serves the fleet, or if the seal cannot be obtained.
	Serve(ctx context.Context, fleetName string) (seal.Key, bool)
	// Served reports whether this installation serves the fleet, as far as a cache shows it.
	Served(fleetName string) bool
	// MayWrite reports whether this replica may write for the fleet at a reading.
	MayWrite(fleetName string, now lease.Reading) bool
	// Changed enqueues a decision because a namespace in the member changed. An empty namespace stands for all.
	Changed(key fleet.Key, namespace string)
	// FencesChanged enqueues the policies' statuses because the state of what they fence in the member changed.
	FencesChanged(key fleet.Key)
	// Fences returns the fences that the policies of the member's fleet ask for there, from a cache. It names the
	// invalid policies, whose fences are not known.
	Fences(ctx context.Context, key fleet.Key) (wanted []guard.Fence, invalid []string, err error)
	// Requires returns the resources whose objects policies require to be healthy in the member, from a cache.
	Requires(ctx context.Context, key fleet.Key) ([]schema.GroupVersionResource, error)
	// RelinquishRecords removes this hub's mark from the fleet's records.
	RelinquishRecords(ctx context.Context, fleetName string) error
	// RecordReader records a warning about a reader on the member's Cluster. registration names the reader's
	// registration; the empty name stands for all.
	RecordReader(key fleet.Key, registration types.NamespacedName, why reason.Reason, message string)
	// RecordGuard records a warning about the guard or a fence on the member's Cluster.
	RecordGuard(key fleet.Key, why reason.Reason, message string)
}

// Worker works in one member. Make it with New, then call Run.
type Worker struct {
	Options
	*guard.Keeper
	observer *observer
	required *required
	wake     chan struct{} // holds one: check whether the member is leaving
	stuck    reason.Reason // why the member cannot be left, as recorded last

	mu         sync.Mutex
	publisher  *publish.Publisher // nil until the seal is known
	registered shownReaders
}

// New returns a Worker that has not started.
func New(o Options) *Worker {
	keeper := guard.NewKeeper(guard.Options{
		Member: o.Client, Hub: o.HubID, Fleet: o.Member.Fleet, Log: o.Log,
		Now:      func() time.Duration { return o.Clock.Now().Boot },
		MayWrite: o.mayWrite,
		Changed:  func() { o.Hub.Changed(o.Member.Key, "") },
		Mended: func(fence string) {
			o.Hub.RecordGuard(o.Member.Key, reason.FenceMended,
				"the fence "+fence+" was edited or deleted in the cluster: the hub restores it")
		},
	})
	return &Worker{
		Options: o, Keeper: keeper, observer: newObserver(o), wake: make(chan struct{}, 1),
		required: &required{Options: o, of: map[schema.GroupVersionResource]*requiredObjects{}},
	}
}

// Publisher returns the member's publisher, or nil while nothing is written there.
func (w *Worker) Publisher() *publish.Publisher {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.publisher
}

// Wake has the worker check whether the member is leaving, and which installation serves its fleet.
func (w *Worker) Wake() { wake.Wake(w.wake) }

// Run guards and publishes until ctx ends. When it returns, no request is in flight.
func (w *Worker) Run(ctx context.Context) {
	var p *publish.Publisher
	err := wait.PollUntilContextCancel(ctx, ServeRetry, true, func(ctx context.Context) (bool, error) {
		key, ok := w.Hub.Serve(ctx, w.Member.Fleet)
		if ok {
			p = w.newPublisher(key)
		}
		return ok, nil
	})
	if err != nil {
		return
	}
	if err := w.watchLeases(ctx, p); err != nil {
		p.Queue.ShutDown() // as Run would have done
		w.Log.Error(err, "The Leases in the cluster cannot be watched", "reason", reason.Unreachable)
		return
	}
	defer w.watchReaders(ctx, p.Readers)()
	w.mu.Lock()
	w.publisher = p
	w.mu.Unlock()

	var keepers sync.WaitGroup
	keepers.Go(func() { w.keep(ctx) })
	keepers.Go(func() { wait.UntilWithContext(ctx, w.observe, keepEvery) })
	keepers.Go(func() { w.required.run(ctx) })
	p.Run(ctx)
	keepers.Wait()
}

func (w *Worker) newPublisher(key seal.Key) *publish.Publisher {
	m := w.Member
	return publish.New(publish.Options{
		Client:     w.Client.CoordinationV1(),
		Fleet:      m.Fleet,
		Cluster:    m.Identity(),
		ClusterUID: m.UID,
		Hub:        w.HubID,
		Key:        key,
		Clock:      w.Clock,
		MayWrite:   func(now lease.Reading) bool { return w.Hub.MayWrite(m.Fleet, now) },
		Promises:   w.Promises,
		Report:     func(write bool, sent lease.Reading, err error) { Report(w.Observe, write, sent, w.Clock.Now(), err) },
		Changed:    func(namespace string) { w.Hub.Changed(m.Key, namespace) },
		TellOfReader: func(registration types.NamespacedName, why reason.Reason, message string) {
			w.Hub.RecordReader(m.Key, registration, why, message)
		},
		TooLarge: transport.ErrTooLarge,
		Queue:    workqueue.NewTypedDelayingQueue[types.NamespacedName](),
		Log:      w.Log,
	})
}

// Report records a request with the member's health. It ignores every answer but a success: an error may concern a
// single namespace, as where a webhook fails. The probe covers the member as a whole.
func Report(observe func(health.Observation), write bool, sent, now lease.Reading, err error) {
	o := health.Observation{Kind: health.Read, At: sent, Took: now.Boot - sent.Boot}
	if write {
		o.Kind = health.Write
	}
	var answer apierrors.APIStatus
	switch {
	case err == nil, apierrors.IsNotFound(err):
		o.OK = true
	case errors.As(err, &answer):
		return
	default:
		o.Silent = errors.Is(err, context.DeadlineExceeded)
		o.Reason, o.Message = reason.Unreachable, "a request for a Lease got no answer: "+bare(err)
	}
	observe(o)
}

// bare strips the URL of its request from an error. The URL's host is a placeholder without meaning.
func bare(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err.Error()
	}
	return err.Error()
}

// watchLeases passes the hub's Leases in the member's cache to the publisher. The cache ends with the engagement.
func (w *Worker) watchLeases(ctx context.Context, p *publish.Publisher) error {
	informer, err := w.Cluster.GetCache().GetInformer(ctx, &coordinationv1.Lease{})
	if err == nil {
		_, err = informer.AddEventHandler(leaseEvents(p))
	}
	return err
}

// leaseEvents passes the events of Leases to the publisher.
func leaseEvents(p *publish.Publisher) toolscache.ResourceEventHandler {
	seen := func(o any) {
		if l, ok := o.(*coordinationv1.Lease); ok {
			p.Observe(l)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    seen,
		UpdateFunc: func(_, o any) { seen(o) },
		DeleteFunc: func(o any) {
			if key, err := toolscache.DeletionHandlingObjectToName(o); err == nil {
				p.ObserveGone(types.NamespacedName(key))
			}
		},
	}
}
