package controller

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
)

// recordOf returns the record in a NamespaceLeader.
func recordOf(s *v1alpha1.NamespaceLeaderSpec) election.Record {
	r := election.Record{
		Leader:      s.Leader,
		Epoch:       s.Epoch,
		Revoked:     s.RevokedEpoch,
		State:       election.RecordState(s.State),
		Reason:      s.Reason,
		Since:       timeOf(s.Since),
		AcquireTime: timeOf(s.AcquireTime),
		Duration:    time.Duration(s.LeaseDurationSeconds) * time.Second,
		Skew:        milliseconds(s.MaxClockSkewMilliseconds),
		Stop:        time.Duration(s.StopTimeSeconds) * time.Second,
		OpenLocks:   s.OpenLocks,
		LeaseName:   s.LeaseName,
		NotBefore:   timeOf(s.NotBefore),
		Next:        s.Next,
		Observed:    map[string]int32{},

		UnfencedLeader: s.UnfencedLeader,
	}
	for _, p := range s.ObservedPriorities {
		r.Observed[p.Name] = p.Priority
	}
	return r
}

// store writes a record into a NamespaceLeader. The policy and the hub's mark are not part of it.
func store(r election.Record, s *v1alpha1.NamespaceLeaderSpec) {
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
	s.Next = r.Next
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
