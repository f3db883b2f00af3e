package decide

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/ledger"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/skew"
)

var (
	shop   = types.NamespacedName{Namespace: "fleet", Name: "shop"}
	start  = lease.Reading{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Boot: time.Hour}
	agrees = skew.Verdict{State: skew.Within}
)

// measured is a member that nothing is wrong with but, perhaps, its clocks.
func measured(name string, clock skew.Verdict) Member {
	return Member{
		Member:    fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: name}, Connected: true},
		TakesPart: true, IsRead: true, Publisher: &publish.Publisher{},
		Namespace:    &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		Verdict:      health.Verdict{State: health.Healthy, Answering: true},
		ClockVerdict: clock,
	}
}

func changed(m Member, change func(*Member)) Member {
	change(&m)
	return m
}

// shopView is a view of namespace shop, which a policy with an ε of 1 s claims.
func shopView(r election.Record, ms ...Member) *Snapshot {
	v := &Snapshot{Entry: &ledger.Entry{Taken: ledger.Taken{Key: shop}}, Members: ms,
		Policy: &Policy{
			Object: &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "shops", Generation: 7}},
			Names:  map[string]bool{"shop": true}, Election: election.Policy{Timings: lease.Timings{Skew: time.Second}},
		}}
	v.Record, v.State.Record = r, r
	return v
}

// candidatesOf returns the candidates of a view, and when the health of one may change by time alone.
func candidatesOf(v *Snapshot) ([]Candidate, time.Duration) {
	p := v.Decide(start, election.Sent{Final: true})
	return p.Candidates, p.Health
}

var eastKey = fleet.Key{Fleet: "fleet", Name: "east"}

// policyOf is a valid policy for a namespace.
func policyOf(fleetName, name, namespace string) *v1alpha1.LeadershipPolicy {
	p := &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: fleetName, Name: name, Generation: 7}}
	p.Spec.InitialDelaySeconds = ptr.To(int32(0))
	p.Spec.Namespaces.Names = []string{namespace}
	p.Spec.Timings = v1alpha1.Timings{
		LeaseDurationMilliseconds: 15_000, RenewIntervalMilliseconds: 5000,
		RequestTimeoutMilliseconds: 3000, MaxClockSkewMilliseconds: 1000,
	}
	return p
}

// fencing is a policy of fleet default for namespace shop.
func fencing(f *v1alpha1.Fencing) *v1alpha1.LeadershipPolicy {
	return &v1alpha1.LeadershipPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shops"},
		Spec: v1alpha1.LeadershipPolicySpec{
			Handover: v1alpha1.HandoverRegisteredReaders, Namespaces: v1alpha1.NamespaceSelection{Names: []string{"shop"}},
			Fencing: f,
		},
	}
}

// asParsed is a policy that acts, whatever its timings.
func asParsed(o *v1alpha1.LeadershipPolicy) *Policy {
	p := ParsePolicy(o)
	p.Unknown = false
	return p
}

// takenOf is the entry of a namespace without a record.
func takenOf(key types.NamespacedName) *ledger.Entry {
	return &ledger.Entry{Taken: ledger.Taken{Key: key}}
}

var stockLock = v1alpha1.LockFence{
	Namespace: "stock", Name: "stock", LeaseDurationSeconds: 3, RenewDeadlineSeconds: 2, RetryPeriodSeconds: 1,
	RequestTimeoutSeconds: 1, ReleaseTimeoutSeconds: ptr.To[int32](0),
}
