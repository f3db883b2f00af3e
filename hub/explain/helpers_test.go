package explain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/ledger"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/skew"
)

var (
	shop     = types.NamespacedName{Namespace: "fleet", Name: "shop"}
	start    = lease.Reading{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Boot: time.Hour}
	agrees   = skew.Verdict{State: skew.Within}
	vague    = skew.Verdict{}
	twoAhead = skew.Verdict{
		State: skew.Beyond, Offset: skew.Interval{Lo: 1990 * time.Millisecond, Hi: 2010 * time.Millisecond},
	}
)

// measured is a member that nothing is wrong with but, perhaps, its clocks.
func measured(name string, clock skew.Verdict) decide.Member {
	return decide.Member{
		Member:    fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: name}, Connected: true},
		TakesPart: true, IsRead: true, Publisher: &publish.Publisher{},
		Namespace:    &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		Verdict:      health.Verdict{State: health.Healthy, Answering: true},
		ClockVerdict: clock,
	}
}

func changed(m decide.Member, change func(*decide.Member)) decide.Member {
	change(&m)
	return m
}

// shopView is a view of namespace shop, which a policy with an ε of 1 s claims.
func shopView(r election.Record, ms ...decide.Member) *decide.Snapshot {
	v := &decide.Snapshot{Entry: &ledger.Entry{Taken: ledger.Taken{Key: shop}}, Members: ms,
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

// candidatesOf returns the candidates of a view, and when the health of one may change by time alone.
func candidatesOf(v *decide.Snapshot) ([]decide.Candidate, time.Duration) {
	p := v.Decide(start, election.Sent{Final: true})
	return p.Candidates, p.Health
}

// planOf is the plan of a decision.
func planOf(d election.Decision) decide.Plan { return decide.Plan{Decision: d} }
