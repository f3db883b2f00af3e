package lease_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// noon is an instant at which tests begin.
var noon = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func TestDeadlineIsRenewTimePlusDuration(t *testing.T) {
	term := lease.Term{RenewTime: noon, Duration: 15 * time.Second}
	if got, want := term.Deadline(), noon.Add(15*time.Second); !got.Equal(want) {
		t.Errorf("Deadline = %v, want %v", got, want)
	}
	for at, live := range map[time.Duration]bool{
		-time.Hour: true, 0: true, 15*time.Second - 1: true, 15 * time.Second: false, time.Hour: false,
	} {
		if got := term.Live(noon.Add(at)); got != live {
			t.Errorf("Live %v after the renewTime = %v, want %v", at, got, live)
		}
	}
	if (lease.Term{}).Live(noon) {
		t.Error("the zero Term promises something")
	}
}

func TestSameTermIsHolderAndEpochWhateverTheRenewTimes(t *testing.T) {
	base := lease.Term{Holder: "east.default", Epoch: 7, AcquireTime: noon, RenewTime: noon, Duration: time.Second}
	tests := map[string]struct {
		change func(*lease.Term)
		want   bool
	}{
		"nothing changed": {func(*lease.Term) {}, true},
		"renewed":         {func(o *lease.Term) { o.RenewTime = noon.Add(time.Second) }, true},
		"another D":       {func(o *lease.Term) { o.Duration = time.Hour }, true},
		"another holder":  {func(o *lease.Term) { o.Holder = "west.default" }, false},
		"nobody":          {func(o *lease.Term) { o.Holder = "" }, false},
		"another epoch":   {func(o *lease.Term) { o.Epoch = 8 }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			other := base
			test.change(&other)
			if base.SameTerm(other) != test.want || other.SameTerm(base) != test.want {
				t.Errorf("SameTerm = %v, want %v", !test.want, test.want)
			}
		})
	}
}

func TestLeadsHereWhenTheHolderIsTheClusterOfTheLease(t *testing.T) {
	tests := map[string]struct {
		holder, cluster string
		want            bool
	}{
		"this cluster":                  {"east.default", "east.default", true},
		"another cluster":               {"west.default", "east.default", false},
		"the same name, another fleet":  {"east.prod", "east.default", false},
		"nobody":                        {"", "east.default", false},
		"nobody, of a nameless cluster": {"", "", false},
		"a part of the name":            {"east", "east.default", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := lease.Content{Term: lease.Term{Holder: test.holder}, Cluster: test.cluster}
			if got := c.LeadsHere(); got != test.want {
				t.Errorf("LeadsHere = %v, want %v", got, test.want)
			}
		})
	}
}

func TestIdentityNamesTheFleet(t *testing.T) {
	if got := lease.Identity("east", "default"); got != "east.default" {
		t.Errorf("Identity = %q", got)
	}
}

var (
	defaultProfile = lease.Timings{Duration: 15 * time.Second, Renew: 5 * time.Second, Timeout: 3 * time.Second, Skew: time.Second}
	fastProfile    = lease.Timings{Duration: 3 * time.Second, Renew: time.Second, Timeout: 500 * time.Millisecond, Skew: 250 * time.Millisecond}
)

