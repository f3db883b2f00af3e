package explain

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/worker"
)

// LockFinding is what was seen of a lock in the member that leads. An empty Member means that nothing was seen.
type LockFinding struct {
	Lock, Member string
	State        worker.LockState
}

// TargetsFound returns the condition that warns of fenced locks without a holder in the cluster that leads, and names
// those that were not seen yet. It returns false for a policy without locks.
func TargetsFound(found []LockFinding) (cond metav1.Condition, applies bool) {
	const kind = v1alpha1.ConditionFenceTargetsFound
	var idle, open []string
	for _, l := range found {
		switch l.State {
		case worker.LockMissing:
			idle = append(idle, fmt.Sprintf("there is no Lease %s in %s, which leads", l.Lock, l.Member))
		case worker.LockIdle:
			idle = append(idle, fmt.Sprintf("nobody renews the Lease %s in %s, which leads", l.Lock, l.Member))
		case worker.LockUnseen:
			open = append(open, l.Lock)
		case worker.LockHeld:
		}
	}
	switch {
	case len(idle) > 0:
		cond = condition(kind, no, reason.LockIdle,
			"compare leaderElectionLocks with the Lease that the controller elects itself with, and see that it runs "+
				"there with its election on: "+strings.Join(idle, "; "))
	case len(open) > 0:
		cond = condition(kind, unknown, reason.LockUnseen,
			"nobody was seen to hold these locks since a cluster leads: "+strings.Join(open, ", "))
	default:
		cond = condition(kind, yes, reason.TargetsFound, "each fenced lock has a holder in the cluster that leads")
	}
	return cond, len(found) > 0
}
