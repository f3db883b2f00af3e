package follow

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	ctrlsource "sigs.k8s.io/controller-runtime/pkg/source"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
)

const (
	// passesAtOnce is how many sets are worked on concurrently, and passesInMember how many of them in one member. They
	// mostly wait for members, but each may hold 20 MiB of manifests.
	passesAtOnce, passesInMember = 16, 2
	// busyPause is the pause before a set is tried again in a member where others are worked on.
	busyPause = 200 * time.Millisecond
	// gather delays work on what others have changed, so that several changes are one pass.
	gather = 300 * time.Millisecond
	// listTimeout bounds a list from a cache.
	listTimeout = 5 * time.Second
	// maxAnnotation bounds an annotation of a set that is read, in bytes.
	maxAnnotation = 16 << 10
	// repairs is how many objects of a set in a member are repaired at once, and repairEvery the time between two of them
	// in the long run: what others change again and again must not keep the hub busy.
	repairs, repairEvery = 10, 10 * time.Second
)

// Options configure a Controller. All fields are required.
type Options struct {
	Fleet Fleet
	// Place returns who leads a namespace of a fleet, and which clusters its policy covers.
	Place func(ctx context.Context, namespace types.NamespacedName) (Place, error)
	// MayWrite reports whether this replica may write for a fleet now.
	MayWrite func(fleetName string) bool
	// PolicyChanged has Place see the present policies of a fleet.
	PolicyChanged func(fleetName string)
	// Clock measures intervals.
	Clock lease.Clock
	// Metadata reads the hub's API server.
	Metadata metadata.Interface
	// Queue makes the controller's options.
	Queue func(reconcile.TypedFunc[mcreconcile.Request], int) controller.TypedOptions[mcreconcile.Request]
}

// Fleet is the part of [fleet.Provider] that a Controller uses.
type Fleet interface {
	Member(key fleet.Key) (fleet.Member, bool)
	Members(fleetName string) []fleet.Member
}

// Place is where the objects of a set belong.
type Place struct {
	// Managed: there is a record of the namespace, and its policy.
	Managed  bool
	Leader   string // the Cluster that leads, or empty
	Epoch    int64
	Clusters map[string]bool
	// undecided: it may be managed, but this replica has not decided on it yet.
	undecided bool
}

// role returns the role of a cluster, or nothing if the policy does not cover it.
func (p Place) role(cluster string) v1alpha1.ClusterRole {
	switch {
	case !p.Clusters[cluster]:
		return ""
	case cluster == p.Leader:
		return v1alpha1.RoleLeader
	default:
		return v1alpha1.RoleFollowers
	}
}

// Controller keeps the objects of sets in place. Make it with New and add it to a manager with SetupWithManager.
type Controller struct {
	Options
	*requests
	sources *sources
	work    sync.WaitGroup // watches
	stop    context.CancelFunc

	mu      sync.Mutex // guards what follows; never held across I/O
	members map[fleet.Key]*member
	sets    map[types.NamespacedName]*setState
	giving  map[types.NamespacedName]*giving
	decided map[types.NamespacedName]bool // on which namespaces this replica has decided, and no other hub
	seenAs  map[fleet.Key]string          // what sets depend on of each member
}

// member is one that the manager has engaged.
type member struct {
	ended     context.Context
	inventory *inventory
	passes    chan struct{} // holds those under way
}

// setState is what is known of a set.
type setState struct {
	identity string
	last     *giving // the last planned change that went on
	late     string  // why it has not waited for the set, or empty
	in       map[string]*setIn
}

// setIn is a set in one cluster. Only the request for the set there uses what follows failed.
type setIn struct {
	result  reached
	clean   bool    // the set has nothing there any more
	gaveWay *giving // the planned change for which the cluster has given way
	why     string  // why it has not
	failed  int     // how many passes in a row had a problem
	at      *member // which has what is applied
	applied map[id]appliedObject
	full    time.Duration // when all was applied last; 0: not since applied was cleared
	repairs *rate.Limiter
}

// reached is what a cluster has of a set.
type reached struct {
	v1alpha1.ClusterResources
	Generation int64 // of the set, in the last pass
}

