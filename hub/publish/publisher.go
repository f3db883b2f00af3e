package publish

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// workers is how many requests a Publisher has under way at once.
const workers = 16

// answeredWithin is how long ago a member must have answered something for a stamp to
// be drawn without a read that goes first.
const answeredWithin = 200 * time.Millisecond

// Options configure a Publisher. All fields are required.
type Options struct {
	// Client reaches the Leases of the member. It must not limit its own rate, and its
	// requests must end when their context does.
	Client coordinationclient.LeasesGetter
	// Fleet is the hub namespace of the member, Cluster its identity, ClusterUID the UID
	// that was pinned for it, Hub the name of this hub, Key the key of its seal.
	Fleet, Cluster, ClusterUID, Hub string
	Key                             lease.Key
	Clock                           lease.Clock
	// MayWrite says whether the tenure still has the right to write at a reading.
	MayWrite func(lease.Reading) bool
	// Promises gets every stamp before it is sent.
	Promises *Promises
	// Report hears of every request that was sent: whether it was a write, when it was
	// sent, and its error. It must not block.
	Report func(write bool, sent lease.Reading, err error)
	// Changed hears that the facts of a namespace are not what they were, or that a copy
	// was seen for which there is no assignment. It must not block.
	Changed func(namespace string)
	// Queue brings the names of copies back that have something to do. Run shuts it down.
	Queue workqueue.TypedDelayingInterface[types.NamespacedName]
	Log   logr.Logger
}

// Publisher writes the copies of one member. Use New, then Run.
type Publisher struct {
	Options

	mu           sync.Mutex // guards what follows; never held across I/O
	syncers      map[types.NamespacedName]*leaseSyncer
	initial      Initial
	listWithin   time.Duration // the time that the next try to read all has
	lastAnswer   time.Duration // boot reading
	hasAnswered  bool
	silent       bool                   // the last request got no answer
	prober       *types.NamespacedName  // the one syncer that asks until that is over
	parked       []types.NamespacedName // the syncers that wait for it
	history      history
	acks         acks
	listPause    time.Duration // until readers are asked again
	skew         time.Duration // the largest ε of any copy
	relinquished bool          // observe Depart
}

// New returns a Publisher without assignments.
func New(o Options) *Publisher {
	return &Publisher{
		Options:    o,
		syncers:    map[types.NamespacedName]*leaseSyncer{},
		listWithin: firstList,
		acks:       newAcks(),
	}
}

// Run reads every copy of the member, then works until ctx ends. When it returns,
// nothing is under way any more.
func (p *Publisher) Run(ctx context.Context) {
	defer p.Queue.ShutDown()
	defer context.AfterFunc(ctx, p.Queue.ShutDown)()
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

// Assign says what a copy has to be from now on. After it returns, no stamp is drawn
// for an earlier assignment.
func (p *Publisher) Assign(key types.NamespacedName, a lease.Assignment, t Timings) {
	p.mu.Lock()
	l := p.syncer(key)
	l.assign(a, t)
	p.skew = max(p.skew, t.Skew)
	var silent []string
	if l.want.Role != lease.Revoke {
		silent = p.acks.cancel(key)
	}
	p.Queue.Add(key)
	p.mu.Unlock()
	p.logSilent(key, silent)
}

// StopRenewing takes away the right to stamp in a namespace, whatever the name of the copy.
// After it returns, what the Ledger says of this member is final.
func (p *Publisher) StopRenewing(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, l := range p.syncers {
		if key.Namespace == namespace && l.want.Role == lease.Lead {
			l.want.Role = lease.Hold
		}
	}
}

// SyncStatus returns what is known of a copy.
func (p *Publisher) SyncStatus(key types.NamespacedName) SyncStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l, ok := p.syncers[key]; ok {
		return l.status
	}
	return SyncStatus{}
}

// syncer returns the syncer of a copy, made if need be. The caller holds mu.
func (p *Publisher) syncer(key types.NamespacedName) *leaseSyncer {
	l, ok := p.syncers[key]
	if !ok {
		l = &leaseSyncer{
			namespace: key.Namespace, name: key.Name,
			self:         self{cluster: p.Cluster, uid: p.ClusterUID, hub: p.Hub, key: p.Key},
			relinquished: p.relinquished,
		}
		p.syncers[key] = l
	}
	return l
}

