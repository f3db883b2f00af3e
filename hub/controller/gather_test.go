package controller

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/tenure"
)

// nobody is a sight of a fleet in which there is no Cluster.
type nobody struct{ memberSource }

func (nobody) synced() bool { return true }

func (nobody) members(string) []fleet.Member { return nil }

func (nobody) served(string) (here bool, other string) { return true, "" }

var shop = types.NamespacedName{Namespace: "fleet", Name: "shop"}

// hubOf has a controller work with an API server that holds a record of shop, its policy with a D of 15 s, and a seal
// that remembers a D of a minute and an ε of 5 s.
func hubOf(t *testing.T, c *Controller) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	record := &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: shop.Namespace, Name: shop.Name}}
	record.Spec = v1alpha1.NamespaceLeaderSpec{
		Policy: "shops", State: v1alpha1.StateLeading, Leader: "east", Epoch: 20, LeaseDurationSeconds: 15,
		LeaseName: "leasecast",
	}
	p := &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: shop.Namespace, Name: "shops"}}
	p.Spec.Namespaces.Names = []string{shop.Name}
	p.Spec.Timings = v1alpha1.Timings{
		LeaseDurationMilliseconds: 15_000, RenewIntervalMilliseconds: 5000,
		RequestTimeoutMilliseconds: 3000, MaxClockSkewMilliseconds: 1000,
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: shop.Namespace, Name: seal.SecretName},
		Data: map[string][]byte{
			"key": testKey, "policies": sealed("60s", "5s", "0s", "shops"),
		}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(record, p, secret).WithStatusSubresource(record).Build()
	c.Client, c.Live, c.source, c.events = api, api, nobody{}, silent{}
	c.Seals = seal.NewStore(api, api)
	return api
}

// oneElection is an election's Lease that says what it was made with, and takes every update.
type oneElection struct {
	resourcelock.Interface
	said resourcelock.LeaderElectionRecord
}

func (o oneElection) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &o.said, nil, nil
}

func (oneElection) Update(context.Context, resourcelock.LeaderElectionRecord) error { return nil }

// succeeding is a tenure of h that begins at start, after one that was renewed then, from the start of this one.
func succeeding(t *testing.T, start lease.Reading, h, renewed time.Duration) *tenure.Tenure {
	t.Helper()
	next := tenure.New(fixedClock(start), h)
	lock := next.Lock(oneElection{said: resourcelock.LeaderElectionRecord{
		HolderIdentity: "other", LeaseDurationSeconds: int(h / time.Second), LeaderTransitions: 1,
		AcquireTime: metav1.NewTime(start.Wall.Add(-2 * time.Hour)), RenewTime: metav1.NewTime(start.Wall.Add(renewed)),
	}})
	if _, _, err := lock.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := lock.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me",
		RenewTime: metav1.NewTime(start.Wall)}); err != nil {
		t.Fatal(err)
	}
	return next
}

// Rule 6: an earlier tenure may have promised by a longer D, a larger ε and a larger stop time than the policy has
// now. Only the seal records them.
func TestADecisionKnowsTheLargestDurationsOfTheSeal(t *testing.T) {
	clock := fixedClock{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Boot: time.Hour}
	c := New(Options{Tenure: succeeding(t, lease.Reading(clock), 6*time.Second, -time.Hour), Clock: clock, HubID: "this"})
	api, told := hubOf(t, c), sealOf(shop.Namespace)
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(told), told); err != nil {
		t.Fatal(err)
	}
	told.Data["policies"] = sealed("60s", "5s", "17s", "shops")
	if err := api.Update(t.Context(), told); err != nil {
		t.Fatal(err)
	}
	v, err := c.gather(t.Context(), shop)
	if err != nil || v.Stop != "" || v.Policy == nil {
		t.Fatalf("%+v, %v", v, err)
	}
	if s := v.State; s.LargestDuration != time.Minute || s.LargestSkew != 5*time.Second ||
		s.LargestStop != 17*time.Second {
		t.Errorf("the largest D is %v, ε %v, stop time %v; want 1m, 5s and 17s", s.LargestDuration, s.LargestSkew,
			s.LargestStop)
	}
}

// slowly takes so long for an answer, of which nobody knows when it was true.
type slowly struct {
	client.Reader
	clock *clocktest.Hand
	takes time.Duration
}

func (s slowly) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := s.Reader.Get(ctx, key, o, opts...)
	s.clock.Advance(s.takes)
	return err
}

// Rule 6: what was read while an earlier tenure may have been at work, that one can have changed since.
func TestNothingIsDecidedOnARecordThatWasReadBesideAnEarlierTenure(t *testing.T) {
	const h, takes = 6 * time.Second, 500 * time.Millisecond
	for name, test := range map[string]struct {
		asked, want time.Duration // since the start of this tenure; the earlier one ends a second after it
	}{
		"asked for while it is at work":                               {0, time.Second},
		"asked for just before its end, and read just after that":     {time.Second - takes/2, takes / 2},
		"asked for at the last instant, and answered long after that": {time.Second - 1, 1},
		"asked for at its end":                                        {time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktest.NewHand(clocktest.Start)
			// By its own clock, which may be behind by the ε of the seal.
			c := New(Options{Tenure: succeeding(t, clock.Now(), h, -h+time.Second-5*time.Second), Clock: clock, HubID: "this"})
			c.Live = slowly{hubOf(t, c), clock, takes}
			clock.Advance(test.asked)
			got, err := c.reconcileNamespace(t.Context(), mcreconcile.Request{Request: reconcile.Request{NamespacedName: shop}})
			if err != nil {
				t.Fatal(err)
			}
			decided := got.RequeueAfter > time.Second || got.RequeueAfter == rightAway
			if decided != (test.want == 0) || !decided && got.RequeueAfter != test.want {
				t.Errorf("decides again in %v, want %v (0: not for the earlier tenure)", got.RequeueAfter, test.want)
			}
		})
	}
}