// New returns a Controller.
func New(o Options) *Controller {
	running, stop := context.WithCancel(context.Background())
	c := &Controller{
		Options: o, requests: &requests{fleet: o.Fleet, running: running}, members: map[fleet.Key]*member{},
		sets: map[types.NamespacedName]*setState{}, giving: map[types.NamespacedName]*giving{},
		decided: map[types.NamespacedName]bool{}, seenAs: map[fleet.Key]string{},
	}
	c.stop = stop
	c.sources = &sources{
		requests: c.requests, metadata: o.Metadata, work: &c.work,
		watching: map[sourcesOf]context.CancelFunc{},
	}
	return c
}

// SetupWithManager adds the controller to a manager.
func (c *Controller) SetupWithManager(mgr mcmanager.Manager) error {
	local := mgr.GetLocalManager()
	c.client, c.sources.live = local.GetClient(), local.GetAPIReader()
	sets, err := mccontroller.New("leaderresourceset", mgr, c.Queue(c.reconcile, passesAtOnce))
	if err != nil {
		return err
	}
	from := local.GetCache()
	for _, err := range []error{
		sets.Watch(ctrlsource.TypedFunc[mcreconcile.Request](c.takeQueue)),
		sets.Watch(specsOf(from, &v1alpha1.LeaderResourceSet{}, func(o *v1alpha1.LeaderResourceSet) {
			c.changed(client.ObjectKeyFromObject(o), "")
		})),
		sets.Watch(specsOf(from, &v1alpha1.NamespaceLeader{}, func(o *v1alpha1.NamespaceLeader) {
			c.eachSet(o.Namespace, o.Name, "")
		})),
		sets.Watch(specsOf(from, &v1alpha1.LeadershipPolicy{}, func(o *v1alpha1.LeadershipPolicy) {
			c.PolicyChanged(o.Namespace)
			c.eachSet(o.Namespace, "", "")
		})),
		mgr.Add(c),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// specsOf is a source that calls changed when an object of a kind comes, goes, or has another generation: its spec was
// edited, or its deletion has begun. After a gap of the watch it may have been created again.
func specsOf[T client.Object](
	from cache.Cache, kind T, changed func(T),
) ctrlsource.TypedSyncingSource[mcreconcile.Request] {
	return ctrlsource.TypedKind(from, kind, handler.TypedFuncs[T, mcreconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[T], _ queue) { changed(e.Object) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[T], _ queue) { changed(e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[T], _ queue) { changed(e.Object) },
	}, specChanged[T]())
}

func specChanged[T client.Object]() predicate.TypedPredicate[T] {
	return predicate.Or(predicate.TypedGenerationChangedPredicate[T]{}, predicate.TypedFuncs[T]{
		UpdateFunc: func(e event.TypedUpdateEvent[T]) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() },
	})
}

// MemberChanged enqueues the sets in a member if something has changed on which they depend.
func (c *Controller) MemberChanged(key fleet.Key) {
	m, known := c.Fleet.Member(key)
	is := fmt.Sprint(known, m.Gone, m.Deleting, m.Paused, m.DeleteForMove, m.IsFenced(), m.Connected, m.PriorityReason,
		m.Unreachable, fleet.Selectable(m.Labels)) // maps are printed in order
	c.mu.Lock()
	same := c.seenAs[key] == is
	if c.seenAs[key] = is; !known {
		delete(c.seenAs, key)
	}
	c.mu.Unlock()
	if !same {
		c.eachSet(key.Fleet, "", key.Name)
	}
}

// Decided notes whether this replica has decided on a namespace, and no other hub has.
func (c *Controller) Decided(namespace types.NamespacedName, is bool) {
	c.mu.Lock()
	was, known := c.decided[namespace]
	c.decided[namespace] = is
	c.mu.Unlock()
	if is != was || !known {
		c.eachSet(namespace.Namespace, namespace.Name, "")
	}
}

// Forget drops what is known of a namespace that has no record any more. One that comes back has to be decided on.
func (c *Controller) Forget(namespace types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.decided, namespace)
	delete(c.giving, namespace)
}

