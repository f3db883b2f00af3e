// Package decidetest makes the policies, members and snapshots that tests of decisions start from.
package decidetest

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

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
	// Shop is the key of the namespace that all snapshots are of.
	Shop = types.NamespacedName{Namespace: "fleet", Name: "shop"}
	// Start is when all tests begin.
	Start = lease.Reading{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Boot: time.Hour}
	// EastKey is a member of the fleet.
	EastKey = fleet.Key{Fleet: "fleet", Name: "east"}
	// WestKey is another one.
	WestKey = fleet.Key{Fleet: "fleet", Name: "west"}
	// Agrees is the verdict on a clock that is right.
	Agrees = skew.Verdict{State: skew.Within}
	// Vague is the verdict on a clock that was not measured.
	Vague = skew.Verdict{}
	// TwoAhead is the verdict on a clock that is 2 s ahead.
	TwoAhead = skew.Verdict{
		State: skew.Beyond, Offset: skew.Interval{Lo: 1990 * time.Millisecond, Hi: 2010 * time.Millisecond},
	}
	// StockLock is a lock whose holder stops within 4 s.
	StockLock = v1alpha1.LockFence{
		Namespace: "stock", Name: "stock", LeaseDurationSeconds: 3, RenewDeadlineSeconds: 2, RetryPeriodSeconds: 1,
		RequestTimeoutSeconds: 1, ReleaseTimeoutSeconds: ptr.To[int32](0),
	}
)

// Member returns a healthy member with namespace shop, after some changes.
func Member(name string, clock skew.Verdict, changes ...func(*decide.Member)) decide.Member {
	m := decide.Member{
		Member:    fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: name}, Connected: true},
		TakesPart: true, IsRead: true, Publisher: &publish.Publisher{},
		Namespace:    &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		Verdict:      health.Verdict{State: health.Healthy, Answering: true},
		ClockVerdict: clock,
	}
	for _, change := range changes {
		change(&m)
	}
	return m
}

// Snapshot returns a snapshot of namespace shop, which a policy with an ε of 1 s owns.
func Snapshot(r election.Record, ms ...decide.Member) *decide.Snapshot {
	v := &decide.Snapshot{Entry: Entry(Shop), Members: ms,
		Policy: &decide.Policy{
			Object: &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "shops", Generation: 7}},
			Names:  map[string]bool{"shop": true}, Election: election.Policy{Timings: lease.Timings{Skew: time.Second}},
		}}
	v.Record, v.State.Record = r, r
	return v
}

// Entry returns the entry of a namespace without a record.
func Entry(key types.NamespacedName) *ledger.Entry {
	return &ledger.Entry{Taken: ledger.Taken{Key: key}}
}

// Candidates returns the candidates of a snapshot, and when one may change by time alone.
func Candidates(v *decide.Snapshot) ([]decide.Candidate, time.Duration) {
	p := v.Decide(Start, election.Sent{Final: true}, false)
	return p.Candidates, p.Health
}

// EastLeads returns the record of a term of east.
func EastLeads(epoch int64) election.Record {
	return election.Record{
		State: election.Leading, Reason: reason.Elected, Leader: "east", Epoch: epoch, Duration: 15 * time.Second,
		LeaseName: "leasecast", Observed: map[string]int32{"east": 9},
	}
}

// Lease returns the Lease of a term of east in east, stamped at the start, after some changes.
func Lease(epoch int64, changes ...func(*lease.Content)) lease.Content {
	us := EastKey.Identity()
	c := lease.Content{Namespace: "shop", Name: "leasecast", Cluster: us, ClusterUID: "uid", Hub: "this"}
	c.Term = lease.Term{
		Holder: us, Epoch: epoch, AcquireTime: Start.Wall, RenewTime: Start.Wall, Duration: 15 * time.Second,
	}
	for _, change := range changes {
		change(&c)
	}
	return c
}

// PolicyFor returns a valid policy for a namespace.
func PolicyFor(fleetName, name, namespace string) *v1alpha1.LeadershipPolicy {
	p := &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: fleetName, Name: name, Generation: 7}}
	p.Spec.InitialDelaySeconds = ptr.To(int32(0))
	p.Spec.Namespaces.Names = []string{namespace}
	p.Spec.Timings = v1alpha1.Timings{
		LeaseDurationMilliseconds: 15_000, RenewIntervalMilliseconds: 5000,
		RequestTimeoutMilliseconds: 3000, MaxClockSkewMilliseconds: 1000,
	}
	return p
}

// Fencing returns a valid policy for namespace shop with fences.
func Fencing(f *v1alpha1.Fencing) *v1alpha1.LeadershipPolicy {
	p := PolicyFor("fleet", "shops", "shop")
	p.Spec.Handover, p.Spec.Fencing = v1alpha1.HandoverRegisteredReaders, f
	return p
}

// Locks returns the fencing of locks.
func Locks(of ...v1alpha1.LockFence) *v1alpha1.Fencing {
	return &v1alpha1.Fencing{LeaderElectionLocks: of}
}

// Policies returns policies for namespace shop by their names. One whose name ends with ! is invalid.
func Policies(names ...string) (ps []*decide.Policy) {
	for _, name := range names {
		p := decide.ParsePolicy(PolicyFor("fleet", name, "shop"))
		if name[len(name)-1] == '!' {
			p.Invalid, p.Unknown = errors.New("its timings"), true
		}
		ps = append(ps, p)
	}
	return ps
}
