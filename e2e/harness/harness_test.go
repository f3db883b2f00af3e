package harness

import (
	"slices"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

const (
	patience  = time.Minute
	namespace = "shop"
)

// brief is for terms that end within seconds, but not because a busy machine pauses.
var brief = lease.Timings{Duration: 8 * time.Second, Renew: time.Second, Timeout: 5 * time.Second,
	Skew: 250 * time.Millisecond}

// TestDrill is the short failover drill: the leader's API server is paused, then the hub is killed. The acts of the
// guestbooks decide.
func TestDrill(t *testing.T) {
	d := New(t, Options{Timings: brief, ActEvery: 50 * time.Millisecond, Members: []Member{
		{Name: "east", Priority: 100, Namespaces: []string{namespace}},
		{Name: "west", Priority: 50, Namespaces: []string{namespace}},
	}})
	actsAfter := func(cluster string, at time.Duration) Act {
		a, err := d.AwaitAct(t.Context(), patience, cluster+" acts",
			func(a Act) bool { return a.Cluster == cluster && a.Begin > at })
		Must(t, err)
		return a
	}
	v := d.LookFor(t)
	actsAfter("east", 0)

	t.Log("the leader's API server is paused")
	fault := Now().Boot
	Must(t, d.Fleet.Member("east").Pause())
	first := actsAfter("west", fault)
	Must(t, d.Fleet.Member("east").Resume())
	Must(t, d.AwaitEligible(t.Context(), patience, "east", namespace))
	stamp, ok := LastRenewTime(v.Leases["east"].Seen(), namespace, fault)
	if !ok {
		t.Fatal("no Lease was seen that let east act")
	}
	if took, floor := first.Begin-fault, Floor(d.Timings, fault, stamp, 0); took < floor {
		t.Errorf("failover took %v, less than its floor of %v", took, floor)
	}

	t.Log("the hub is killed: the term ends")
	killed := Now().Boot
	Must(t, d.LatestHub().Kill())
	over := killed + d.Timings.Duration + d.Timings.Skew // that much a reader may be late, and no more
	After(t, over+d.Timings.Renew)
	acts, err := d.Acts()
	Must(t, err)
	for _, a := range acts {
		if a.Begin > over {
			t.Fatalf("%+v begins %v after the last stamp that the hub can have sent, more than D + ε", a, a.Begin-killed)
		}
	}

	t.Log("another hub takes over")
	began := Now().Boot
	_, err = d.StartHub()
	Must(t, err)
	if again := actsAfter("west", began); again.Epoch <= first.Epoch {
		t.Errorf("the new term has epoch %d, want more than %d", again.Epoch, first.Epoch)
	}
	verdicts, err := v.Judge()
	Must(t, err)
	if got := verdicts[0].Leaders; !slices.Equal(got, []string{"east", "west"}) {
		t.Errorf("leaders %v, want east and west", got)
	}
}
