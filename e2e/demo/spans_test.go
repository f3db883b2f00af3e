package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/e2e/harness"
)

// epoch0 is the wall time at boot reading 0 in these tests.
var epoch0 = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// sighting is a Lease in east, in seconds on the boot clock.
func sighting(t *testing.T, at, stamp float64, holder string) harness.Sighting[*coordinationv1.Lease] {
	t.Helper()
	boot := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	l := &coordinationv1.Lease{}
	if err := wire.Write(lease.Content{
		Term:      lease.Term{Holder: holder, Epoch: 7, RenewTime: epoch0.Add(boot(stamp)), Duration: 3 * time.Second},
		Namespace: "shop", Name: "leasecast", Cluster: "east.default",
	}, "", l); err != nil {
		t.Fatal(err)
	}
	return harness.Sighting[*coordinationv1.Lease]{
		At: lease.Reading{Boot: boot(at), Wall: epoch0.Add(boot(at))}, Object: l,
	}
}

func TestPermits(t *testing.T) {
	const us, them = "east.default", "west.default"
	type at struct {
		seen, stamp float64
		holder      string
	}
	for name, c := range map[string]struct {
		seen []at
		want []span
	}{
		"a Lease lets its member act from its sighting to its deadline": {
			seen: []at{{1.1, 1, us}}, want: []span{{1100 * time.Millisecond, 4 * time.Second}},
		},
		"renewals prolong it": {
			seen: []at{{1.1, 1, us}, {2.1, 2, us}}, want: []span{{1100 * time.Millisecond, 5 * time.Second}},
		},
		"the name of another ends it": {
			seen: []at{{1.1, 1, us}, {2, 2, them}}, want: []span{{1100 * time.Millisecond, 2 * time.Second}},
		},
		"a Lease that is seen after its deadline lets nobody act": {
			seen: []at{{5, 1, us}},
		},
		"after a lapse it begins anew": {
			seen: []at{{1, 1, us}, {6, 6, us}}, want: []span{{1 * time.Second, 4 * time.Second}, {6 * time.Second, 9 * time.Second}},
		},
		"another's name long after the deadline changes nothing": {
			seen: []at{{1, 1, us}, {9, 9, them}}, want: []span{{1 * time.Second, 4 * time.Second}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var seen []harness.Sighting[*coordinationv1.Lease]
			for _, s := range c.seen {
				seen = append(seen, sighting(t, s.seen, s.stamp, s.holder))
			}
			if diff := cmp.Diff(c.want, permits(seen, "shop"), cmp.AllowUnexported(span{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("permits (-want +got):\n%s", diff)
			}
			if got := permits(seen, "ledger"); len(got) != 0 {
				t.Errorf("permits %v in a namespace without a Lease", got)
			}
		})
	}
}

func TestStintsEndWithClusterOrEpoch(t *testing.T) {
	do := func(cluster string, epoch int64, begin, end time.Duration) harness.Act {
		return harness.Act{Namespace: "shop", Cluster: cluster, Epoch: epoch, Begin: begin, End: end}
	}
	got := stints([]harness.Act{
		do("west", 3, 50, 60), do("east", 1, 0, 5), do("east", 1, 10, 15), do("east", 2, 20, harness.Unfinished),
		{Namespace: "ledger", Cluster: "south", Begin: 12},
	}, "shop")
	want := []stint{
		{span{0, 15}, "east", 1, 2},
		{span{20, 20}, "east", 2, 1},
		{span{50, 60}, "west", 3, 1},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(span{}, stint{})); diff != "" {
		t.Errorf("stints (-want +got):\n%s", diff)
	}
}

func TestBarShowsWhoMightActAndDid(t *testing.T) {
	got := bar(100, 10, 6, []span{{105, 145}}, []span{{112, 114}, {131, 131}})
	if want := "░█░█░·"; got != want {
		t.Errorf("bar %q, want %q", got, want)
	}
}
