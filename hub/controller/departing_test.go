package controller

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/publish"
)

// unpatched refuses patches.
type unpatched struct{ client.Client }

func (unpatched) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return errRefused
}

func TestARecordThatCannotBeLetGoOfIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuster(t, &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "shop"}})
		m.Client = unpatched{m.api}
		if err := (workersHub{m.Controller}).RelinquishRecords(t.Context(), "fleet"); err == nil {
			t.Error("no error")
		}
	})
}

// Rule 8: what stands of another hub is seen whichever cluster is looked at last.
func TestATermOfAnotherHubCountsWhereverItStands(t *testing.T) {
	live, lapsed := eastLease(20), eastLease(20)
	live.Hub, lapsed.Hub = "another", "another"
	lapsed.AcquireTime, lapsed.RenewTime = lapsed.AcquireTime.Add(-time.Hour), lapsed.RenewTime.Add(-time.Hour)
	v := &decide.Snapshot{Entry: takenOf(shop)}
	for _, cp := range []struct{ lapsed bool }{{false}, {true}} {
		c := live
		if cp.lapsed {
			c = lapsed
		}
		v.Members = append(v.Members, decide.Member{Member: fleet.Member{Key: eastKey}, Publisher: publisherThatRead(t,
			musterStart.Wall, testKey, c)})
	}
	c, _, _ := onScene(t)
	if completed(t, c, v); !v.State.OtherHub {
		t.Error("it is not seen")
	}
}

// Rule 7: the next epoch is above those of Leases that another hub has let go of, unless no hub can have given them.
func TestTheEpochsOfLeasesThatWereLetGoOfCount(t *testing.T) {
	for name, test := range map[string]struct{ epoch, want int64 }{"one as any": {20, 20},
		"one that no hub can have given": {1 << 30, 0}} {
		cp := eastLease(test.epoch)
		cp.Hub = ""
		v := finds(t, musterStart.Wall, true, testKey, cp)
		if v.State.Highest != test.want || (v.State.Found != nil) != (test.want != 0) {
			t.Errorf("%s: the highest is %d, standing %+v", name, v.State.Highest, v.State.Found)
		}
	}
}

func TestWhatIsNotTakenOver(t *testing.T) {
	v := &decide.Snapshot{Members: []decide.Member{{TakesPart: true, IsRead: true}}}
	v.State.Record = election.Record{State: election.Vacant, Reason: reason.Moved}
	if v.LeasesAreOurs(v.State.Record) {
		t.Error("a cluster in which nobody works")
	}
	v = &decide.Snapshot{
		Members: []decide.Member{{TakesPart: true, IsRead: true, Publisher: publish.New(publish.Options{})}},
	}
	v.State.Record = election.Record{State: election.Draining, Reason: reason.Moved, Epoch: 20, Leader: "east"}
	if v.LeasesAreOurs(v.State.Record) {
		t.Error("a term that ends")
	}
	v = &decide.Snapshot{Entry: takenOf(shop)}
	v.Record = eastLeads(20)
	if v.Managed() {
		t.Error("a record that this tenure never saw")
	}
}

// The seal of a fleet is claimed by the installation that serves it, while it has the right to write.
func TestWhenAFleetIsClaimed(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*muster)
		serves bool
		marked bool
	}{
		"nobody serves it": {func(*muster) {}, true, true},
		"another installation does": {
			func(m *muster) { m.source = elsewhere{fleetSource{m.Fleet}, "platform"} }, false, false,
		},
		"this replica is a standby":     {func(m *muster) { m.standby() }, false, false},
		"its Clusters cannot be listed": {func(m *muster) { m.source = &scene{unmoved: errRefused} }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMuster(t, clusterOf("fleet", "east", "5"))
				test.change(m)
				s, serves := m.seals.serve(t.Context(), "fleet")
				if serves != test.serves || (len(s.Key) > 0) != test.serves {
					t.Errorf("serves %v", serves)
				}
				secret := sealOf("fleet")
				_ = m.api.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)
				if marked := secret.Annotations[v1alpha1.HubAnnotation] == m.HubID; marked != test.marked {
					t.Errorf("marked %q", secret.Annotations)
				}
			})
		})
	}
}

// A seal that a move took away belongs to the hub that the fleet has moved to.
func TestASealThatAMoveTookIsNotMadeAgain(t *testing.T) {
	for moving, again := range map[fleet.Move]bool{fleet.Stays: true, fleet.Moving: false, fleet.MovedAway: false} {
		synctest.Test(t, func(t *testing.T) {
			m := newMuster(t, clusterOf("fleet", "east", "5"))
			if _, serves := m.seals.serve(t.Context(), "fleet"); !serves {
				t.Fatal("it is not served")
			}
			secret := sealOf("fleet")
			if err := m.api.Delete(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
			m.source = &scene{moves: moving}
			if _, serves := m.seals.serve(t.Context(), "fleet"); !serves {
				t.Error("it is not served any more")
			}
			err := m.api.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)
			if made := err == nil; made != again {
				t.Errorf("move %v: made again: %v", moving, made)
			}
		})
	}
}
