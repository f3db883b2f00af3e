package decide

import (
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/ledger"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/worker"
)

// A follower's Lease is written on change and promises nothing, whoever it names: a tenure
// that took one for the standing term would change the leader.
func TestOnlyTheLeadersOwnLeaseIsTheStandingTerm(t *testing.T) {
	var east Member
	east.Name, east.Fleet = "east", "fleet"
	us, them := lease.Identity("east", "fleet"), lease.Identity("west", "fleet")
	found := func(v *Snapshot, contents ...lease.Content) {
		for i := range contents {
			contents[i].Namespace = "shop"
		}
		east.Publisher, east.Initial.Leases = &publish.Publisher{}, contents
		v.Members = []Member{east}
		v.Complete(Fleet{Now: lease.Reading{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}})
	}
	for name, tc := range map[string]struct {
		holder, cluster string
		stands          bool
	}{
		"the leader's own":                   {us, us, true},
		"a follower's":                       {them, us, false},
		"of nobody":                          {"", us, false},
		"of a cluster that has another name": {them, them, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := &Snapshot{Entry: takenOf(shop)}
			found(v, lease.Content{Cluster: tc.cluster, Term: lease.Term{Holder: tc.holder, Epoch: 7}})
			if stands := v.State.Found != nil; stands != tc.stands {
				t.Errorf("standing %+v, want one: %t", v.State.Found, tc.stands)
			}
		})
	}
	v := &Snapshot{Entry: takenOf(shop)}
	var contents []lease.Content
	for _, epoch := range []int64{7, 9, 8} {
		contents = append(contents, lease.Content{Cluster: us, Term: lease.Term{Holder: us, Epoch: epoch}})
	}
	found(v, contents...)
	if v.State.Found.Term.Epoch != 9 {
		t.Errorf("standing %+v, want the highest epoch", v.State.Found)
	}
}

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
		"nothing": {leads, "east", publish.SyncStatus{}, election.State{}},
		"the leader's is lost": {
			leads, "east", publish.SyncStatus{Lost: true}, election.State{LeaseLost: true},
		},
		"another one's is lost": {
			leads, "west", publish.SyncStatus{Lost: true}, election.State{},
		},
		"the leader's epoch is burnt": {
			leads, "east", publish.SyncStatus{PoisonedEpoch: 20}, election.State{LeaseLost: true, Highest: 20},
		},
		"an earlier epoch of the leader is burnt": {
			leads, "east", publish.SyncStatus{PoisonedEpoch: 19}, election.State{Highest: 19},
		},
		"another one's is burnt, while one leads": {
			leads, "west", publish.SyncStatus{PoisonedEpoch: 30}, election.State{},
		},
		"another one's is burnt, while nobody leads": {
			drains, "west", publish.SyncStatus{PoisonedEpoch: 30}, election.State{Highest: 30},
		},
		"another one's is newer, while nobody leads": {
			drains, "west", publish.SyncStatus{Newer: 31}, election.State{Highest: 31},
		},
		"the leader's is newer": {
			leads, "east", publish.SyncStatus{Newer: 31}, election.State{Highest: 31},
		},
		"all readers have released the term": {
			revoked, "east", publish.SyncStatus{Released: 20}, election.State{Released: true},
		},
		"all have released another term": {
			revoked, "east", publish.SyncStatus{Released: 19}, election.State{},
		},
		"the readers of another cluster have": {
			revoked, "west", publish.SyncStatus{Released: 20}, election.State{},
		},
		"nothing is revoked, and nothing was released": {drains, "east", publish.SyncStatus{}, election.State{}},
		"the term that is revoked is the first that there is": {
			election.Record{State: election.Draining, Leader: "east", Epoch: 2, Revoked: 1}, "east",
			publish.SyncStatus{Released: 1}, election.State{Released: true},
		},
		"another hub's Lease": {
			leads, "west", publish.SyncStatus{Problem: reason.OtherHub}, election.State{OtherHub: true},
		},
		"another problem": {
			leads, "west", publish.SyncStatus{Problem: reason.Unwritable}, election.State{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := &Snapshot{Entry: takenOf(shop), Members: []Member{{
				Member:    fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: test.member}},
				Publisher: &publish.Publisher{}, Sync: test.facts,
			}}}
			v.Record = test.record
			v.Complete(Fleet{Now: start})
			s, highest := v.State, max(test.record.Epoch, test.want.Highest)
			if s.LeaseLost != test.want.LeaseLost || s.Released != test.want.Released || s.Highest != highest ||
				s.OtherHub != test.want.OtherHub {
				t.Errorf("lost %v, released %v, highest %d, other hub %v", s.LeaseLost, s.Released, s.Highest, s.OtherHub)
			}
		})
	}
}

// A Lease keeps its name until its record says otherwise, whatever the policy says by then.
func TestHowALeaseIsNamed(t *testing.T) {
	v := shopView(election.Record{LeaseName: "old"})
	v.Policy.Election.LeaseName = "new"
	if key := v.LeaseKey(v.State.Record); key.Namespace != "shop" || key.Name != "old" {
		t.Errorf("%v", key)
	}
	v.State.Record.LeaseName = ""
	if key := v.LeaseKey(v.State.Record); key.Name != "new" {
		t.Errorf("without a record: %v", key)
	}
	v.Policy = nil
	if key := v.LeaseKey(v.State.Record); key.Name != "" {
		t.Errorf("without both: %v", key)
	}
}