// What an earlier tenure has raised while it was still at work counts as well. In the steady state nothing is read.
func TestTheSealIsReadAgainOnceAnEarlierTenureHasEnded(t *testing.T) {
	const h = 6 * time.Second
	start := lease.Reading{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Boot: time.Hour}
	clock := clocktest.NewHand(start)
	c := New(Options{Tenure: succeeding(t, start, h, -2*time.Second), Clock: clock, HubID: "this"})
	api := hubOf(t, c)
	counted := &reads{Reader: api}
	c.Seals = seal.NewStore(counted, api)
	for _, step := range []struct {
		after  time.Duration // since the start
		raised string        // by the earlier tenure, just before
		want   time.Duration
	}{
		{0, "60", time.Minute},
		{time.Second, "70", time.Minute},                   // it may still go on, and nothing is decided
		{h + 600*time.Millisecond, "80", 80 * time.Second}, // it has ended, also by a slow clock
		{h + 700*time.Millisecond, "90", 80 * time.Second}, // nobody else raises it from then on
	} {
		clock.Advance(start.Boot + step.after - clock.Now().Boot)
		raiseSeal(t, api, step.raised, "5s")
		v, err := c.gather(t.Context(), shop)
		if err != nil || v.State.LargestDuration != step.want {
			t.Errorf("after %v the largest D is %v, want %v (%v)", step.after, v.State.LargestDuration, step.want, err)
		}
	}
	before := counted.n
	for range 5 {
		clock.Advance(time.Minute)
		if _, err := c.gather(t.Context(), shop); err != nil {
			t.Fatal(err)
		}
	}
	if counted.n != before {
		t.Errorf("%d reads of a seal that is known", counted.n-before)
	}
}

// Whether an earlier tenure has ended is judged by the largest ε of any policy, which the seal may not hold yet.
func TestTheSealIsReadAgainOnceAnEarlierTenureHasEndedByTheClocksOfThePolicies(t *testing.T) {
	const h = 6 * time.Second
	start := lease.Reading{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Boot: time.Hour}
	for name, test := range map[string]struct {
		skew time.Duration
		want time.Duration // the largest D that is known in the end
	}{
		"a policy with a small ε": {250 * time.Millisecond, 80 * time.Second},
		"a policy with a large ε": {2 * time.Second, 70 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktest.NewHand(start)
			c := New(Options{Tenure: succeeding(t, start, h, -2*time.Second), Clock: clock, HubID: "this"})
			api := hubOf(t, c)
			c.Seals = seal.NewStore(api, api)
			var got time.Duration
			for _, step := range []struct {
				at     time.Duration // since the start
				raised string        // by the earlier tenure, just before
			}{
				{0, "60"},
				{h + 100*time.Millisecond, "70"}, // it has ended by what it left
				{h + 400*time.Millisecond, "80"}, // and by a clock that is slower by 250 ms
			} {
				clock.Advance(start.Boot + step.at - clock.Now().Boot)
				raiseSeal(t, api, step.raised, "100ms")
				s, err := c.seals.of(t.Context(), shop.Namespace, test.skew)
				if err != nil {
					t.Fatal(err)
				}
				got = s.Largest().Duration
			}
			if got != test.want {
				t.Errorf("the largest D is %v, want %v", got, test.want)
			}
		})
	}
}

// The same holds for a decision, which knows the policies.
func TestADecisionCountsTheEpsilonOfAPolicyForTheEndOfAnEarlierTenure(t *testing.T) {
	const h = 6 * time.Second
	start := lease.Reading{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Boot: time.Hour}
	clock := clocktest.NewHand(start)
	c := New(Options{Tenure: succeeding(t, start, h, -2*time.Second), Clock: clock, HubID: "this"})
	api := hubOf(t, c)
	for _, step := range []struct {
		at     time.Duration // since the start
		raised string        // by the earlier tenure, just before
		want   time.Duration
	}{
		{0, "60", time.Minute},
		{h + 100*time.Millisecond, "70", 70 * time.Second}, // it has ended by the ε of the seal
		{h + 600*time.Millisecond, "80", 80 * time.Second}, // and by that of the policy, which is larger
	} {
		clock.Advance(start.Boot + step.at - clock.Now().Boot)
		raiseSeal(t, api, step.raised, "100ms")
		v, err := c.gather(t.Context(), shop)
		if err != nil || v.State.LargestDuration != step.want {
			t.Errorf("after %v the largest D is %v, want %v (%v)", step.at, v.State.LargestDuration, step.want, err)
		}
	}
}

// raiseSeal writes the D and the ε of a seal as another replica does.
func raiseSeal(t *testing.T, api client.Client, seconds, skew string) {
	t.Helper()
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: shop.Namespace, Name: seal.SecretName}
	if err := api.Get(t.Context(), key, secret); err != nil {
		t.Fatal(err)
	}
	secret.Data["policies"] = sealed(seconds+"s", skew, "0s", "shops")
	if err := api.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

// reads counts them.
type reads struct {
	client.Reader
	n int
}

func (r *reads) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	r.n++
	return r.Reader.Get(ctx, key, o, opts...)
}
