package controller

import (
	"context"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/ledger"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/seal"
)

// found is a member's API server that shows one Lease when it is asked for all.
type found struct {
	coordinationclient.LeaseInterface
	copy *coordinationv1.Lease
}

func (f found) Leases(string) coordinationclient.LeaseInterface { return f }

func (f found) List(context.Context, metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	return &coordinationv1.LeaseList{Items: []coordinationv1.Lease{*f.copy}}, nil
}

// Rule 8: what stands is seen as soon as the member was read, before anything was done with any Lease:
// where nothing stands, all Leases are taken, and a term that was overlooked would end.
func TestWhatIsFoundOfAMovedNamespaceCountsAtOnce(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	key, another := seal.Key("a key of thirty-two characters.."), seal.Key("another one of as many characters")
	us, them := lease.Identity("east", "fleet"), lease.Identity("west", "fleet")
	for name, test := range map[string]struct {
		hub, holder string
		key         seal.Key
		stands      bool
		otherHub    bool
	}{
		"the leader's Lease, of which the other hub has let go":   {"", us, key, true, false},
		"the leader's Lease, which is this hub's already":         {"this", us, key, true, false},
		"the leader's Lease, which the other hub writes":          {"another", us, key, false, true},
		"a follower's Lease, of which the other hub has let go":   {"", them, key, false, false},
		"a follower's Lease, which the other hub writes":          {"another", them, key, false, true},
		"a Lease of another hub with another seal":                {"another", us, another, false, true},
		"a Lease without a mark that has a seal of somebody else": {"", us, another, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := finds(t, now, true, test.key, lease.Content{
				Namespace: "shop", Name: "leasecast", Cluster: us, ClusterUID: "uid", Hub: test.hub,
				Term: lease.Term{Holder: test.holder, Epoch: 20, AcquireTime: now, RenewTime: now, Duration: 15 * time.Second},
			})
			if stands := v.State.Found != nil; stands != test.stands || v.State.OtherHub != test.otherHub {
				t.Errorf("stands %v, other hub %v; want %v, %v", stands, v.State.OtherHub, test.stands, test.otherHub)
			}
		})
	}
}

// Rule 8: two hubs whose policies name their Leases differently would both have their leader.
func TestATermOfAnotherHubKeepsThisOneFromDeciding(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	another := seal.Key("another one of as many characters")
	us, them := lease.Identity("east", "fleet"), lease.Identity("west", "fleet")
	const second = time.Second
	for name, test := range map[string]struct {
		hub, holder string
		stop        time.Duration // the largest of fenced locks
		after       time.Duration // the renewTime
		want        bool
	}{
		"that stands, under whatever name":       {"another", us, 0, 0, true},
		"that a late reader may still act by":    {"another", us, 0, 16*second - 1, true},
		"that has lapsed":                        {"another", us, 0, 16 * second, false},
		"that a fenced lock may still outlast":   {"another", us, 20 * second, 36*second - 1, true},
		"that has lapsed, with all fenced locks": {"another", us, 20 * second, 36 * second, false},
		"that leads elsewhere, as a Lease says":  {"another", them, 0, 0, false},
		"that this hub began, under an old name": {"this", us, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := finds(t, now.Add(test.after), false, another, lease.Content{
				Namespace: "shop", Name: "another-name", Cluster: us, ClusterUID: "uid", Hub: test.hub,
				Term: lease.Term{Holder: test.holder, Epoch: 20, AcquireTime: now, RenewTime: now, Duration: 15 * second},
			}, test.stop)
			if v.State.OtherHub != test.want {
				t.Errorf("other hub %v, want %v", v.State.OtherHub, test.want)
			}
		})
	}
}

// finds is what the hub "this" makes of the one Lease that it finds in a member, under an ε of 1 s and the largest of
// some stop times.
func finds(
	t *testing.T, now time.Time, moved bool, key seal.Key, cp lease.Content, stop ...time.Duration,
) *decide.Snapshot {
	t.Helper()
	v := &decide.Snapshot{Entry: &ledger.Entry{Taken: ledger.Taken{Key: shop, Moved: moved}}, Members: []decide.Member{{
		Member: fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: "east"}}, Publisher: publisherThatRead(t, now, key, cp),
	}}}
	c := New(Options{HubID: "this", Clock: fixedClock{Wall: now}})
	return completed(t, c, v, seal.Bounds{Skew: time.Second, Stop: slices.Max(append(stop, 0))})
}

// publisherThatRead is a publisher of the hub "this" that has read the one Lease in a member.
func publisherThatRead(t *testing.T, now time.Time, key seal.Key, cp lease.Content) *publish.Publisher {
	t.Helper()
	obj := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "1"}}
	if err := seal.Write(key, cp, obj); err != nil {
		t.Fatal(err)
	}
	p := publish.New(publish.Options{
		Client: found{copy: obj}, Fleet: "fleet", Cluster: cp.Cluster, ClusterUID: cp.ClusterUID, Hub: "this",
		Key:      seal.Key("a key of thirty-two characters.."),
		Clock:    fixedClock{Wall: now, Boot: time.Hour},
		MayWrite: func(lease.Reading) bool { return true }, Promises: publish.NewPromises(),
		Report: func(bool, lease.Reading, error) {}, Changed: func(string) {},
		Queue: workqueue.NewTypedDelayingQueue[types.NamespacedName](),
	})
	t.Cleanup(p.Queue.ShutDown)
	if !p.ReadAll(t.Context()) {
		t.Fatal("the Leases were not read")
	}
	return p
}
