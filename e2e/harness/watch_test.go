package harness

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
)

func TestLastRenewTime(t *testing.T) {
	start := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC) // boot reading 0
	const us, them = "east.default", "west.default"
	type leaseAt struct {
		seen, stamp time.Duration
		holder      string
		gone        bool
	}
	for name, c := range map[string]struct {
		copies []leaseAt
		want   time.Duration
		none   bool
	}{
		"several renewals: the last one": {copies: []leaseAt{{seen: 2, stamp: 1, holder: us},
			{seen: 5, stamp: 4, holder: us}}, want: 4},
		"a later Lease names another cluster: the one before": {copies: []leaseAt{{seen: 2, stamp: 1, holder: us},
			{seen: 5, stamp: 4, holder: them}}, want: 1},
		"a renewal is seen late: its renewTime counts": {copies: []leaseAt{{seen: 30, stamp: 9, holder: us}}, want: 9},
		"a renewTime after the instant: the one before": {copies: []leaseAt{{seen: 2, stamp: 1, holder: us},
			{seen: 30, stamp: 11, holder: us}}, want: 1},
		"the Lease is deleted: the renewal before": {copies: []leaseAt{{seen: 2, stamp: 1, holder: us},
			{seen: 5, stamp: 4, holder: us, gone: true}}, want: 1},
		"no Lease names the cluster: none": {copies: []leaseAt{{seen: 5, stamp: 4, holder: them}}, none: true},
	} {
		t.Run(name, func(t *testing.T) {
			var seen []Sighting[*coordinationv1.Lease]
			for _, c := range c.copies {
				l := &coordinationv1.Lease{}
				if err := wire.Write(lease.Content{
					Term: lease.Term{Holder: c.holder, Epoch: 1, RenewTime: start.Add(c.stamp * time.Second),
						Duration: 3 * time.Second},
					Namespace: "shop", Name: "leasecast", Cluster: us,
				}, "", l); err != nil {
					t.Fatal(err)
				}
				at := lease.Reading{Boot: c.seen * time.Second, Wall: start.Add(c.seen * time.Second)}
				seen = append(seen, Sighting[*coordinationv1.Lease]{At: at, Object: l, Gone: c.gone})
			}
			got, ok := LastRenewTime(seen, "shop", 10*time.Second)
			if ok == c.none || got != c.want*time.Second {
				t.Errorf("last stamp %v, %v; want %v s, any: %v", got, ok, int64(c.want), !c.none)
			}
			if _, ok := LastRenewTime(seen, "ledger", 10*time.Second); ok {
				t.Error("a renewTime in another namespace counts")
			}
		})
	}
}
