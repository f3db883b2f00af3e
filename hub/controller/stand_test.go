package controller

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/tenure"
)

// Rule 7: epochs rise above all that any cluster knows.
func TestALeaseRaisesTheEpochWhetherOrNotItsClusterTakesPart(t *testing.T) {
	now, key := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), seal.Key("a key of thirty-two characters..")
	us := lease.Identity("east", "fleet")
	for name, takesPart := range map[string]bool{"a cluster that takes part": true, "a cluster without a label": false} {
		t.Run(name, func(t *testing.T) {
			p := publisherThatRead(t, now, key, lease.Content{
				Namespace: "shop", Name: "leasecast", Cluster: us, ClusterUID: "uid", Hub: "this",
				Term: lease.Term{Holder: us, Epoch: 20, AcquireTime: now, RenewTime: now, Duration: 15 * time.Second},
			})
			m := decide.Member{
				Member: fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: "east"}}, Publisher: p, TakesPart: takesPart,
			}
			m.Initial, m.IsRead = p.Initial(), true
			v := &decide.Snapshot{Entry: takenOf(shop), Members: []decide.Member{m}}
			clock := fixedClock{Wall: now}
			completed(t, New(Options{HubID: "this", Clock: clock, Tenure: tenure.New(clock, 6*time.Second)}), v)
			if v.State.Highest != 20 {
				t.Errorf("the highest epoch is %d, want 20", v.State.Highest)
			}
		})
	}
}

// Rule 7: a Lease may be left of a namespace that was forgotten, because its member was away. The record that is
// made of it anew would stay below that, and the member could not be given a Lease.
func TestALeaseThatIsNewerThanTheRecordRaisesIt(t *testing.T) {
	now, us := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), lease.Identity("east", "fleet")
	key := types.NamespacedName{Namespace: "shop", Name: "leasecast"}
	for name, test := range map[string]struct {
		phase election.RecordState
		want  int64
	}{
		"while nobody leads":             {election.Draining, 20},
		"and not while another one does": {election.Leading, 5},
	} {
		t.Run(name, func(t *testing.T) {
			p := publisherThatRead(t, now, seal.Key("a key of thirty-two characters.."), lease.Content{
				Namespace: key.Namespace, Name: key.Name, Cluster: us, ClusterUID: "uid", Hub: "this",
				Term: lease.Term{Holder: us, Epoch: 20, AcquireTime: now, RenewTime: now, Duration: 15 * time.Second},
			})
			p.Forget(key.Namespace)
			p.Assign(key, assign.Assignment{Role: assign.Follow, Term: lease.Term{Epoch: 5, Duration: 15 * time.Second}},
				publish.Timings{Renew: 5 * time.Second, Timeout: time.Second})
			p.Work(t.Context(), key)
			m := decide.Member{Member: fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: "east"}}, Publisher: p, TakesPart: true}
			m.Initial, m.IsRead = p.Initial(), true
			v := &decide.Snapshot{Entry: takenOf(shop), Members: []decide.Member{m}}
			v.Record = election.Record{
				State: test.phase, Leader: "west", Epoch: 5, Duration: 15 * time.Second, LeaseName: key.Name,
			}
			clock := fixedClock{Wall: now}
			completed(t, New(Options{HubID: "this", Clock: clock, Tenure: tenure.New(clock, 6*time.Second)}), v)
			if v.State.Highest != test.want {
				t.Errorf("the highest epoch is %d, want %d", v.State.Highest, test.want)
			}
		})
	}
}
