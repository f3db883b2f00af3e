package worker

import (
	"context"
	"slices"
	"time"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
)

// relinquishTimeout bounds one try to take the marks off a fleet's records.
const relinquishTimeout = 20 * time.Second

// leaving reports whether the member takes no part any more.
func (w *Worker) leaving() bool {
	m, ok := w.Fleet.Member(w.Member.Key)
	return !ok || m.Gone || m.PriorityReason == reason.NoPriority || w.moves(m)
}

// moves reports whether the member moves to another hub. The Clusters of a fleet move together, and with the first that
// is deleted all others are let go of: until the last one is gone, its terms may have lapsed.
func (w *Worker) moves(m fleet.Member) bool {
	return m.DeleteForMove || m.Paused && slices.ContainsFunc(w.Fleet.Members(m.Fleet), func(m fleet.Member) bool { return m.DeleteForMove })
}

// leave takes the fences and the guard out of a member that takes no part any more, and lets go of it. It waits until no
// Lease of this hub is left there, because Leases must not stay unprotected. It waits until no fence is being put in
// place, because none may stay behind. The guard stays where another hub has Leases. leave may be called again: should
// the member come back before it is forgotten, it goes on.
func (w *Worker) leave(ctx context.Context) {
	m, ok := w.Fleet.Member(w.Member.Key)
	p := w.Publisher()
	if !ok || !p.Initial().Read || !w.Hub.Serves(m.Fleet) {
		return
	}
	if w.moves(m) {
		w.relinquish(ctx)
		return
	}
	if ours, others := p.Remaining(); others && !ours {
		w.Fleet.Forget(m.Key)
		return
	} else if ours || w.isFencing() {
		return
	}
	w.noteGuard(ErrUnchecked)
	w.forgetFences(nil)
	ctx, cancel := context.WithTimeout(ctx, guardTimeout)
	defer cancel()
	if w.unfence(ctx) == nil && guard.Remove(ctx, w.Client) == nil {
		w.Fleet.Forget(m.Key)
	}
}

// relinquish lets go of a member that moves to another hub. The fleet's records come first: should this hub ever find
// one again, it is not its own any more. The Leases stay as they are.
//
// As long as a Cluster of the fleet is left, those that are gone show that all of them move.
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
