package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/skew"
)

var (
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

// lateClocks sees members whose clocks are behind.
type lateClocks struct {
	memberSource
	behind map[string]time.Duration
}

func (lateClocks) health(fleet.Member, health.Thresholds) health.Verdict { return health.Verdict{} }

func (s lateClocks) clock(_ lease.Reading, m fleet.Member, _ time.Duration) skew.Verdict {
	d := s.behind[m.Name]
	return skew.Verdict{State: skew.Beyond, Offset: skew.Interval{Lo: -d, Hi: -d}}
}

func TestTheBoundWaitsForTheLeadersClockOnly(t *testing.T) {
	c := New(Options{Clock: fixedClock(musterStart)})
	c.source = lateClocks{behind: map[string]time.Duration{"east": 2 * time.Second, "west": 9 * time.Second}}
	v := shopView(election.Record{Leader: "east"}, measured("east", vague), measured("west", vague))
	for i := range v.Members {
		v.Members[i].Publisher = nil
	}
	completed(t, c, v)
	if got := v.State.Behind; got != 2*time.Second {
		t.Errorf("waits for %v, want the 2s of east", got)
	}
}
