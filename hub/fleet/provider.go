package fleet

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/leasecast/leasecast/api/lease"
)

// ForgottenAfter is how long the connection of a deleted Cluster is kept for an owner who
// does not call [Provider.Forget].
const ForgottenAfter = 10 * time.Minute

// Options configure a [Provider].
type Options struct {
	// Namespaces are the fleets to serve. Empty means all. The manager's cache must cover
	// the Clusters and Secrets in them.
	Namespaces []string
	// HubID names this hub in the probe Leases. Required.
	HubID string
	// MayWrite reports whether this replica has the right to write now. Without it members
	// are connected and read, but no UID is pinned and no write probe is sent. It is
	// asked before each write and must not block. Required.
	MayWrite func() bool
	// Clock stamps observations. Default: the clock of this machine.
	Clock lease.Clock
}

// New makes a provider. Give it to mcmanager.New, then call SetupWithManager.
func New(o Options) *Provider { panic("to come") }

// SetupWithManager adds the provider to the manager. It runs on every replica, elected
// or not, so that a standby is warm.
func (p *Provider) SetupWithManager(mgr mcmanager.Manager) error { panic("to come") }

// Get implements multicluster.Provider. It returns multicluster.ErrClusterNotFound for
// a member that is not connected.
func (p *Provider) Get(_ context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	panic("to come")
}

// IndexField implements multicluster.Provider: it indexes all members, present and future.
func (p *Provider) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	panic("to come")
}

// Synced is closed when every Cluster that existed at the start is known, though not
// necessarily reached. Before that an empty list of members says nothing.
func (p *Provider) Synced() <-chan struct{} { panic("to come") }

// Members lists the members of a fleet, ordered by name.
func (p *Provider) Members(fleet string) []Member { panic("to come") }

// Member returns one member, and false if there is none of that name.
func (p *Provider) Member(k Key) (Member, bool) { panic("to come") }

// Forget says that nothing of ours is left in a member that takes no part any more. The
// probe Lease is removed if the member can be reached, the pin is removed from the
// Cluster, and the connection ends. It does not wait for that, and does nothing for a
// member that takes part.
func (p *Provider) Forget(k Key) { panic("to come") }

// Subscribe calls f with the key of each member of which anything changed: that it is
// there, a field of its snapshot, or whether it answers. States of health that change by
// time alone are not announced (see health.Verdict.Next). Calls come one at a time and
// may be merged; f must not block. No lock is held, so f may call the provider. The
// returned function ends the subscription; a call may still be under way.
func (p *Provider) Subscribe(f func(Key)) (unsubscribe func()) { panic("to come") }

// SetProbing sets the interval of the probes and how long each may take. Default: 5 s and
// 3 s.
func (p *Provider) SetProbing(interval, timeout time.Duration) { panic("to come") }

// Provider connects the members. Make it with [New].
type Provider struct{}

var _ multicluster.Provider = (*Provider)(nil)
