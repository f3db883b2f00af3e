package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/guard"
)

// relinquishTimeout bounds one attempt to remove the marks from a fleet's records.
const relinquishTimeout = 20 * time.Second

// leaving reports whether the member takes no part any more.
func (w *Worker) leaving() bool {
	m, ok := w.Fleet.Member(w.Member.Key)
	return !ok || m.Gone || m.PriorityReason == reason.NoPriority || w.moves(m)
}

// moves reports whether the member moves to another hub. The Clusters of a fleet move together. With the first one
// that is deleted, all others are relinquished: until the last one is gone, its terms may have lapsed.
func (w *Worker) moves(m fleet.Member) bool {
	moves := func(m fleet.Member) bool { return m.DeleteForMove }
	return moves(m) || m.Paused && slices.ContainsFunc(w.Fleet.Members(m.Fleet), moves)
}

// leave removes the fences and the guard from a member that takes no part any more, and forgets the member. It
// waits until none of this hub's Leases is left there, because Leases must stay protected. The guard stays where
// another hub has Leases, but no fence does: without this hub's Leases it refuses everybody. leave may be called again.
// If the member takes part again before it is forgotten, the worker goes on.
func (w *Worker) leave(ctx context.Context) {
	m, ok := w.Fleet.Member(w.Member.Key)
	p := w.Publisher()
	if !ok || !p.Initial().Read || !w.mayWrite() {
		return
	}
	if w.moves(m) {
		w.relinquish(ctx)
		return
	}
	p.Resume()
	ours, others := p.Remaining()
	if ours {
		return
	}
	if err := w.Remove(ctx, !others); err == nil {
		w.Fleet.Forget(m.Key)
	} else if ctx.Err() == nil && !errors.Is(err, guard.ErrMayNotWrite) {
		w.recordStuck(err)
	}
}

// recordStuck logs why a member cannot be left, and records an event when the reason changes.
func (w *Worker) recordStuck(err error) {
	message := "the hub cannot remove its admission policies from the cluster: " + transport.Shorten(bare(err))
	w.Log.V(1).Info(message)
	why := reason.Unreachable
	if errors.Is(err, guard.ErrForbidden) {
		why = reason.Forbidden
	}
	if why != w.stuck {
		w.stuck = why
		w.Hub.RecordGuard(w.Member.Key, why, message)
	}
}

// relinquish gives up a member that moves to another hub. The fleet's records come first, so that this hub never
// takes one for its own again. The Leases stay as they are.
//
// As long as a Cluster of the fleet is left, the ones that are gone show that all of them move.
func (w *Worker) relinquish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, relinquishTimeout)
	defer cancel()
	if err := w.Hub.RelinquishRecords(ctx, w.Member.Fleet); err != nil {
		w.Log.V(1).Info("The records are not let go of yet", "err", err.Error())
		return
	}
	stays := func(m fleet.Member) bool { return !m.Gone }
	if w.Publisher().Relinquish() && !slices.ContainsFunc(w.Fleet.Members(w.Member.Fleet), stays) {
		w.Fleet.Forget(w.Member.Key)
	}
}
