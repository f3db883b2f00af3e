package controller

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/skew"
)

// What the leader's Lease shows counts for its term; what another one shows for the next.
func TestWhatADecisionTakesFromTheLeases(t *testing.T) {
	leads := election.Record{State: election.Leading, Leader: "east", Epoch: 20}
	revoked := election.Record{State: election.Draining, Leader: "east", Epoch: 21, Revoked: 20}
	drains := election.Record{State: election.Draining, Leader: "east", Epoch: 20}
	for name, test := range map[string]struct {
		record election.Record
		member string
		facts  publish.SyncStatus
		want   election.State
	}{
		"nothing":                                             {leads, "east", publish.SyncStatus{}, election.State{}},
		"the leader's is lost":                                {leads, "east", publish.SyncStatus{Lost: true}, election.State{LeaseLost: true}},
		"another one's is lost":                               {leads, "west", publish.SyncStatus{Lost: true}, election.State{}},
		"the leader's epoch is burnt":                         {leads, "east", publish.SyncStatus{PoisonedEpoch: 20}, election.State{LeaseLost: true, Highest: 20}},
		"an earlier epoch of the leader is burnt":             {leads, "east", publish.SyncStatus{PoisonedEpoch: 19}, election.State{Highest: 19}},
		"another one's is burnt, while one leads":             {leads, "west", publish.SyncStatus{PoisonedEpoch: 30}, election.State{}},
		"another one's is burnt, while nobody leads":          {drains, "west", publish.SyncStatus{PoisonedEpoch: 30}, election.State{Highest: 30}},
		"another one's is newer, while nobody leads":          {drains, "west", publish.SyncStatus{Newer: 31}, election.State{Highest: 31}},
		"the leader's is newer":                               {leads, "east", publish.SyncStatus{Newer: 31}, election.State{Highest: 31}},
		"all readers have released the term":                  {revoked, "east", publish.SyncStatus{Released: 20}, election.State{Released: true}},
		"all have released another term":                      {revoked, "east", publish.SyncStatus{Released: 19}, election.State{}},
		"the readers of another cluster have":                 {revoked, "west", publish.SyncStatus{Released: 20}, election.State{}},
		"nothing is revoked, and nothing was released":        {drains, "east", publish.SyncStatus{}, election.State{}},
		"the term that is revoked is the first that there is": {election.Record{State: election.Draining, Leader: "east", Epoch: 2, Revoked: 1}, "east", publish.SyncStatus{Released: 1}, election.State{Released: true}},
		"another hub's Lease":                                 {leads, "west", publish.SyncStatus{Problem: reason.OtherHub}, election.State{OtherHub: true}},
		"another problem":                                     {leads, "west", publish.SyncStatus{Problem: reason.Unwritable}, election.State{}},
	} {
		t.Run(name, func(t *testing.T) {
			v := &view{}
			v.state.Record = test.record
			v.addStatus(&memberView{Member: fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: test.member}}, facts: test.facts})
			s := v.state
			if s.LeaseLost != test.want.LeaseLost || s.Released != test.want.Released || s.Highest != test.want.Highest || s.OtherHub != test.want.OtherHub {
				t.Errorf("lost %v, released %v, highest %d, other hub %v", s.LeaseLost, s.Released, s.Highest, s.OtherHub)
			}
		})
	}
}

// Those that were lost within one window of the last one count, of those that take part.
func TestWhichLostClustersCountTogether(t *testing.T) {
	const window = 10 * time.Second
	at := func(state health.State, since time.Duration) memberView {
		return memberView{takesPart: true, verdict: health.Verdict{State: state, Since: lease.Reading{Boot: time.Hour + since}}}
	}
	outside := func(m memberView) memberView {
		m.takesPart = false
		return m
	}
	for name, test := range map[string]struct {
		members []memberView
		want    bool
	}{
		"one that came back since is no end of the window": {[]memberView{at(health.Unhealthy, 0), at(health.Unhealthy, 0), at(health.Healthy, time.Hour)}, true},
		"the only one that takes part":                     {[]memberView{at(health.Unhealthy, 0), outside(at(health.Healthy, 0))}, true},
		"the last one comes first":                         {[]memberView{at(health.Unhealthy, window+1), at(health.Unhealthy, 0), at(health.Healthy, 0)}, false},
		"one that takes no part was lost last":             {[]memberView{at(health.Unhealthy, 0), outside(at(health.Unhealthy, time.Hour))}, true},
	} {
		if got := mostUnreachable(test.members, window); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

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
	v.policy.thresholds = health.Thresholds{UnreachableAfter: 7 * time.Second, RecoverAfter: 9 * time.Second}
	c.addHealth(v, &v.members[1], c.now())
	if v.state.Behind != 0 {
		t.Errorf("the leader is behind by %v, although another one was judged", v.state.Behind)
	}
	v.state.Behind = -1
	c.addHealth(v, &v.members[0], c.now())
	if s.th != v.policy.thresholds || s.eps != time.Second {
		t.Errorf("judged by %+v and %v", s.th, s.eps)
	}
	if v.state.Behind != twoAhead.Behind() || v.members[0].clock.State != skew.Beyond {
		t.Errorf("behind by %v, clock %v", v.state.Behind, v.members[0].clock)
	}
	v.policy, v.members[0].verdict = nil, health.Verdict{}
	if c.addHealth(v, &v.members[0], c.now()); v.members[0].verdict.State == health.Healthy {
		t.Error("judged without a policy")
	}
}

// A Lease keeps its name until its record says otherwise, whatever the policy says by then.
func TestHowALeaseIsNamed(t *testing.T) {
	v := shopView(election.Record{LeaseName: "old"})
	v.policy.election.LeaseName = "new"
	if key := v.leaseKey(); key.Namespace != "shop" || key.Name != "old" {
		t.Errorf("%v", key)
	}
	v.state.Record.LeaseName = ""
	if key := v.leaseKey(); key.Name != "new" {
		t.Errorf("without a record: %v", key)
	}
	v.policy = nil
	if key := v.leaseKey(); key.Name != "" {
		t.Errorf("without both: %v", key)
	}
}