// Rule 16.
func TestLockIsRefusedOnlyWhereEveryReachedMemberSaysSo(t *testing.T) {
	member := func(name string, since time.Duration, err error) Member {
		return Member{
			Member: fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: name}, Connected: true}, TakesPart: true,
			Verdict: health.Verdict{State: health.Healthy}, Namespace: &corev1.Namespace{}, Refusals: []Refusal{
				{Lock: "stock/stock", Since: since, Err: err},
			},
		}
	}
	east := member("east", time.Minute, nil)
	unhealthy := func(m *Member) { m.Verdict.State = health.Unhealthy }
	for name, test := range map[string]struct {
		west  Member
		since map[string]time.Duration
	}{
		"the last one counts": {
			member("west", time.Hour, nil), map[string]time.Duration{"stock/stock": time.Hour},
		},
		"whichever it is": {
			member("west", time.Second, nil), map[string]time.Duration{"stock/stock": time.Minute},
		},
		"one whose administrator has not allowed it": {
			member("west", 0, guard.NotAllowedError{Namespaces: []string{"stock"}}), map[string]time.Duration{},
		},
		"one that does not refuse it yet":           {member("west", 0, guard.ErrNotEnforced), map[string]time.Duration{}},
		"one that was not checked yet":              {member("west", 0, worker.ErrUnchecked), map[string]time.Duration{}},
		"one whose fence is stored and not checked": {member("west", 0, worker.ErrStored), map[string]time.Duration{}},
		"one that will not have the fence": {
			member("west", 0, fmt.Errorf("rights: %w", guard.ErrForbidden)),
			map[string]time.Duration{"stock/stock": time.Minute},
		},
		"one that does not store the fence": {
			member("west", 0, apierrors.NewInvalid(schema.GroupKind{}, "gate", nil)),
			map[string]time.Duration{"stock/stock": time.Minute},
		},
		"one that was lost before it refused": {
			changed(member("west", 0, guard.ErrNotEnforced), unhealthy), map[string]time.Duration{"stock/stock": 2 * time.Hour},
		},
		"one that was lost after it refused": {
			changed(member("west", time.Hour, nil), unhealthy), map[string]time.Duration{"stock/stock": time.Hour},
		},
		"one that was lost and will not have it": {
			changed(member("west", 0, guard.ErrForbidden), unhealthy), map[string]time.Duration{"stock/stock": time.Minute},
		},
		"one that takes no part": {
			changed(member("west", 0, guard.ErrNotEnforced), func(m *Member) { m.TakesPart = false }),
			map[string]time.Duration{"stock/stock": time.Minute},
		},
		"one without the policy's namespace": {
			changed(member("west", 0, guard.ErrNotEnforced), func(m *Member) { m.Namespace = nil }),
			map[string]time.Duration{},
		},
		"one in which nobody can hold it": {
			changed(member("west", 0, nil), func(m *Member) { m.Refusals = nil }),
			map[string]time.Duration{"stock/stock": time.Minute},
		},
		"one that has been let go of in this moment": {
			changed(member("west", 0, guard.ErrNotEnforced), func(m *Member) { m.Connected = false }),
			map[string]time.Duration{"stock/stock": 2 * time.Hour},
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := shopView(election.Record{}, east, test.west)
			v.Policy = asParsed(fencing(&v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{stockLock}}))
			for _, at := range []time.Duration{2 * time.Hour, 3 * time.Hour} { // what is lost stays lost since then
				if v.Complete(Fleet{Now: lease.Reading{Boot: at}}); !maps.Equal(v.State.RefusedSince, test.since) {
					t.Errorf("%v, want %v", v.State.RefusedSince, test.since)
				}
			}
		})
	}
	t.Run("one that was reached in between was lost later", func(t *testing.T) {
		e := takenOf(shop)
		for at, is := range []func(*Member){unhealthy, func(*Member) {}, unhealthy} {
			v := shopView(election.Record{}, east, changed(member("west", 0, guard.ErrNotEnforced), is))
			v.Policy, v.Entry = asParsed(fencing(&v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{stockLock}})), e
			v.Complete(Fleet{Now: lease.Reading{Boot: time.Duration(at+1) * time.Hour}})
			if at == 2 && v.State.RefusedSince["stock/stock"] != 3*time.Hour {
				t.Errorf("%v", v.State.RefusedSince)
			}
		}
	})
}

// Rule 6.
func TestWhichBoundsOfTheSealCountForARecord(t *testing.T) {
	s := seal.Seal{Policies: map[string]seal.Bounds{}}
	for i, name := range []string{"shops", "younger", "other", "deleted"} {
		s.Policies[name] = seal.Bounds{Stop: time.Duration(i+1) * time.Second}
	}
	all := claims("shops", "younger", "other")
	record := func(policy string) *v1alpha1.NamespaceLeaderSpec {
		return &v1alpha1.NamespaceLeaderSpec{Policy: policy, State: v1alpha1.StateLeading, LeaseDurationSeconds: 15}
	}
	for name, test := range map[string]struct {
		found *v1alpha1.NamespaceLeaderSpec
		want  time.Duration
	}{
		"its owner's":                {record("shops"), time.Second},
		"also its former owner's":    {record("other"), 3 * time.Second},
		"a lost record's: a deleted": {nil, 4 * time.Second},
		"an emptied record's, too":   {&v1alpha1.NamespaceLeaderSpec{Policy: "other"}, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			v := &Snapshot{Entry: takenOf(shop), Policy: all[0], Losers: all[1:2]}
			if v.Found = test.found; test.found != nil {
				v.Record = ledger.RecordOf(test.found)
			}
			if v.Complete(Fleet{Seal: s, Policies: all}); v.State.LargestStop != test.want {
				t.Errorf("%v, want %v", v.State.LargestStop, test.want)
			}
		})
	}
}