// Work runs the syncer of one copy until it has nothing to do. Run calls it for what the
// queue brings, never twice at once for the same copy.
func (p *Publisher) Work(ctx context.Context, key types.NamespacedName) {
	switch key {
	case listReadersKey:
		p.listReaders(ctx)
		return
	case removeExpiredKey:
		p.removeExpired(ctx)
		return
	}
	for ctx.Err() == nil {
		s, timeout := p.nextStep(key)
		if s.action == idle {
			return
		}
		sent := p.Clock.Now()
		obj, err := p.send(ctx, key, s, timeout)
		if err != nil && ctx.Err() != nil {
			return // cut off by this hub itself: that says nothing of the member
		}
		p.noteOutcome(s.action != read, sent, err)
		if !p.handleAnswer(key, s, obj, err) {
			return
		}
	}
}

// nextStep asks a syncer for its next request. One reading of the clocks decides whether
// the tenure still holds and is the stamp, and the stamp is in the ledger before the
// request is sent.
//
// While the member is silent, one syncer asks whether that is over and the others are
// parked, so that silence costs one request at a time.
func (p *Publisher) nextStep(key types.NamespacedName) (step, time.Duration) {
	p.mu.Lock()
	l := p.syncer(key)
	if p.silent && p.prober != nil && *p.prober != key {
		p.park(key, l)
		p.mu.Unlock()
		return step{}, 0
	}
	now := p.Clock.Now()
	fresh := p.hasAnswered && !p.silent && now.Boot-p.lastAnswer <= answeredWithin
	s := l.next(now, p.MayWrite(now), fresh)
	s.newestVersion = p.history.newestVersion
	if s.promised > 0 {
		p.Promises.add(types.NamespacedName{Namespace: p.Fleet, Name: key.Namespace}, l.want.Term.Epoch, s.reading, s.promised, l.timings.Skew)
	}
	if s.after > 0 {
		p.Queue.AddAfter(key, s.after)
	}
	if p.silent {
		p.chooseProber(key, s.action != idle)
	}
	timeout := l.timings.Timeout
	news := s.action == idle && l.statusChanged()
	p.mu.Unlock()
	if news {
		p.Changed(key.Namespace)
	}
	return s, timeout
}

// handleAnswer hands an answer to its syncer, and reports whether to go on with it at once.
func (p *Publisher) handleAnswer(key types.NamespacedName, s step, obj *coordinationv1.Lease, err error) bool {
	p.mu.Lock()
	l := p.syncer(key)
	pause := l.handleAnswer(s, obj, err)
	back := false
	switch outcomeOf(err) {
	case answered:
		back = p.noteState(l, s, obj)
		p.askReaders(key, l, s)
	case ambiguous:
		p.noteUnanswered(l, s)
	}
	if pause > 0 {
		p.Queue.AddAfter(key, pause)
	}
	news := pause > 0 && l.statusChanged()
	p.mu.Unlock()
	p.logOlderState(back)
	if news {
		p.Changed(key.Namespace)
	}
	return pause == 0
}

// send does the I/O of a step, within the timeout.
func (p *Publisher) send(ctx context.Context, key types.NamespacedName, s step, timeout time.Duration) (*coordinationv1.Lease, error) {
	if timeout <= 0 {
		timeout = listTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	api := p.Client.Leases(key.Namespace)
	switch s.action {
	case read:
		return api.Get(ctx, key.Name, metav1.GetOptions{})
	case create:
		return api.Create(ctx, s.lease, metav1.CreateOptions{FieldManager: v1alpha1.ManagedByValue})
	case update:
		return api.Update(ctx, s.lease, metav1.UpdateOptions{FieldManager: v1alpha1.ManagedByValue})
	case remove:
		uid, version := s.lease.UID, s.lease.ResourceVersion
		return nil, api.Delete(ctx, key.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		})
	default:
		return nil, fmt.Errorf("lease %s: no request for action %d", key, s.action)
	}
}
