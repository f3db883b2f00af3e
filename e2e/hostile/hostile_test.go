package hostile

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/hostile/front"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// attack is what the hostile member or tenants do, and how the hub shows it.
type attack struct {
	name   string        // says what must not happen to the others
	acts   []front.Act   // what the hostile member does, one after the other; none: it is honest
	before play          // what tenants write first
	tenant play          // what tenants write during the attack; nil: nothing
	shown  reason.Reason // for the hostile member; empty: anything
	told   reason.Reason // in an event; empty: in none
	ofHub  bool          // the tenants are those of the hub
	makes  int           // records that the hub has to make
	short  bool          // it is played in every test
}

const (
	// attackLasts is the time from the start of an attack to the loss of an honest leader, briefly that in short tests.
	// Each act of an attack is longer than a term.
	attackLasts = 18 * time.Second
	briefly     = 8 * time.Second
)

// attacks in the order in which they are played.
var attacks = []attack{
	{
		name:  "watches show new namespaces and Leases without end",
		acts:  []front.Act{endless},
		shown: reason.TooManyObjects,
		short: true,
	},
	{
		name:  "lists of 250 MB, of ten million empty objects and of nested messages, and an event of 4 GB is announced",
		acts:  []front.Act{items(named(), 250), items(nil, 10_000_000), items(nested(), 100), announced},
		short: true,
	},
	{name: "watches repeat, expire, end at once and stand still", acts: []front.Act{
		repeating, onWatches(expired), onWatches(func(http.ResponseWriter, *http.Request) {}), onWatches(silent),
	}},
	{
		name: "answers come in an hour, byte by byte, as an echo, and with long headers",
		acts: []front.Act{later, slow, echo, longHeader},
	},

	{
		name:   "tenants of a member register without end",
		before: manyRegistrations(far, shop, 2100), // more than the hub keeps for a member
		tenant: together(manyRegistrations("east", "beside", 200), manyRegistrations("west", "beside", 200),
			rewritten, comingAndGoing),
		told:  reason.TooManyReaders,
		short: true,
	},
	{
		name:   "tenants of a member fill what the hub looks at",
		before: together(largeCronJobs, largeLeases),
		tenant: fencedSchedules,
	},

	{
		name:   "a tenant of the hub writes Secrets and kubeconfigs that nobody would",
		tenant: together(largeSecrets, largeKubeconfigs),
		ofHub:  true,
	},
	{
		name:   "a tenant of the hub makes large Clusters, and Clusters that nobody reaches",
		before: largeClusters,
		tenant: unreachableClusters,
		ofHub:  true,
	},
	{
		name:   "a tenant of the hub writes policies and records that nobody would",
		before: together(largePolicies, largeRecords),
		tenant: restlessPolicies,
		ofHub:  true,
	},
}

func TestHonestMembersDoNotNotice(t *testing.T) {
	for _, a := range attacks {
		if *full || a.short {
			t.Run(a.name, func(t *testing.T) { shared.play(t, a, mostOverFloor) })
		}
	}
}

// play plays one attack. A lost leader must be replaced so much later than D + ε.
func (s *testbed) play(t *testing.T, a attack, overFloor time.Duration) {
	s.restart(t)
	leader, err := s.leader(t.Context())
	musttest.Do(t, err)
	v := s.LookFor(t)
	u := s.watchUsage(t)
	defer s.front.Play(nil)
	before, began := s.hubRevision(t), time.Now()
	leave := s.enter(t, a.before, a.tenant)
	s.endure(t, a)
	var f figures
	f.RenewalDelaySeconds, f.Broken = s.delays(v, leader)
	if *full {
		f.FailoverOverFloorSeconds = s.loseLeader(t, leader).Seconds()
	}
	if *full && a.tenant != nil {
		f.HandoverSeconds = s.handOver(t, leader).Seconds()
	}
	leave()
	f.HubWritesPerSecond = float64(s.hubRevision(t)-before-a.makes*writesOfRecord) / time.Since(began).Seconds()
	f.PeakRSSMiB, f.CPUCores = u.stop()
	s.note(t, a.name, f)
	if a.ofHub {
		f.HubWritesPerSecond = 0 // most are the tenant's own
	}
	for _, wrong := range f.judge(overFloor) {
		t.Error(wrong)
	}
}

// note adds the figures of an attack to the report.
func (s *testbed) note(t *testing.T, name string, f figures) {
	t.Helper()
	s.figures[name] = f
	t.Logf("%+v, %d requests so far", f, s.front.Requests())
	if *report != "" {
		musttest.Do(t, harness.WriteReport(*report, s.figures))
	}
}

