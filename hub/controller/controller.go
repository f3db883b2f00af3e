package controller

import (
	"context"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcsource "sigs.k8s.io/multicluster-runtime/pkg/source"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/fairqueue"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/ledger"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/tenure"
)

// decisionsAtOnce is how many namespaces are decided on concurrently.
const decisionsAtOnce = 16

// Options configure a Controller. All fields are required.
type Options struct {
	Fleet  *fleet.Provider
	Tenure *tenure.Tenure
	Seals  *seal.Store
	Clock  lease.Clock
	// HubID is the mark of this installation (see seal.Mark). It is on all records and Leases that the hub writes.
	HubID string
	// OwnNamespace is the namespace that the hub runs in. A member namespace of that name is never managed.
	OwnNamespace string
	// Metadata reads the hub's API server.
	Metadata metadata.Interface
}

// Controller decides who leads each managed namespace. Make it with New and add it to
// a manager with SetupWithManager. Each part has a lock of its own; none is held across I/O.
type Controller struct {
	*hub
	members   *members
	policies  *policies
	lone      *loneNamespaces
	sources   *sources
	seals     *seals
	statuses  *policyStatuses
	hubClock  *hubClock
	moves     *moves
	cases     caseRequests
	following *following
	// large spaces the decisions on large records without a policy. Each keeps the hub's API server busy for a while.
	large *rate.Limiter
}

// New returns a Controller.
func New(o Options) *Controller {
	h := &hub{
		Options: ledger.Options{Tenure: o.Tenure, Clock: o.Clock, HubID: o.HubID},
		Fleet:   o.Fleet, Seals: o.Seals, OwnNamespace: o.OwnNamespace,
		promises: publish.NewPromises(), source: fleetSource{o.Fleet}, writer: fleet.Member.Writer,
	}
	h.ledger = ledger.New(&h.Options)
	c := &Controller{
		hub: h, hubClock: &hubClock{hub: h}, large: rate.NewLimiter(1, 1),
		moves: &moves{of: map[types.NamespacedName]string{}, giving: map[types.NamespacedName]bool{}},
	}
	c.members = &members{hub: h, of: map[fleet.Key]*memberState{}, workersHub: workersHub{c}}
	c.policies = &policies{hub: h, shown: map[string][]*decide.Policy{}}
	c.following = &following{hub: h, policies: c.policies, metadata: o.Metadata}
	c.lone = &loneNamespaces{hub: h, members: c.members, of: map[types.NamespacedName]*loneSet{}}
	c.sources = &sources{hub: h, members: c.members, policies: c.policies, lone: c.lone, moves: c.moves}
	c.seals = &seals{
		hub: h, sources: c.sources,
		lowerings: map[string]lowering{}, read: map[string]lease.Reading{}, broken: map[useOfSeal]string{},
	}
	c.statuses = &policyStatuses{hub: h, members: c.members, policies: c.policies, lone: c.lone, seals: c.seals}
	return c
}

// SetupWithManager adds the controller to a manager.
func (c *Controller) SetupWithManager(mgr mcmanager.Manager) error {
	local := mgr.GetLocalManager()
	c.Client, c.Live = local.GetClient(), local.GetAPIReader()
	c.events = local.GetEventRecorder("leasecast-hub")
	c.Tenure.RefuseIf(c.hubClock.contradicted)

	decisions := controllerOptions(local, c.reconcileNamespace, decisionsAtOnce)
	decisions.NewQueue = fairqueue.New(c.lone.laneOf)
	records, err := mccontroller.New("namespaceleader", mgr, decisions)
	if err != nil {
		return err
	}
	policies, err := mccontroller.New("leadershippolicy", mgr, controllerOptions(local, c.statuses.reconcilePolicy, 1))
	if err != nil {
		return err
	}
	for _, err := range []error{
		records.Watch(c.recordQueue.source()),
		records.Watch(source.TypedKind(local.GetCache(), &v1alpha1.NamespaceLeader{}, c.sources.recordChanges())),
		records.Watch(source.TypedKind(local.GetCache(), &v1alpha1.LeadershipPolicy{},
			handler.TypedEnqueueRequestsFromMapFunc(c.sources.namespacesOfPolicy))),
		records.MultiClusterWatch(mcsource.Kind(&corev1.Namespace{}, c.sources.mcNamespaces)),
		policies.Watch(c.policyQueue.source()),
		policies.Watch(source.TypedKind(local.GetCache(), &v1alpha1.LeadershipPolicy{},
			requestFor[*v1alpha1.LeadershipPolicy]())),
		clusterLabels{c.hub, c.policies}.setup(mgr),
		c.following.setup(mgr),
		mgr.Add(c),
		local.Add(c.hubClock),
	} {
		if err != nil {
			return err
		}
	}
	c.Fleet.Subscribe(func(key fleet.Key) {
		c.sources.memberChanged(key)
		c.following.sets.MemberChanged(key)
	})
	return nil
}

// Start runs the work for members until ctx ends. It returns when all of that work has stopped, so that nothing is
// renewed any more when the hub gives up its election.
func (c *Controller) Start(ctx context.Context) error {
	select {
	case <-c.Fleet.Synced():
	case <-ctx.Done():
		return nil
	}
	c.members.start(ctx)
	c.sources.recordProblems()
	<-ctx.Done()
	c.members.stop()
	return nil
}

// Engage implements multicluster.Aware. The fleet engages a member once the member's cluster is certain.
func (c *Controller) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	return c.members.engage(ctx, name, cl)
}

var _ mcmanager.Runnable = (*Controller)(nil)
