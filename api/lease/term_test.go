package lease_test

import (
	"math"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// noon is an instant at which tests begin.
var noon = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

var (
	defaultProfile = lease.Timings{Duration: term, Renew: 5 * s, Timeout: 3 * s, Skew: s}
	fastProfile    = lease.Timings{Duration: 3 * s, Renew: s, Timeout: s / 2, Skew: s / 4}
)

func TestHubLossIsInvisibleWhenAnotherReplicaHasTimeToRenew(t *testing.T) {
	for name, row := range map[string]struct {
		timings lease.Timings
		h       time.Duration
		want    bool
	}{
		"r + h + τ + ε = D": {defaultProfile, 6 * s, true},
		"a fast hub":        {fastProfile, 1250 * time.Millisecond, true},
		"not fast enough":   {fastProfile, 1250*time.Millisecond + 1, false},
	} {
		if got := row.timings.SurvivesHubLoss(row.h); got != row.want {
			t.Errorf("%s: SurvivesHubLoss(%v) = %v, want %v", name, row.h, got, row.want)
		}
	}
}

func TestEpochsStartFromTheSecondsSince2025(t *testing.T) {
	zero := time.Date(2025, time.January, 1, 0, 0, 0, 0, time.UTC)
	for now, want := range map[time.Time]int64{
		{}: 0, zero.Add(-time.Hour): 0, zero: 0, zero.Add(s - 1): 0, zero.Add(s): 1, zero.Add(24 * time.Hour): 86400,
		zero.Add(24 * time.Hour).In(time.FixedZone("", 99)): 86400,
	} {
		if got := lease.EpochFloor(now); got != want {
			t.Errorf("EpochFloor(%v) = %d, want %d", now, got, want)
		}
	}
	const slack = 1 << 20 // a leader change every second for twelve days
	floor := lease.EpochFloor(noon)
	for epoch, want := range map[int64]bool{
		-1: false, 0: true, floor: true, floor + slack: true, floor + slack + 1: false, math.MaxInt32: false,
	} {
		if got := lease.PlausibleEpoch(noon, epoch); got != want {
			t.Errorf("PlausibleEpoch(%d) = %v, want %v", epoch, got, want)
		}
	}
}

func TestTermIsOneHoldersInOneEpoch(t *testing.T) {
	is := lease.Term{Holder: here, Epoch: 7, RenewTime: noon}
	for other, want := range map[lease.Term]bool{
		{Holder: here, Epoch: 7, RenewTime: noon.Add(s)}: true, {Holder: there, Epoch: 7, RenewTime: noon}: false,
		{Holder: here, Epoch: 8, RenewTime: noon}: false,
	} {
		if got := is.SameTerm(other); got != want {
			t.Errorf("%+v: the same term: %v", other, got)
		}
	}
}

// A confirmation ends on each of the two clocks.
func TestARegistrationPermitsForItsDuration(t *testing.T) {
	p := lease.Registration{Confirmed: noon, Duration: term}.Permit(at(0))
	for name, row := range map[string]struct {
		now  lease.Reading
		want bool
	}{
		"just before the end":            {at(term - 1), true},
		"at the end by the wall clock":   {stepped(term-1, 1), false},
		"at the end by the boot clock":   {stepped(term, -s), false},
		"a wall clock that was set back": {stepped(term-1, -time.Hour), true},
	} {
		if got := p.Holds(row.now); got != row.want {
			t.Errorf("%s: permitted %v", name, got)
		}
	}
}

func TestLeaseWithoutAHolderLeadsNowhere(t *testing.T) {
	if (lease.Content{}).LeadsHere() {
		t.Error("a Lease that names neither a holder nor a cluster leads")
	}
}
