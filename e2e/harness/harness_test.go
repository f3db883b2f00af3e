package harness

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leasecast/leasecast/api/lease"
)

const (
	patience  = time.Minute
	namespace = "shop"
)

// brief is for terms that end within seconds, but not because a busy machine pauses.
var brief = lease.Timings{Duration: 8 * time.Second, Renew: time.Second, Timeout: 5 * time.Second,
	Skew: 250 * time.Millisecond}

// TestDrill is the short failover drill: a hub process under the RBAC of config/, guestbook processes, the leader's
// API server paused, then the hub killed. What the guestbooks did decides.
func TestDrill(t *testing.T) {
	d, err := Start(t.Context(), Options{
		Timings:  brief,
		ActEvery: 50 * time.Millisecond,
		Dir:      t.TempDir(),
		Progress: func(line string) { t.Log(line) },
		Members: []Member{
			{Name: "east", Priority: 100, Namespaces: []string{namespace}},
			{Name: "west", Priority: 50, Namespaces: []string{namespace}},
		},
	})
	Must(t, err)
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	actsAfter := func(cluster string, at time.Duration) Act {
		t.Helper()
		a, err := d.AwaitAct(t.Context(), patience, cluster+" acts",
			func(a Act) bool { return a.Cluster == cluster && a.Begin > at })
		Must(t, err)
		return a
	}
	actsAfter("east", 0)

	t.Log("the leader's API server is paused")
	copies, err := d.WatchLeases(t.Context(), "east")
	Must(t, err)
	defer copies.Stop()
	fault := Now().Boot
	Must(t, d.Fleet.Member("east").Pause())
	first := actsAfter("west", fault)
	Must(t, d.Fleet.Member("east").Resume())
	Must(t, d.AwaitEligible(t.Context(), patience, "east", namespace))
	stamp, ok := LastRenewTime(copies.Seen(), namespace, fault)
	if !ok {
		t.Fatal("no Lease was seen that let east act")
	}
	if took, floor := first.Begin-fault, Floor(d.Timings, fault, stamp, 0); took < floor {
		t.Errorf("failover took %v, less than its floor of %v: somebody was granted too early", took, floor)
	} else {
		t.Logf("failover took %v, %v above its floor", took, took-floor)
	}

	t.Log("the hub is killed: the term ends by itself")
	killed := Now().Boot
	Must(t, d.Hubs()[0].Kill())
	over := killed + d.Timings.Duration + d.Timings.Skew // that much a reader may be late, and no more
	Eventually(t, patience, "all terms are over", func(context.Context) error {
		if now := Now().Boot; now < over+d.Timings.Renew {
			return fmt.Errorf("%v are left", over+d.Timings.Renew-now)
		}
		return nil
	})
	acts, err := d.Acts()
	Must(t, err)
	for _, a := range acts {
		if a.Begin > over {
			t.Fatalf("%+v begins %v after the last stamp that the hub can have sent, more than D + ε", a, a.Begin-killed)
		}
	}

	t.Log("another hub takes over")
	began := Now().Boot
	if _, err := d.StartHub(); err != nil {
		t.Fatal(err)
	}
	if again := actsAfter("west", began); again.Epoch <= first.Epoch {
		t.Errorf("the new term has epoch %d, want more than %d", again.Epoch, first.Epoch)
	}

	if acts, err = d.Acts(); err != nil {
		t.Fatal(err)
	}
	v := Judge(acts)[0]
	for _, b := range v.Breaches {
		t.Error(b)
	}
	if diff := cmp.Diff([]string{"east", "west"}, v.Leaders); diff != "" {
		t.Errorf("leaders (-want +got):\n%s", diff)
	}
}
