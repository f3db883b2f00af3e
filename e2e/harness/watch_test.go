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
	type leases []struct {
		seen, stamp time.Duration
		holder      string
		gone        bool
	}
	for name, c := range map[string]struct {
		leases leases
		want   time.Duration
		none   bool
	}{
		"several renewals: the last one":           {leases{{2, 1, us, false}, {5, 4, us, false}}, 4, false},
		"another holder later: the renewal before": {leases{{2, 1, us, false}, {5, 4, them, false}}, 1, false},
		"a renewal is seen late: its renewTime":    {leases{{30, 9, us, false}}, 9, false},
		"a renewal after the instant: that before": {leases{{2, 1, us, false}, {30, 11, us, false}}, 1, false},
		"the Lease is deleted: the renewal before": {leases{{2, 1, us, false}, {5, 4, us, true}}, 1, false},
		"another holder: none":                     {leases{{5, 4, them, false}}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			var seen []Sighting[*coordinationv1.Lease]
			for _, c := range c.leases {
				l := &coordinationv1.Lease{}
				Must(t, wire.Write(lease.Content{
					Term: lease.Term{Holder: c.holder, Epoch: 1, RenewTime: start.Add(c.stamp * time.Second),
						Duration: 3 * time.Second},
					Namespace: "shop", Name: "leasecast", Cluster: us,
				}, "", l))
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
