package controller

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
	mcsource "sigs.k8s.io/multicluster-runtime/pkg/source"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/tenure"
)

// decisionsAtOnce is how many namespaces are decided on concurrently.
const decisionsAtOnce = 16

// Options configure a Controller. All fields but Measure are required.
type Options struct {
	Fleet  *fleet.Provider
	Tenure *tenure.Tenure
	// Elected asks the hub's API server whether this replica holds the election now. It returns false also if the
	// API server does not answer.
	Elected func(context.Context) bool
	Seals   *seal.Store
	Clock   lease.Clock
	// HubID is the mark of this installation (see seal.Mark). It is on all records and Leases that the hub writes.
	HubID string
	// OwnNamespace is the namespace that the hub runs in. A member namespace of that name is never managed.
	OwnNamespace string
	// Measure wraps the client for Leases in a member, if it is set, so that it sees every request.
	Measure func(fleet.Key, coordinationclient.LeasesGetter) coordinationclient.LeasesGetter
}

// Controller decides who leads each managed namespace. Make it with New and add it to
// a manager with SetupWithManager.
type Controller struct {
	Options
	client   client.Client // reads from the cache
	live     client.Reader // reads records from the API server
	events   events.EventRecorder
	promises *publish.Promises
	source   memberSource
	writer   func(fleet.Member) kubernetes.Interface // reaches a member

	records  queue
	policies queue

	useless atomic.Pointer[limits] // beyond them a wrong clock of this hub lets no cluster lead

	mu              sync.Mutex // guards what follows; never held across I/O
	running         context.Context
	wg              sync.WaitGroup
	namespaces      map[types.NamespacedName]*namespaceState
	versions        map[types.NamespacedName]policyVersions
	owners          map[types.NamespacedName]string // the policy that each record names, as a watch shows it
	lone            map[types.NamespacedName]*lone  // by policy, since a namespace of it was first counted
	members         map[fleet.Key]*memberState
	standBackEvents map[types.NamespacedName]lease.Reading // by policy: when the last event was recorded
	written         time.Duration                          // boot reading of this tenure's last write of any record
	lowerings       map[string]lowering                    // by fleet
	sealRead        map[string]lease.Reading               // by fleet: from before its seal was last read
	brokenSeals     map[useOfSeal]string                   // why a seal cannot be used
}

// claim names the policies that select a namespace, and the one that owns it.
type claim struct {
	owner  string
	losers string // comma-separated
}

// New returns a Controller.
func New(o Options) *Controller {
	return &Controller{
		Options:         o,
		promises:        publish.NewPromises(),
		source:          fleetSource{o.Fleet},
		writer:          fleet.Member.Writer,
		namespaces:      map[types.NamespacedName]*namespaceState{},
		versions:        map[types.NamespacedName]policyVersions{},
		owners:          map[types.NamespacedName]string{},
		lone:            map[types.NamespacedName]*lone{},
		members:         map[fleet.Key]*memberState{},
		standBackEvents: map[types.NamespacedName]lease.Reading{},
		lowerings:       map[string]lowering{},
		sealRead:        map[string]lease.Reading{},
		brokenSeals:     map[useOfSeal]string{},
	}
}

// queue is the work queue of a controller. It is empty until the controller has started.
type queue struct {
	mu sync.Mutex
	q  workqueue.TypedRateLimitingInterface[mcreconcile.Request]
}

// source takes the controller's queue when the controller starts.
func (w *queue) source() source.TypedSource[mcreconcile.Request] {
	return source.TypedFunc[mcreconcile.Request](func(_ context.Context, q workqueue.TypedRateLimitingInterface[mcreconcile.Request]) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.q = q
		return nil
	})
}

// add enqueues a decision. Before the controller has started this does nothing: its first lists enqueue everything.
func (w *queue) add(key types.NamespacedName) { w.addIn(0, key) }

// addIn is add after a delay.
func (w *queue) addIn(wait time.Duration, key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.q != nil {
		w.q.AddAfter(mcreconcile.Request{Request: reconcile.Request{NamespacedName: key}}, wait)
	}
}

