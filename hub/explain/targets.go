package explain

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/worker"
)

// TargetsFound returns the condition that reports whether fenced locks have holders in the cluster that leads, and
// whether fenced service accounts exist in a cluster. It returns false for a policy without such fences.
func TargetsFound(locks []LockFinding, accounts []AccountFinding) (metav1.Condition, bool) {
	var targets []metav1.Condition
	if len(locks) > 0 {
		targets = append(targets, locksHeld(locks))
	}
	if len(accounts) > 0 {
		targets = append(targets, accountsFound(accounts))
	}
	return worstOf(v1alpha1.ConditionFenceTargetsFound, targets), len(targets) > 0
}

// LockFinding is what was seen of a lock in the member that leads. An empty Member means that nothing was seen.
type LockFinding struct {
	Lock, Member string
	State        worker.LockState
}

// locksHeld warns of locks without a holder, and names those that were not seen yet.
func locksHeld(found []LockFinding) metav1.Condition {
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
		return condition("", no, reason.LockIdle,
			"compare leaderElectionLocks with the Lease that the controller elects itself with, and see that it runs "+
				"there with its election on: "+strings.Join(idle, "; "))
	case len(open) > 0:
		return condition("", unknown, reason.LockUnseen,
			"nobody was seen to hold these locks since a cluster leads: "+strings.Join(open, ", "))
	default:
		return condition("", yes, reason.TargetsFound, "each fenced lock has a holder in the cluster that leads")
	}
}

// AccountFinding is the state of an account in all members. If one member has the account, its name is right: the
// others may not run the program yet.
type AccountFinding struct {
	Account   string
	Exists    bool
	MissingIn []string
}

// accountsFound warns of accounts that no cluster has, and names those that were not seen
// yet.
func accountsFound(found []AccountFinding) metav1.Condition {
	var missing, open []string
	for _, f := range found {
		switch {
		case f.Exists:
		case len(f.MissingIn) > 0:
			missing = append(missing, fmt.Sprintf("there is no ServiceAccount %s in %s", f.Account,
				strings.Join(f.MissingIn, ", ")))
		default:
			open = append(open, f.Account)
		}
	}
	switch {
	case len(missing) > 0:
		return condition("", no, reason.AccountMissing, "compare serviceAccounts with the accounts that the programs "+
			"run as: "+strings.Join(missing, "; "))
	case len(open) > 0:
		return condition("", unknown, reason.AccountUnseen,
			"no cluster has shown yet whether it has these service accounts: "+strings.Join(open, ", "))
	default:
		return condition("", yes, reason.TargetsFound, "each fenced service account exists in a cluster")
	}
}
