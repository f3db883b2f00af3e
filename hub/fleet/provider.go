package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/leasecast/leasecast/api/lease"
	leaseclock "github.com/leasecast/leasecast/api/lease/clock"
	"github.com/leasecast/leasecast/hub/fleet/secrets"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/rights"
)

// ForgottenAfter is how long the connection of a deleted Cluster is kept if nobody calls [Provider.Forget].
const ForgottenAfter = 10 * time.Minute

// Options configure a [Provider].
type Options struct {
	// Namespaces are the fleets to serve. Empty means all. The manager's cache must cover the Clusters in them.
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
	// UserAgent is the name of this replica in the members' audit logs. Default: leasecast-hub.
	UserAgent string
	// Clock times observations. Default: the clock of this machine.
	Clock lease.Clock
}

const defaultUserAgent = "leasecast-hub"

// Provider connects the members. Make it with [New].
type Provider struct {
	options Options
	rights  rights.Rights
	clock   lease.Clock
	timers  clock.WithDelayedExecution
	log     logr.Logger
	mgr     mcmanager.Manager

	// work holds the keys whose objects in the hub changed, changed those that subscribers
	// are to be told of.
	work, changed *workQueue
	synced        chan struct{}
	pauses        pauseDetector
	secrets       *secrets.Store
	// room is for answers of all members while they are read.
	room *transport.Room

	mu          sync.Mutex
	members     map[Key]*member
	moved       map[Key]types.UID // the Clusters that were last seen to be moving away
	indexes     []index
	subscribers map[int]func(Key)
	nextID      int
	probing     map[string][]Probing // by fleet
	served      map[string]servedBy  // by fleet
}

type index struct {
	object  client.Object
	field   string
	extract client.IndexerFunc
}

var _ multicluster.Provider = (*Provider)(nil)

// New makes a provider. Give it to mcmanager.New, then call SetupWithManager.
func New(o Options) *Provider {
	if o.Clock == nil {
		o.Clock = &leaseclock.System{}
	}
	o.UserAgent = cmp.Or(o.UserAgent, defaultUserAgent)
	return &Provider{
		options:     o,
		rights:      rights.Of(o.HubID),
		clock:       o.Clock,
		timers:      clock.RealClock{},
		log:         logr.Discard(),
		work:        newWorkQueue(),
		changed:     newWorkQueue(),
		synced:      make(chan struct{}),
		secrets:     secrets.New(secrets.Options{}), // SetupWithManager makes it one that can ask
		members:     map[Key]*member{},
		room:        transport.NewRoom(nil),
		moved:       map[Key]types.UID{},
		subscribers: map[int]func(Key){},
		served:      map[string]servedBy{},
		probing:     map[string][]Probing{},
	}
}

// SetupWithManager adds the provider to the manager. It runs on every replica, so that a replica that is
// elected finds its members connected and their caches full. They are engaged when the replica is elected, if
// the manager has an election, and else at once.
func (p *Provider) SetupWithManager(mgr mcmanager.Manager) error {
	if p.options.HubID == "" || p.options.MayWrite == nil || p.options.API == nil || p.options.Metadata == nil {
		return errors.New("fleet: Options.HubID, Options.MayWrite, Options.API and Options.Metadata are required")
	}
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
	p.mu.Lock()
	m := p.members[k]
	p.mu.Unlock()
	if m != nil {
		if cl := m.cluster(); cl != nil {
			return cl, nil
		}
	}
	return nil, fmt.Errorf("member %s is not connected: %w", k, multicluster.ErrClusterNotFound)
}

// IndexField implements multicluster.Provider: it indexes all members, present and future.
func (p *Provider) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	p.mu.Lock()
	p.indexes = append(p.indexes, index{obj, field, extract})
	members := slices.Collect(maps.Values(p.members))
	p.mu.Unlock()
	var errs []error
	for _, m := range members {
		if cl := m.cluster(); cl != nil {
			errs = append(errs, cl.GetFieldIndexer().IndexField(ctx, obj, field, extract))
		}
	}
	return errors.Join(errs...)
}

func (p *Provider) indexed() []index {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.indexes)
}

// Synced is closed when every Cluster that existed at the start is known, though not necessarily reached.
// Before that an empty list of members means nothing.
func (p *Provider) Synced() <-chan struct{} { return p.synced }

// Members lists the members of a fleet, ordered by name.
func (p *Provider) Members(fleet string) []Member {
	p.mu.Lock()
	defer p.mu.Unlock()
	owners := p.ownersLocked()
	var members []Member
	for k, m := range p.members {
		if k.Fleet == fleet {
			members = append(members, m.snapshot(owners))
		}
	}
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	return members
}

// Member returns one member, and false if there is none of that name.
func (p *Provider) Member(k Key) (Member, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.members[k]
	if m == nil {
		return Member{}, false
	}
	return m.snapshot(p.ownersLocked()), true
}

func (p *Provider) ownersLocked() map[string]Key {
	all := make([]uidOwner, 0, len(p.members))
	for _, m := range p.members {
		all = append(all, m.uidOwner())
	}
	return owners(all)
}

// takeUID gives its UID to a member, unless the UID belongs to another one. The member then keeps it against
// all that are not pinned to it.
func (p *Provider) takeUID(m *member) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ownersLocked()[m.uidOwner().uid] != m.key {
		return false
	}
	m.change(func(s *state) { s.ownsUID = true })
	return true
}

// Forget says that nothing of ours is left in a member that takes no part any more. The provider ends its cluster, and
// removes the probe Lease and the hub's rights if the member can be reached. Then it removes the pin from the
// Cluster, and ends the connection. Forget does not wait for that, and does nothing for a member that takes part.
func (p *Provider) Forget(k Key) {
	p.mu.Lock()
	m := p.members[k]
	p.mu.Unlock()
	if m != nil {
		m.forget()
	}
}

// Subscribe calls f with the key of each member of which anything changes: that it is there, a field of its
// snapshot, or whether it answers. States of health that change by time alone are not announced (see
// health.Verdict.Next). Calls come one at a time and may be merged; f must not block. No lock is held, so f
// may call the provider. The returned function ends the subscription; a call may still be under way.
func (p *Provider) Subscribe(f func(Key)) (unsubscribe func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := p.nextID
	p.nextID++
	p.subscribers[id] = f
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.subscribers, id)
	}
}