// Slim drops from a set what no cache needs. Annotations that others write may be large.
func Slim(o any) (any, error) {
	if set, ok := o.(*v1alpha1.LeaderResourceSet); ok {
		set.ManagedFields = nil
		maps.DeleteFunc(set.Annotations, func(key, value string) bool {
			return key != v1alpha1.KindsAnnotation && key != deleteForMove || len(value) > maxAnnotation
		})
	}
	return o, nil
}

// Start ends what was begun when ctx ends.
func (c *Controller) Start(ctx context.Context) error {
	<-ctx.Done()
	c.stop()
	c.work.Wait()
	return nil
}

// Engage implements multicluster.Aware.
func (c *Controller) Engage(ctx context.Context, name multicluster.ClusterName, _ cluster.Cluster) error {
	key, _ := fleet.ParseKey(name) // the fleet has made it
	now, ok := c.Fleet.Member(key)
	if !ok {
		return nil
	}
	ctx, end := context.WithCancel(ctx) // the member stays engaged until this controller has stopped
	stopped := context.AfterFunc(c.running, end)
	m := &member{ended: ctx, passes: make(chan struct{}, passesInMember)}
	m.inventory = &inventory{
		tenants: now.Tenants, watches: &c.work, of: map[schema.GroupVersionKind]*kindState{},
		seen: func(identity string) { c.seen(key, identity) },
	}
	c.mu.Lock()
	c.members[key] = m
	c.mu.Unlock()
	context.AfterFunc(ctx, func() {
		stopped()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.members[key] == m {
			delete(c.members, key)
		}
	})
	c.eachSet(key.Fleet, "", key.Name)
	return nil
}

// seen enqueues the set with an identity in a member, or those that have failed there if it is empty.
func (c *Controller) seen(key fleet.Key, identity string) {
	c.mu.Lock()
	var found []types.NamespacedName
	for name, s := range c.sets {
		in := s.in[key.Name]
		if name.Namespace == key.Fleet && (s.identity == identity || identity == "" && in != nil && in.failed > 0) {
			found = append(found, name)
		}
	}
	c.mu.Unlock()
	for _, name := range found {
		c.add(gather, name, key.Name)
	}
}

// state returns what is known of a set, and creates it if necessary: from the status, because what an earlier replica
// has reached stands. The caller holds the lock.
func (c *Controller) state(set *v1alpha1.LeaderResourceSet) *setState {
	name := client.ObjectKeyFromObject(set)
	s := c.sets[name]
	if s == nil {
		s = &setState{identity: identity(set.Namespace, set.Name), in: map[string]*setIn{}}
		c.sets[name] = s
		ready := ptr.Deref(meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionReady), metav1.Condition{})
		if ready.Status != metav1.ConditionTrue {
			ready.ObservedGeneration = 0 // not all clusters had it
		}
		for _, shown := range set.Status.Clusters {
			s.inCluster(shown.Name).result = reached{shown, ready.ObservedGeneration}
		}
	}
	return s
}

// inCluster is the same of a set in a cluster. The caller holds the lock.
func (s *setState) inCluster(name string) *setIn {
	in := s.in[name]
	if in == nil {
		in = &setIn{
			result: reached{ClusterResources: v1alpha1.ClusterResources{Name: name}}, why: notReached,
			applied: map[id]appliedObject{},
			repairs: rate.NewLimiter(rate.Every(repairEvery), repairs),
		}
		s.in[name] = in
	}
	return in
}

// forget drops what is known of a set, and ends the watches in members, and of a fleet's sources, that no set needs.
func (c *Controller) forget(set types.NamespacedName) {
	c.mu.Lock()
	delete(c.sets, set)
	members := maps.Clone(c.members)
	c.mu.Unlock()
	used := map[schema.GroupVersionKind]bool{}
	sets, err := c.setsOf(set.Namespace)
	if err != nil {
		return
	}
	for _, is := range sets {
		maps.Copy(used, readKinds(is.Annotations[v1alpha1.KindsAnnotation]))
	}
	for key, m := range members {
		if key.Fleet == set.Namespace {
			m.inventory.keep(used)
		}
	}
	c.sources.end(set.Namespace)
}
