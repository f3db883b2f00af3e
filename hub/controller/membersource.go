package controller

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/skew"
)

// errDisengaged says that a member has been let go of since it was listed as connected.
var errDisengaged = errors.New("the cluster is not connected any more")

// memberSource is what a decision sees of the members. The simulation replaces it; everything else of a decision runs
// there as it runs here.
type memberSource interface {
	// synced reports whether every Cluster is known, though not necessarily reached.
	synced() bool
	// members returns the members of a fleet, ordered by name.
	members(fleetName string) []fleet.Member
	// health judges a member now.
	health(m fleet.Member, th health.Thresholds) health.Verdict
	// clocks judges the clocks of a member now, under the ε of a policy.
	clocks(m fleet.Member, eps time.Duration) skew.Verdict
	// offsets returns how far the API servers' clocks are from the hub's now, of each cluster that has answered.
	offsets() map[fleet.Key]skew.Interval
	// servedBy returns the mark of the installation that serves a fleet, by the fleet's seal.
	servedBy(fleetName string) string
	// move tells, live, whether the Clusters of a fleet are as during or after a move.
	move(ctx context.Context, fleetName string) (fleet.Move, error)
	// namespace returns a namespace of a connected member, from a cache, or errDisengaged.
	namespace(ctx context.Context, m fleet.Member, name string) (*corev1.Namespace, error)
	// namespaces returns all of them. They are those of the cache: change none.
	namespaces(ctx context.Context, m fleet.Member) ([]corev1.Namespace, error)
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

func (f fleetSource) members(fleetName string) []fleet.Member { return f.Members(fleetName) }

func (f fleetSource) offsets() map[fleet.Key]skew.Interval { return f.Offsets() }

func (f fleetSource) servedBy(fleetName string) string { return f.ServedBy(fleetName) }

func (f fleetSource) move(ctx context.Context, fleetName string) (fleet.Move, error) {
	return f.Move(ctx, fleetName)
}

func (fleetSource) health(m fleet.Member, th health.Thresholds) health.Verdict { return m.Health(th) }

func (fleetSource) clocks(m fleet.Member, eps time.Duration) skew.Verdict { return m.Clocks(eps) }

func (fleetSource) namespace(ctx context.Context, m fleet.Member, name string) (*corev1.Namespace, error) {
	cl := m.Cluster()
	if cl == nil {
		return nil, errDisengaged
	}
	ns := &corev1.Namespace{}
	err := cl.GetCache().Get(ctx, types.NamespacedName{Name: name}, ns)
	return ns, err
}

func (fleetSource) namespaces(ctx context.Context, m fleet.Member) ([]corev1.Namespace, error) {
	cl := m.Cluster()
	if cl == nil {
		return nil, errDisengaged
	}
	var list corev1.NamespaceList
	err := cl.GetCache().List(ctx, &list, client.UnsafeDisableDeepCopy)
	return list.Items, err
}
