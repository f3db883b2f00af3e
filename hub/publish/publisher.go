package publish

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/seal"
)

// workers is how many requests a Publisher has in flight at most.
const workers = 16

// answeredWithin is how recently the member must have answered for a renewal without a preceding read.
const answeredWithin = 200 * time.Millisecond

// Options configure a Publisher. All fields are required.
type Options struct {
	// Client reaches the Leases of the member. It must not limit its own rate, and its requests must end with their
	// context.
	Client coordinationclient.LeasesGetter
	// Fleet is the hub namespace of the member, Cluster its identity, and ClusterUID its pinned UID. Hub is the
	// mark of this hub, and Key the key of its seal.
	Fleet, Cluster, ClusterUID, Hub string
	Key                             seal.Key
	Clock                           lease.Clock
	// MayWrite reports whether the tenure has the right to write at a reading.
	MayWrite func(lease.Reading) bool
	// Promises records every promise before it is sent.
	Promises *Promises
	// Report is called after every request with its kind, the reading when it was sent, and its error. It must not
	// block.
	Report func(write bool, sent lease.Reading, err error)
	// Changed is called when the status of a Lease in the namespace changes, or when a hub's Lease without an
	// assignment is seen. It must not block.
	Changed func(namespace string)
	// TellOfReader is called when a registration has made a handover slow. It is called with the empty name when
	// all registrations together have. It must not block.
	TellOfReader func(registration types.NamespacedName, why reason.Reason, message string)
	// TooLarge is wrapped by the error of a request whose answer is larger than the registrations that are kept.
	TooLarge error
	// Queue holds the names of Leases that have something to do. Run shuts it down.
	Queue workqueue.TypedDelayingInterface[types.NamespacedName]
	Log   logr.Logger
}

// Publisher writes the Leases of one member. Use New, then Run.
type Publisher struct {
	Options
	Readers    *Readers // of the member
	silence    silence
	listWithin time.Duration // how long the next try of ReadAll may take

	mu           sync.Mutex // guards what follows; never held across I/O
	syncers      syncers
	initial      Initial
	relinquished bool // see Relinquish
}

// New returns a Publisher without assignments.
func New(o Options) *Publisher {
	return &Publisher{
		Options:    o,
		Readers:    &Readers{Options: o, acks: newAcks()},
		silence:    silence{Options: o, silent: true, isParked: sets.New[types.NamespacedName]()},
		syncers:    syncers{},
		listWithin: firstList,
	}
}

// Run reads every Lease of the member, then works until ctx ends. When it returns, no request is in flight.
func (p *Publisher) Run(ctx context.Context) {
	context.AfterFunc(ctx, p.Queue.ShutDown)
	if err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		return p.ReadAll(ctx), nil
	}); err != nil {
		return
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				key, shutdown := p.Queue.Get()
				if shutdown {
					return
				}
				p.Work(ctx, key)
				p.Queue.Done(key)
			}
		})
	}
	wg.Wait()
}

// Assign sets the content that a Lease must have from now on. After it returns, nothing is promised by an earlier
// assignment.
func (p *Publisher) Assign(key types.NamespacedName, a assign.Assignment, t Timings) {
	p.mu.Lock()
	switch l := p.syncers.find(key); {
	case l == nil && a.Role == assign.Hold, // there is nothing to hold, as in each cluster without the namespace
		l != nil && a.Role == assign.Absent && l.want.Role == assign.Absent && l.timings == t: // there may be thousands
		p.mu.Unlock()
		return
	}
	l := p.syncer(key)
	l.assign(a, t)
	revokes := l.want.Role == assign.Revoke
	p.Queue.Add(key)
	p.mu.Unlock()
	p.Readers.assigned(key, revokes, t.Skew)
}

// StopRenewing ends all renewals in a namespace, whatever the name of the Lease. After it returns, this member's
// part of Promises is final.
func (p *Publisher) StopRenewing(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.syncers.in(namespace) {
		if l.want.Role == assign.Lead {
			l.want.Role = assign.Hold
		}
	}
}

// SyncStatus returns the status of a Lease.
func (p *Publisher) SyncStatus(key types.NamespacedName) (s SyncStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.syncers.find(key); l != nil {
		s = l.status
		s.Released = p.Readers.released(key)
	}
	return s
}

// Work runs the syncer of one Lease until it has nothing to do. Run calls it for each key of the queue, and never
// concurrently for the same Lease.
func (p *Publisher) Work(ctx context.Context, key types.NamespacedName) {
	switch key {
	case listReadersKey:
		sent := p.Clock.Now()
		if p.Readers.list(ctx) {
			p.silence.noteOutcome(false, sent, nil)
		}
		return
	case removeExpiredKey:
		p.Readers.removeExpired(ctx)
		return
	}
	for goesOn := true; goesOn && ctx.Err() == nil; {
		s, timeout := p.nextStep(key)
		if s.action == idle {
			break
		}
		sent := p.Clock.Now()
		obj, err := p.send(ctx, key, s, timeout)
		if err != nil && ctx.Err() != nil {
			return // ended by this hub: that shows nothing about the member
		}
		p.silence.noteOutcome(s.action != read, sent, err)
		goesOn = p.handleAnswer(key, s, obj, err)
	}
	p.reportChange(key)
}
