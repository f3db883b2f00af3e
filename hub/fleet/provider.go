package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/leasecast/leasecast/api/lease"
	leaseclock "github.com/leasecast/leasecast/api/lease/clock"
	"github.com/leasecast/leasecast/hub/fleet/secrets"
	"github.com/leasecast/leasecast/hub/rights"
)

// ForgottenAfter is how long the connection of a deleted Cluster is kept if nobody calls [Provider.Forget].
const ForgottenAfter = 10 * time.Minute

// Options configure a [Provider].
type Options struct {
	// Namespaces are the fleets to serve. Empty means all. The manager's cache must hold their Clusters and no others.
	// Secrets are read where that is granted: see [Provider.MissingGrant].
	Namespaces []string
	// API and Metadata reach the management cluster. Required.
	API      kubernetes.Interface
	Metadata metadata.Interface
	// HubID is the mark of this installation (see seal.Mark), which also names it in the probe Leases.
	// Required.
	HubID string
	// MayWrite reports whether this replica has the right to write now. Without it, and where another
	// installation serves the fleet, members are connected and read, but no UID is pinned and no write probe
	// is sent. It is called before each write and must not block. Required.
	MayWrite func() bool
	// LocalAddresses lets members be on the hub's own machine or network link: see transport.Access.
	LocalAddresses bool
	// UserAgent is the name of this replica in the members' audit logs.
	UserAgent string
	// Clock times observations. Default: the clock of this machine.
	Clock lease.Clock
}

// Provider connects the members. Make it with [New].
type Provider struct {
	*registry
	synced     chan struct{}
	subscriber atomic.Pointer[func(Key)]
}

var _ multicluster.Provider = (*Provider)(nil)

// New makes a provider. Give it to mcmanager.New, then call SetupWithManager.
func New(o Options) *Provider {
	if o.Clock == nil {
		o.Clock = &leaseclock.System{}
	}
	s := &shared{
		options: o,
		rights:  rights.Of(o.HubID),
		clock:   o.Clock,
		timers:  clock.RealClock{},
		log:     logr.Discard(),
		work:    workqueue.NewTyped[Key](),
		changed: workqueue.NewTyped[Key](),
		secrets: secrets.New(secrets.Options{}), // SetupWithManager makes it one that can ask
		served:  map[string]served{},
	}
	return &Provider{
		registry: &registry{
			shared: s, members: map[Key]*member{}, moved: map[Key]types.UID{}, probing: map[string][]Probing{},
		},
		synced: make(chan struct{}),
	}
}

// SetupWithManager adds the provider to the manager. It runs on every replica, so that a replica that is
// elected finds its members connected and their caches full. They are engaged when the replica is elected, if
// the manager has an election, and else at once.
func (p *Provider) SetupWithManager(mgr mcmanager.Manager) error {
	p.mgr = mgr
	p.log = mgr.GetLogger().WithName("fleet")
	p.secrets = runner{p}.newSecrets()
	if err := mgr.GetLocalManager().Add(runner{p}); err != nil {
		return fmt.Errorf("add the fleet to the manager: %w", err)
	}
	return nil
}

// Get implements multicluster.Provider. It returns multicluster.ErrClusterNotFound for
// a member that is not connected.
func (p *Provider) Get(_ context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	k, err := ParseKey(name)
	if err != nil {
		return nil, err
	}
	if m := p.get(k); m != nil {
		if cl := m.get().cluster; cl != nil {
			return cl, nil
		}
	}
	return nil, fmt.Errorf("member %s is not connected: %w", k, multicluster.ErrClusterNotFound)
}

// IndexField implements multicluster.Provider. The caches of members have no indexes.
func (*Provider) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return errors.New("fleet: the caches of members have no indexes")
}

// Synced is closed when every Cluster that existed at the start is known, though not necessarily reached.
// Before that an empty list of members means nothing.
func (p *Provider) Synced() <-chan struct{} { return p.synced }

// Members lists the members of a fleet, ordered by name.
func (p *Provider) Members(fleet string) []Member {
	owners := p.owners()
	var members []Member
	for _, m := range p.of(fleet) {
		members = append(members, m.snapshot(owners))
	}
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	return members
}

// Member returns one member, and false if there is none of that name.
func (p *Provider) Member(k Key) (Member, bool) {
	m := p.get(k)
	if m == nil {
		return Member{}, false
	}
	return m.snapshot(p.owners()), true
}

// Forget says that nothing of ours is left in a member that takes no part any more. The provider ends its cluster, and
// removes the probe Lease and the hub's rights if the member can be reached. Then it removes the pin from the
// Cluster, and ends the connection. Forget does not wait for that, and does nothing for a member that takes part.
func (p *Provider) Forget(k Key) {
	if m := p.get(k); m != nil {
		m.forget()
	}
}

// Subscribe calls f, and nobody else, with the key of each member of which anything changes: that it is there, a field
// of its snapshot, or whether it answers. States of health that change by time alone are not announced (see
// health.Verdict.Next). Calls come one at a time and may be merged; f must not block. No lock is held, so f
// may call the provider.
func (p *Provider) Subscribe(f func(Key)) { p.subscriber.Store(&f) }

// notifySubscriber calls the subscriber until ctx ends. Then all members close, and calls about that would only delay
// the release of the election. It returns when the queue is shut down.
func (p *Provider) notifySubscriber(ctx context.Context) {
	for k, ended := p.changed.Get(); !ended && ctx.Err() == nil; k, ended = p.changed.Get() {
		if f := p.subscriber.Load(); f != nil {
			(*f)(k)
		}
		p.changed.Done(k)
	}
}
