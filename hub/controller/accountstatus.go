package controller

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/worker"
)

func (c *Controller) findAccounts(object *v1alpha1.LeadershipPolicy, members []memberView) (found []accountFinding) {
	if object.Spec.Fencing == nil {
		return nil
	}
	seen := map[v1alpha1.FencedServiceAccount]bool{}
	for _, w := range object.Spec.Fencing.Writes {
		for _, a := range w.ServiceAccounts {
			if !seen[a] {
				seen[a] = true
				found = append(found, c.findAccount(a, members))
			}
		}
	}
	return found
}

// accountFinding is the state of an account in all members. If one member has the account, its name is right: the
// others may not run the program yet.
type accountFinding struct {
	account   string
	exists    bool
	missingIn []string
}

func (c *Controller) findAccount(a v1alpha1.FencedServiceAccount, members []memberView) accountFinding {
	f := accountFinding{account: a.Name}
	if a.Namespace != "" {
		f.account = a.Namespace + "/" + a.Name
	}
	for _, m := range members {
		w := c.worker(m.Key)
		if w == nil {
			continue
		}
		switch w.AccountOf(a) {
		case worker.AccountFound:
			f.exists = true
		case worker.AccountMissing:
			f.missingIn = append(f.missingIn, m.Name)
		case worker.AccountUnseen:
		}
	}
	return f
}

// accountsFound warns of accounts that no cluster has, and names those that were not seen
// yet.
func accountsFound(found []accountFinding) metav1.Condition {
	var missing, open []string
	for _, f := range found {
		switch {
		case f.exists:
		case len(f.missingIn) > 0:
			missing = append(missing, fmt.Sprintf("there is no ServiceAccount %s in %s", f.account, strings.Join(f.missingIn, ", ")))
		default:
			open = append(open, f.account)
		}
	}
	c := metav1.Condition{
		Status: metav1.ConditionTrue, Reason: string(reason.TargetsFound),
		Message: "each fenced service account exists in a cluster",
	}
	switch {
	case len(missing) > 0:
		c.Status, c.Reason = metav1.ConditionFalse, string(reason.AccountMissing)
		c.Message = cut("compare serviceAccounts with the accounts that the programs run as: "+strings.Join(missing, "; "), 1024)
	case len(open) > 0:
		c.Status, c.Reason = metav1.ConditionUnknown, string(reason.AccountUnseen)
		c.Message = cut("no cluster has shown yet whether it has these service accounts: "+strings.Join(open, ", "), 1024)
	}
	return c
}
