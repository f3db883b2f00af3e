package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/explain"
	"github.com/leasecast/leasecast/hub/seal"
)

// completed adds all that members show to a view of a namespace, under the bounds of a seal.
func completed(t *testing.T, c *Controller, v *decide.Snapshot, bounds ...seal.Bounds) *decide.Snapshot {
	t.Helper()
	f := decide.Fleet{Now: c.now(), Seal: seal.Seal{Policies: map[string]seal.Bounds{}}}
	f.Tenure.Inherited = v.State.Tenure.Inherited
	if c.Tenure != nil {
		f.Tenure.Started, f.Tenure.Inherited = c.Tenure.Started()
	}
	for _, b := range bounds {
		f.Seal.Policies["shops"] = b
	}
	for i := range v.Members {
		v.Members[i].Leases = nil
	}
	c.members.observe(t.Context(), v, f.Now)
	v.HubID, v.State = c.HubID, election.State{}
	v.Complete(f)
	return v
}

// candidatesOf returns the candidates of a view, and when the health of one may change by time alone.
func candidatesOf(v *decide.Snapshot) ([]decide.Candidate, time.Duration) {
	p := v.Decide(musterStart, election.Sent{Final: true})
	return p.Candidates, p.Health
}

// planOf is the plan of a decision.
func planOf(d election.Decision) decide.Plan { return decide.Plan{Decision: d} }

// lookAtLeases adds the Leases that publishers know.
func lookAtLeases(v *decide.Snapshot) {
	for i := range v.Members {
		if m := &v.Members[i]; m.Publisher != nil {
			m.Leases = leasesIn(m.Publisher, v.Key.Name)
		}
	}
}

// noteTargets sets the condition of a policy's fence targets.
func noteTargets(c *Controller, o *v1alpha1.LeadershipPolicy, members []decide.Member) {
	cond, applies := explain.TargetsFound(c.statuses.findLocks(o, members), c.statuses.findAccounts(o, members))
	setCondition(o, cond, applies)
}

// shopView is a view of namespace shop, which a policy with an ε of 1 s claims.
func shopView(r election.Record, ms ...decide.Member) *decide.Snapshot {
	v := &decide.Snapshot{Entry: takenOf(shop), Members: ms,
		Policy: &decide.Policy{
			Object: &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "shops", Generation: 7}},
			Names:  map[string]bool{"shop": true}, Election: election.Policy{Timings: lease.Timings{Skew: time.Second}},
		}}
	v.Record, v.State.Record = r, r
	return v
}

func eastLeads(epoch int64) election.Record {
	return election.Record{
		State: election.Leading, Reason: reason.Elected, Leader: "east", Epoch: epoch, Duration: 15 * time.Second,
		LeaseName: "leasecast",
		Observed:  map[string]int32{"east": 9},
	}
}
