package hostile

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/hostile/front"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/member"
)

var (
	full   = flag.Bool("full", false, "play all attacks, and lose an honest leader during each")
	report = flag.String("report", "", "the `file` for the figures; empty: none")
)

const (
	// mostMemory is what a replica may take under every attack, in MiB.
	mostMemory = 256
	// mostCores is what it may take of the processor.
	mostCores = 0.5
	// mostDelay is how late any renewal may come, and mostOverFloor how much later than D + ε a lost leader is replaced.
	mostDelay     = 250 * time.Millisecond
	mostOverFloor = time.Second
	// mostHandover bounds a planned change between honest members while tenants attack. It is much less than a term.
	mostHandover = time.Second
	// mostHubWrites is how many writes a second may go to the management cluster, if no tenant of the hub writes. A new
	// record is written twice until a cluster leads. Each time it has a status and an event.
	mostHubWrites, writesOfRecord = 10, 8
	// patience bounds the wait for something that takes seconds.
	patience = time.Minute
	// token is the hub's credential for the hostile member.
	token = "the-token-of-the-hub-for-the-hostile-member"
	// far is the hostile member, shop the led namespace. Only far has bazaar, and leads it. Schedules, writes and a lock
	// are fenced there.
	far    = "far"
	shop   = "shop"
	bazaar = "bazaar"
	// sealName is the Secret with the key that Leases are sealed with.
	sealName = "leasecast-seal"
)

// shared is the fleet that the attacks share, one after the other. Each leaves it well.
var shared *testbed

type testbed struct {
	*harness.Drill
	front     *front.Front
	hubTenant client.Client
	figures   map[string]figures
	highest   int      // priority that was given
	metrics   []string // the addresses at which the replicas serve them
}

// figures are what is known of one attack.
type figures struct {
	PeakRSSMiB               float64 `json:"peakRssMiB"`
	CPUCores                 float64 `json:"cpuCores"`
	RenewalDelaySeconds      float64 `json:"renewalDelaySeconds"` // the longest
	FailoverOverFloorSeconds float64 `json:"failoverOverFloorSeconds"`
	HandoverSeconds          float64 `json:"handoverSeconds"`
	HubWritesPerSecond       float64 `json:"hubWritesPerSecond"`
	Broken                   string  `json:"broken,omitempty"` // why the leader's term did not go on
}

// judge says what is worse than it may be. How late anything comes is judged where nothing else runs.
func (f figures) judge(overFloor time.Duration) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if f.PeakRSSMiB > mostMemory || f.PeakRSSMiB == 0 {
		say("a replica took %.0f MiB: at most %d are allowed", f.PeakRSSMiB, mostMemory)
	}
	if f.Broken != "" {
		say("the leader's term did not go on: %s", f.Broken)
	}
	if !*full {
		return wrong
	}
	if f.CPUCores > mostCores {
		say("a replica took %.2f cores: at most %.1f are allowed", f.CPUCores, mostCores)
	}
	if f.RenewalDelaySeconds > mostDelay.Seconds() {
		say("a renewal came %.3f s late: at most %v are allowed", f.RenewalDelaySeconds, mostDelay)
	}
	if f.FailoverOverFloorSeconds > overFloor.Seconds() {
		say("a lost leader was replaced %.2f s after D + ε: at most %v are allowed", f.FailoverOverFloorSeconds, overFloor)
	}
	if f.HandoverSeconds > mostHandover.Seconds() {
		say("a planned change took %.2f s: at most %v are allowed", f.HandoverSeconds, mostHandover)
	}
	if f.HubWritesPerSecond > mostHubWrites {
		say("%.1f writes a second went to the management cluster: at most %d are allowed",
			f.HubWritesPerSecond, mostHubWrites)
	}
	return wrong
}

// timings let no pause of a busy machine end a term, where terms that lapse are all that is judged.
func timings() lease.Timings {
	t := harness.Fast
	if !*full {
		t.Duration, t.Timeout = 2*t.Duration, 2*t.Timeout
	}
	return t
}

