package controller

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/worker"
)

// noteAccounts says in the status of a policy whether the service accounts that it fences exist in any of its clusters.
func (c *Controller) noteAccounts(object *v1alpha1.LeadershipPolicy, members []memberView) {
	var found []accountFinding
	for _, f := range guard.Fences(c.HubID, object) {
		for _, a := range f.Accounts() {
			finding := c.findAccount(a, members)
			if !slices.ContainsFunc(found, func(other accountFinding) bool { return other.account == finding.account }) {
				found = append(found, finding)
			}
		}
	}
	if len(found) == 0 {
		meta.RemoveStatusCondition(&object.Status.Conditions, v1alpha1.ConditionAccountsFound)
		return
	}
	cond := accountsFound(found)
	cond.ObservedGeneration = object.Generation
	meta.SetStatusCondition(&object.Status.Conditions, cond)
}

// accountFinding says in which members an account is missing. One that exists anywhere has the right name: the others may
// not run the program yet.
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

// accountsFound warns of accounts that no cluster has. It judges what was found of all.
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
		Type: v1alpha1.ConditionAccountsFound, Status: metav1.ConditionTrue, Reason: string(reason.AccountsFound),
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
