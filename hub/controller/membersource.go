package controller

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/skew"
)

// errDisengaged means that a member was disengaged since it was listed as connected.
var errDisengaged = errors.New("the cluster is not connected any more")

// memberSource is what a decision sees of the members. The simulation replaces it; all other code of a decision
// runs in the simulation unchanged.
type memberSource interface {
	// synced reports whether every Cluster is known, though not necessarily reached.
	synced() bool
	// Members returns the members of a fleet, ordered by name.
	Members(fleetName string) []fleet.Member
	// health judges a member now.
	health(m fleet.Member, th health.Thresholds) health.Verdict
	// lastAnswer is when the latest answer of a member arrived.
	lastAnswer(m fleet.Member) lease.Reading
	// clock judges the clock of a member by the hub's at now, under the ε of a policy.
	clock(now lease.Reading, m fleet.Member, eps time.Duration) skew.Verdict
	// Offsets returns the present offset of each API server's clock from the hub's, for clusters that have
	// answered.
	Offsets() map[fleet.Key]skew.Interval
	// Served is [fleet.Provider.Served].
	Served(fleetName string) (here bool, other string)
	// Move returns, from live reads, whether the Clusters of a fleet are as during or after a move.
	Move(ctx context.Context, fleetName string) (fleet.Move, error)
	// namespace returns a namespace of a connected member, from a cache, or errDisengaged.
	namespace(ctx context.Context, m fleet.Member, name string) (*corev1.Namespace, error)
	// namespaces returns the namespaces that the cache has. The caller must not change them.
	namespaces(ctx context.Context, m fleet.Member) []corev1.Namespace
}

// fleetSource sees the members of a fleet.
type fleetSource struct{ *fleet.Provider }

func (f fleetSource) synced() bool {
	select {
	case <-f.Synced():
		return true
	default:
		return false
	}
}

func (fleetSource) health(m fleet.Member, th health.Thresholds) health.Verdict { return m.Health(th) }

func (fleetSource) lastAnswer(m fleet.Member) lease.Reading { return m.LastAnswer() }

func (fleetSource) clock(now lease.Reading, m fleet.Member, eps time.Duration) skew.Verdict {
	return m.Clock(now, eps)
}

func (fleetSource) namespace(ctx context.Context, m fleet.Member, name string) (*corev1.Namespace, error) {
	cl := m.Cluster()
	if cl == nil {
		return nil, errDisengaged
	}
	ns := &corev1.Namespace{}
	err := cl.GetCache().Get(ctx, types.NamespacedName{Name: name}, ns)
	return ns, err
}

func (fleetSource) namespaces(ctx context.Context, m fleet.Member) []corev1.Namespace {
	var list corev1.NamespaceList
	if cl := m.Cluster(); cl != nil {
		_ = cl.GetCache().List(ctx, &list, client.UnsafeDisableDeepCopy) // else an event will come for each
	}
	return list.Items
}