func TestTimingsMustLeaveRoomForALostRenewal(t *testing.T) {
	const (
		whole    = "want whole seconds, at least 1s"
		positive = "must be positive"
		room     = "one lost renewal would end the term"
	)
	tests := map[string]struct {
		timings lease.Timings
		change  func(*lease.Timings)
		want    string
	}{
		"the default profile":     {defaultProfile, func(*lease.Timings) {}, ""},
		"the fast profile":        {fastProfile, func(*lease.Timings) {}, ""},
		"2r + τ + ε may be D":     {defaultProfile, func(t *lease.Timings) { t.Duration = 14 * time.Second }, ""},
		"but not more":            {defaultProfile, func(t *lease.Timings) { t.Duration = 14 * time.Second; t.Skew++ }, room},
		"r counts twice":          {defaultProfile, func(t *lease.Timings) { t.Renew += 501 * time.Millisecond }, room},
		"τ counts":                {defaultProfile, func(t *lease.Timings) { t.Timeout += 1001 * time.Millisecond }, room},
		"ε counts":                {defaultProfile, func(t *lease.Timings) { t.Skew += 1001 * time.Millisecond }, room},
		"D is whole seconds":      {defaultProfile, func(t *lease.Timings) { t.Duration += time.Millisecond }, whole},
		"D is at least a second":  {defaultProfile, func(t *lease.Timings) { t.Duration = 0 }, whole},
		"D is not negative":       {defaultProfile, func(t *lease.Timings) { t.Duration = -15 * time.Second }, whole},
		"r is positive":           {defaultProfile, func(t *lease.Timings) { t.Renew = 0 }, positive},
		"τ is positive":           {defaultProfile, func(t *lease.Timings) { t.Timeout = 0 }, positive},
		"ε is positive":           {defaultProfile, func(t *lease.Timings) { t.Skew = 0 }, positive},
		"r is not negative":       {defaultProfile, func(t *lease.Timings) { t.Renew = -1 }, positive},
		"nothing is no timing":    {lease.Timings{}, func(*lease.Timings) {}, whole},
		"a D of a second may do":  {fastProfile, func(t *lease.Timings) { *t = lease.Timings{Duration: time.Second, Renew: 1, Timeout: 1, Skew: 1} }, ""},
		"years of D are no fault": {defaultProfile, func(t *lease.Timings) { t.Duration = math.MaxInt32 * time.Second }, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			timings := test.timings
			test.change(&timings)
			err := timings.Validate()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("Validate(%+v) = %v, want %q", timings, err, test.want)
			}
		})
	}
}

func TestHubLossIsInvisibleWhenAnotherReplicaHasTimeToRenew(t *testing.T) {
	const h = 6 * time.Second
	tests := map[string]struct {
		timings lease.Timings
		h       time.Duration
		want    bool
	}{
		"r + h + τ + ε = D":   {defaultProfile, h, true},
		"r + h + τ + ε > D":   {defaultProfile, h + 1, false},
		"the fast profile":    {fastProfile, h, false},
		"a very fast hub":     {fastProfile, 1250 * time.Millisecond, true},
		"not quite fast":      {fastProfile, 1250*time.Millisecond + 1, false},
		"without an election": {defaultProfile, 0, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.timings.SurvivesHubLoss(test.h); got != test.want {
				t.Errorf("SurvivesHubLoss(%v) = %v, want %v", test.h, got, test.want)
			}
		})
	}
}

func TestEpochsStartFromTheMinutesSince2025(t *testing.T) {
	zero := time.Date(2025, time.January, 1, 0, 0, 0, 0, time.UTC)
	for now, want := range map[time.Time]int64{
		zero.Add(-time.Hour):      0,
		zero:                      0,
		zero.Add(time.Second - 1): 0,
		zero.Add(time.Second):     1,
		zero.Add(24 * time.Hour):  86400,
		zero.Add(24 * time.Hour).In(time.FixedZone("", 99)): 86400,
		{}: 0,
	} {
		if got := lease.EpochFloor(now); got != want {
			t.Errorf("EpochFloor(%v) = %d, want %d", now, got, want)
		}
	}
}

func TestAnEpochIsPlausibleIfAHubCanHaveGivenIt(t *testing.T) {
	const slack = 1 << 20
	floor := lease.EpochFloor(noon)
	tests := map[string]struct {
		epoch int64
		want  bool
	}{
		"none yet":                       {0, true},
		"the floor":                      {floor, true},
		"a leader a second, twelve days": {floor + slack, true},
		"more than that":                 {floor + slack + 1, false},
		"the largest that fits":          {math.MaxInt32, false},
		"negative":                       {-1, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := lease.PlausibleEpoch(noon, test.epoch); got != test.want {
				t.Errorf("PlausibleEpoch(%d) = %v, want %v", test.epoch, got, test.want)
			}
		})
	}
}