// fences are those of the policies: each has the name of its namespace.
func fences() map[string]*v1alpha1.Fencing {
	return map[string]*v1alpha1.Fencing{shop: nil, bazaar: {
		Schedules: &metav1.LabelSelector{MatchLabels: scheduled},
		Writes: []v1alpha1.WriteFence{{
			ServiceAccounts: []v1alpha1.FencedServiceAccount{{Name: "default"}},
			Resources:       []v1alpha1.FencedResources{{Names: []string{"configmaps"}}},
		}},
		LeaderElectionLocks: []v1alpha1.LockFence{{
			Namespace:             bazaar,
			Name:                  "stock",
			LeaseDurationSeconds:  4,
			RenewDeadlineSeconds:  2,
			RetryPeriodSeconds:    1,
			RequestTimeoutSeconds: 1,
		}},
	}}
}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(harness.Main(m, harness.Options{
		Timings:  timings(),
		Register: true,
		Members: []harness.Member{
			{Name: "east", Priority: 100, Namespaces: []string{shop}},
			{Name: "west", Priority: 50, Namespaces: []string{shop}},
			{Name: far, Priority: 10, Namespaces: []string{shop, bazaar}},
		},
		Fences: fences(),
	}, prepare))
}

func prepare(ctx context.Context, d *harness.Drill) error {
	f, err := front.New(d.Fleet.Member(far).AdminConfig())
	if err != nil {
		return err
	}
	tenant, err := newHubTenant(ctx, d)
	if err != nil {
		return err
	}
	shared = &testbed{Drill: d, front: f, hubTenant: tenant, figures: map[string]figures{}, highest: 100}
	kubeconfig, err := f.Kubeconfig(token)
	if err != nil {
		return err
	}
	if err := d.Fleet.SetKubeconfig(ctx, harness.FleetNamespace, far, kubeconfig); err != nil {
		return err
	}
	if *full {
		if err := shared.startReaders(); err != nil {
			return err
		}
	}
	_, err = d.StartHub()
	return err
}

// startReaders runs a registered reader in each honest member. Without readers, planned changes await the end of terms.
func (s *testbed) startReaders() error {
	for _, name := range []string{"east", "west"} {
		config := s.Fleet.Member(name).AdminConfig()
		config.Wrap(member.CapWrites)
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			return err
		}
		m, err := member.New(config, member.Options{
			Namespaces:   []string{shop},
			MaxClockSkew: s.Timings.Skew,
			Registration: &member.Registration{Namespace: shop, Client: client},
		})
		if err != nil {
			return err
		}
		go func() { _ = m.Start(context.Background()) }() // it ends with the tests
	}
	return nil
}

// restart replaces both replicas, so that no attack finds the memory of another one.
func (s *testbed) restart(t *testing.T) {
	t.Helper()
	s.front.Play(nil)
	s.stopHubs(t)
	s.startHubs(t)
}

func (s *testbed) stopHubs(t *testing.T) {
	t.Helper()
	for _, p := range s.Hubs() {
		musttest.Do(t, p.Stop())
	}
}

// startHubs starts two replicas, and returns when they do their work.
func (s *testbed) startHubs(t *testing.T) {
	t.Helper()
	began := time.Now()
	s.metrics = nil
	for range 2 {
		address := fleet.FreeAddress(t)
		_, err := s.StartHub("--metrics-address=" + address)
		musttest.Do(t, err)
		s.metrics = append(s.metrics, address)
	}
	s.Eventually(t, patience, "all members may lead, and an honest leader is renewed", func(ctx context.Context) error {
		for _, m := range []string{"east", "west", far} {
			if err := s.Eligible(ctx, shop, m); err != nil {
				return err
			}
		}
		leader, err := s.leader(ctx)
		if err != nil {
			return err
		}
		l, err := s.LeaseIn(ctx, leader, shop)
		if err != nil {
			return err
		}
		if c, _ := wire.Read(l); c.RenewTime.Before(began) {
			return errors.New("what is shown is from before")
		}
		return nil
	})
}

// leader is the honest member that leads.
func (s *testbed) leader(ctx context.Context) (string, error) {
	for _, m := range []string{"east", "west"} {
		if _, err := s.Leading(ctx, m, shop, m); err == nil {
			return m, nil
		}
	}
	return "", fmt.Errorf("no honest member leads")
}

// delays returns how late the latest renewal of the leader was seen, or is by now, and why its term did not go on. The
// reason is empty if it did.
func (s *testbed) delays(v *harness.View, leader string) (worst float64, broken string) {
	seen := v.Terms()[harness.Place{Namespace: shop, Cluster: lease.Identity(leader, harness.FleetNamespace)}]
	if len(seen) == 0 {
		return time.Hour.Seconds(), "it was not seen to lead"
	}
	now := harness.Now().Wall
	left, err := harness.Unbroken(seen, now)
	if err != nil {
		broken = err.Error()
	}
	longest := max(s.Timings.Duration-left, now.Sub(seen[len(seen)-1].RenewTime))
	return max(0, longest-s.Timings.Renew).Seconds(), broken
}
