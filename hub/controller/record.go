package controller

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
)

// recordOf reads the record out of a NamespaceLeader.
func recordOf(s *v1alpha1.NamespaceLeaderStatus) election.Record {
	r := election.Record{
		Leader:    s.Leader,
		Epoch:     s.Epoch,
		Revoked:   s.RevokedEpoch,
		Phase:     election.Phase(s.Phase),
		Reason:    s.Reason,
		Since:     timeOf(s.Since),
		Acquired:  timeOf(s.AcquireTime),
		Duration:  time.Duration(s.LeaseDurationSeconds) * time.Second,
		LeaseName: s.LeaseName,
		NotBefore: timeOf(s.NotBefore),
		Next:      s.Next,
		Heeded:    map[string]int32{},
	}
	for _, c := range s.Candidates {
		if c.Heeded != nil {
			r.Heeded[c.Name] = *c.Heeded
		}
	}
	return r
}

// store puts a record into a status. What was heeded goes with the candidates: the
// caller has put in those of this decision.
func store(r election.Record, s *v1alpha1.NamespaceLeaderStatus) {
	s.Leader = r.Leader
	s.Epoch = r.Epoch
	s.RevokedEpoch = r.Revoked
	s.Phase = v1alpha1.Phase(r.Phase)
	s.Reason = r.Reason
	s.Since = microTime(r.Since)
	s.AcquireTime = microTime(r.Acquired)
	s.LeaseDurationSeconds = int32(r.Duration / time.Second)
	s.LeaseName = r.LeaseName
	s.NotBefore = microTime(r.NotBefore)
	s.Next = r.Next
	for i := range s.Candidates {
		s.Candidates[i].Heeded = nil
		if heeded, ok := r.Heeded[s.Candidates[i].Name]; ok {
			s.Candidates[i].Heeded = &heeded
		}
	}
}

func timeOf(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// microTime cuts to microseconds, as the API server will, so that what was written
// compares equal with what is read.
func microTime(t time.Time) *metav1.MicroTime {
	if t.IsZero() {
		return nil
	}
	return &metav1.MicroTime{Time: t.UTC().Truncate(time.Microsecond)}
}