// SetupWithManager adds the controller to a manager.
func (c *Controller) SetupWithManager(mgr mcmanager.Manager) error {
	local := mgr.GetLocalManager()
	c.client, c.live = local.GetClient(), local.GetAPIReader()
	c.events = local.GetEventRecorder("leasecast-hub")
	c.Tenure.RefuseIf(c.contradicted)

	decisions := controllerOptions(local, c.reconcileNamespace, decisionsAtOnce)
	decisions.NewQueue = newFairQueue(c.laneOf)
	records, err := mccontroller.New("namespaceleader", mgr, decisions)
	if err != nil {
		return err
	}
	policies, err := mccontroller.New("leadershippolicy", mgr, controllerOptions(local, c.reconcilePolicy, 1))
	if err != nil {
		return err
	}
	for _, err := range []error{
		records.Watch(c.records.source()),
		records.Watch(source.TypedKind(local.GetCache(), &v1alpha1.NamespaceLeader{}, c.recordEvents())),
		records.Watch(source.TypedKind(local.GetCache(), &v1alpha1.LeadershipPolicy{}, handler.TypedEnqueueRequestsFromMapFunc(c.namespacesOfPolicy))),
		records.MultiClusterWatch(mcsource.Kind(&corev1.Namespace{}, c.mcNamespaces)),
		policies.Watch(c.policies.source()),
		policies.Watch(source.TypedKind(local.GetCache(), &v1alpha1.LeadershipPolicy{}, requestFor[*v1alpha1.LeadershipPolicy]())),
		mgr.Add(c),
		local.Add(clockWatch{c}),
	} {
		if err != nil {
			return err
		}
	}
	unsubscribe := c.Fleet.Subscribe(c.memberChanged)
	_ = unsubscribe // subscribed as long as the process lives
	return nil
}

// controllerOptions fills in what multicluster-runtime leaves empty: the manager's defaults, its logger among them.
//
// It uses client-go's queues. The priority queue of controller-runtime v0.24.1 can block forever when it is shut
// down with work in it (controller-runtime issue 3538). A hub that does not stop gives up its election half a
// minute late.
func controllerOptions(mgr manager.Manager, f reconcile.TypedFunc[mcreconcile.Request], concurrent int) controller.TypedOptions[mcreconcile.Request] {
	o := controller.TypedOptions[mcreconcile.Request]{
		MaxConcurrentReconciles: concurrent,
		Reconciler:              withoutErrorsOfStopping(f),
		SkipNameValidation:      ptr.To(true), // a process may hold several hubs, as tests do
		UsePriorityQueue:        ptr.To(false),
		Logger:                  mgr.GetLogger(),
	}
	o.DefaultFromConfig(mgr.GetControllerOptions())
	return o
}

// withoutErrorsOfStopping drops the errors of a hub that is stopping. It also drops a result that comes with an
// error, which the queue would ignore with a warning.
func withoutErrorsOfStopping(f reconcile.TypedFunc[mcreconcile.Request]) reconcile.TypedFunc[mcreconcile.Request] {
	return func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
		result, err := f(ctx, req)
		switch {
		case err == nil:
			return result, nil
		case ctx.Err() != nil:
			return reconcile.Result{}, nil
		default:
			return reconcile.Result{}, err
		}
	}
}

// Start runs the work for members until ctx ends. It returns when all of that work has stopped, so that nothing is
// renewed any more when the hub gives up its election.
func (c *Controller) Start(ctx context.Context) error {
	select {
	case <-c.Fleet.Synced():
	case <-ctx.Done():
		return nil
	}
	c.mu.Lock()
	c.running = ctx
	for key, s := range c.members {
		if s.engaged.ctx != nil {
			c.begin(key)
		}
	}
	c.mu.Unlock()
	c.recordProblems()
	<-ctx.Done()
	c.mu.Lock()
	c.running = nil // no worker begins any more
	c.mu.Unlock()
	c.wg.Wait()
	return nil
}

// recordEvents enqueues a record that a client other than this tenure has written or deleted.
func (c *Controller) recordEvents() handler.TypedEventHandler[*v1alpha1.NamespaceLeader, mcreconcile.Request] {
	type queue = workqueue.TypedRateLimitingInterface[mcreconcile.Request]
	show := func(o *v1alpha1.NamespaceLeader, version string, q queue) {
		c.noteOwner(o, version)
		if key := client.ObjectKeyFromObject(o); c.recordShown(key, version) {
			q.Add(mcreconcile.Request{Request: reconcile.Request{NamespacedName: key}})
		}
	}
	return handler.TypedFuncs[*v1alpha1.NamespaceLeader, mcreconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*v1alpha1.NamespaceLeader], q queue) {
			show(e.Object, e.Object.ResourceVersion, q)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*v1alpha1.NamespaceLeader], q queue) {
			show(e.ObjectNew, e.ObjectNew.ResourceVersion, q)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*v1alpha1.NamespaceLeader], q queue) {
			show(e.Object, "", q)
		},
	}
}

// requestFor enqueues the object itself.
func requestFor[T client.Object]() handler.TypedEventHandler[T, mcreconcile.Request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o T) []mcreconcile.Request {
		return []mcreconcile.Request{{Request: reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}}}
	})
}

// namespacesOfPolicy enqueues every namespace in the fleet of a policy. The policy may select it, may have selected
// it before, or may take it from another policy.
func (c *Controller) namespacesOfPolicy(ctx context.Context, p *v1alpha1.LeadershipPolicy) []mcreconcile.Request {
	var rs []mcreconcile.Request
	for _, key := range c.namespacesOf(ctx, p.Namespace) {
		rs = append(rs, mcreconcile.Request{Request: reconcile.Request{NamespacedName: key}})
	}
	return rs
}

var _ mcmanager.Runnable = (*Controller)(nil)