// enter plays first, then starts do, which runs until the returned function is called. The test's cleanup removes what
// the tenants wrote.
func (s *testbed) enter(t *testing.T, first, do play) (leave func()) {
	t.Helper()
	if do == nil {
		do = func(context.Context, *testbed) error { return nil }
	}
	t.Cleanup(func() {
		ctx := context.Background()
		if err := errors.Join(s.removeRegistrations(ctx), s.removeOfTenant(ctx)); err != nil {
			t.Error(err)
		}
	})
	if first != nil {
		musttest.Do(t, first(t.Context(), s))
	}
	return musttest.Start(t, func(ctx context.Context) error { return do(ctx, s) })
}

// hubRevision counts what was written into the management cluster so far.
func (s *testbed) hubRevision(t *testing.T) int {
	t.Helper()
	var list v1alpha1.LeadershipPolicyList
	musttest.Do(t, s.Hub.List(t.Context(), &list))
	revision, err := strconv.Atoi(list.ResourceVersion)
	musttest.Do(t, err)
	return revision
}

// endure lets an attack go on, and sees how the hub shows it.
func (s *testbed) endure(t *testing.T, a attack) {
	t.Helper()
	lasts, shown := briefly, a.shown == ""
	if *full {
		lasts = attackLasts
	}
	look := func(ctx context.Context) error {
		c, err := s.Candidate(ctx, shop, far)
		if err != nil {
			return err
		}
		if shown = shown || c.Reason == a.shown; !shown {
			return fmt.Errorf("it is shown as %s: %s", c.Reason, c.Message)
		}
		return nil
	}
	acts := a.acts
	if len(acts) == 0 {
		acts = []front.Act{nil}
	}
	for _, act := range acts {
		s.front.Play(act)
		musttest.Do(t, s.during(t.Context(), lasts/time.Duration(len(acts)), func(ctx context.Context) { _ = look(ctx) }))
	}
	s.Eventually(t, patience, fmt.Sprintf("the hostile member is shown as %s", a.shown), look)
	if a.told != "" {
		s.Eventually(t, patience, fmt.Sprintf("an event tells %s", a.told), func(ctx context.Context) error {
			return s.tells(ctx, a.told)
		})
	}
}

// tells returns nil if there is an event with a reason.
func (s *testbed) tells(ctx context.Context, why reason.Reason) error {
	var list eventsv1.EventList
	if err := s.Hub.List(ctx, &list); err != nil {
		return err
	}
	for _, e := range list.Items {
		if e.Reason == string(why) {
			return nil
		}
	}
	return fmt.Errorf("none of %d events does", len(list.Items))
}

// during looks at the processes and calls look every now and then.
func (s *testbed) during(ctx context.Context, d time.Duration, look func(context.Context)) error {
	end := time.Now().Add(d)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for time.Now().Before(end) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := s.Check(); err != nil {
			return fmt.Errorf("a replica has ended under the attack: %w", err)
		}
		look(ctx)
	}
	return nil
}

// loseLeader cuts the leader off and returns how much later than D + ε another one leads.
func (s *testbed) loseLeader(t *testing.T, leader string) time.Duration {
	t.Helper()
	began := time.Now()
	proxy := s.Fleet.Member(leader).Proxy()
	proxy.BlackHole()
	defer proxy.Heal()
	s.Eventually(t, patience, "another one leads", func(ctx context.Context) error {
		now, err := s.leader(ctx)
		if err == nil && now == leader {
			err = errors.New("the lost one still does")
		}
		return err
	})
	return max(0, time.Since(began)-s.Timings.Duration-s.Timings.Skew)
}

// handOver raises an honest member above all, and returns for how long nobody leads until it does.
func (s *testbed) handOver(t *testing.T, to string) time.Duration {
	t.Helper()
	s.Eventually(t, patience, "it follows the present leader", func(ctx context.Context) error {
		leader, err := s.leader(ctx)
		if err == nil {
			_, err = s.Leading(ctx, leader, shop, to)
		}
		return err
	})
	musttest.Do(t, s.AwaitEligible(t.Context(), patience, to, shop))
	s.highest++
	musttest.Do(t, s.SetPriority(t.Context(), to, s.highest))
	began := time.Now()
	s.Eventually(t, patience, "it leads", func(ctx context.Context) error {
		if r, err := s.Record(ctx, shop); err == nil && r.Spec.State == v1alpha1.StateLeading && r.Spec.Leader != to {
			began = time.Now() // the old leader still leads
		}
		_, err := s.Leading(ctx, to, shop, to)
		return err
	})
	return time.Since(began)
}
