package ledger

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
)

// RecordOf returns the record in a NamespaceLeader.
func RecordOf(s *v1alpha1.NamespaceLeaderSpec) election.Record {
	r := election.Record{
		Leader:      s.Leader,
		Epoch:       s.Epoch,
		Revoked:     s.RevokedEpoch,
		State:       election.RecordState(s.State),
		Reason:      s.Reason,
		Since:       timeOf(s.Since),
		AcquireTime: timeOf(s.AcquireTime),
		Duration:    time.Duration(s.LeaseDurationSeconds) * time.Second,
		Skew:        time.Duration(s.MaxClockSkewMilliseconds) * time.Millisecond,
		Stop:        time.Duration(s.StopTimeSeconds) * time.Second,
		OpenLocks:   s.OpenLocks,
		LeaseName:   s.LeaseName,
		NotBefore:   timeOf(s.NotBefore),
		Next:        s.Next,
		Observed:    map[string]int32{},
		Rebalanced:  timeOf(s.RebalancedAt),

		UnfencedLeader: s.UnfencedLeader,
	}
	if f := s.Fence; f.ClusterUID != "" {
		r.Fence = election.Acceptance{UID: f.ClusterUID, At: timeOf(f.AcceptedAt), Voided: ptr.Deref(f.Voided, false)}
	}
	for _, p := range s.ObservedPriorities {
		r.Observed[p.Name] = p.Priority
	}
	return r
}

// Store writes a record into a NamespaceLeader. The policy and the hub's mark are not part of it.
func Store(r election.Record, s *v1alpha1.NamespaceLeaderSpec) {
	s.Leader = r.Leader
	s.Epoch = r.Epoch
	s.RevokedEpoch = r.Revoked
	s.State = v1alpha1.RecordState(r.State)
	s.Reason = r.Reason
	s.Since = microTime(r.Since)
	s.AcquireTime = microTime(r.AcquireTime)
	s.LeaseDurationSeconds = int32(r.Duration / time.Second)
	s.MaxClockSkewMilliseconds = int32(r.Skew.Milliseconds())
	s.StopTimeSeconds = int32((r.Stop + time.Second - 1) / time.Second)
	s.OpenLocks, s.UnfencedLeader = r.OpenLocks, r.UnfencedLeader
	s.LeaseName = r.LeaseName
	s.NotBefore = microTime(r.NotBefore)
	s.Next, s.RebalancedAt = r.Next, microTime(r.Rebalanced)
	if s.Fence = (v1alpha1.FenceRecord{}); r.Fence.UID != "" {
		s.Fence = v1alpha1.FenceRecord{ClusterUID: r.Fence.UID, AcceptedAt: microTime(r.Fence.At)}
		if r.Fence.Voided {
			s.Fence.Voided = ptr.To(true)
		}
	}
	s.ObservedPriorities = nil
	for _, name := range countable(r) {
		s.ObservedPriorities = append(s.ObservedPriorities, v1alpha1.ObservedPriority{Name: name, Priority: r.Observed[name]})
	}
}

func timeOf(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// microTime truncates to microseconds, as the API server does, so that a written time equals the one that is read
// back.
func microTime(t time.Time) *metav1.MicroTime {
	if t.IsZero() {
		return nil
	}
	return &metav1.MicroTime{Time: t.UTC().Truncate(time.Microsecond)}
}

// A record that etcd rejects would block its namespace: no decision can be persisted. Etcd takes objects of 1.5
// MiB, and whoever may create Clusters may create thousands with long names. So their priorities in a record
// are bounded, in bytes as stored. API servers store each name twice: once more in managedFields.
const (
	maxCounted = 384 << 10 // observedPriorities
	// ofCounted are the bytes that an entry takes beside its name.
	ofCounted = 96
)

// countable returns the names of the observed priorities that fit into a record. The leader comes first, then short
// names, so that nobody gains by long ones. A cluster that is left out counts as raised once it may lead.
func countable(r election.Record) []string {
	names := slices.Collect(maps.Keys(r.Observed))
	follows := func(name string) int {
		if name == r.Leader {
			return 0
		}
		return 1
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(follows(a)-follows(b), len(a)-len(b), strings.Compare(a, b))
	})
	left := maxCounted
	for i, name := range names {
		if left -= 2*len(name) + ofCounted; left < 0 {
			names = names[:i]
			break
		}
	}
	slices.Sort(names)
	return names
}
