package controller

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/skew"
)

// strict is a sight that asks for what a policy says.
type strict struct {
	scene
	th  health.Thresholds
	eps time.Duration
}

func (s *strict) health(_ fleet.Member, th health.Thresholds) health.Verdict {
	s.th = th
	return health.Verdict{State: health.Healthy}
}

func (s *strict) clock(_ lease.Reading, _ fleet.Member, eps time.Duration) skew.Verdict {
	s.eps = eps
	return twoAhead
}

func TestAMemberIsJudgedByThePolicy(t *testing.T) {
	c, _, _ := onScene(t)
	s := &strict{}
	c.source = s
	v := shopView(eastLeads(20), measured("east", agrees), measured("west", agrees))
	v.Policy.Thresholds = health.Thresholds{UnreachableAfter: 7 * time.Second, RecoverAfter: 9 * time.Second}
	for i := range v.Members {
		v.Members[i].Publisher = nil
	}
	completed(t, c, v)
	if s.th != v.Policy.Thresholds || s.eps != time.Second {
		t.Errorf("judged by %+v and %v", s.th, s.eps)
	}
	if v.State.Behind != twoAhead.Behind() || v.Members[0].ClockVerdict.State != skew.Beyond {
		t.Errorf("behind by %v, clock %v", v.State.Behind, v.Members[0].ClockVerdict)
	}
	v.Policy, v.Members[0].Verdict = nil, health.Verdict{}
	if completed(t, c, v); v.Members[0].Verdict.State == health.Healthy {
		t.Error("judged without a policy")
	}
}
