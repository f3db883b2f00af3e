package controller

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/ledger"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/skew"
	"github.com/leasecast/leasecast/hub/worker"
)

// scene is what a decision sees of the fleet.
type scene struct {
	memberSource
	shown    []fleet.Member
	space    *corev1.Namespace
	refuses  error // of namespaces
	moves    fleet.Move
	unmoved  error
	unsynced bool
	verdict  health.Verdict
	offset   skew.Verdict
}

func (s *scene) synced() bool                                                  { return !s.unsynced }
func (s *scene) members(string) []fleet.Member                                 { return s.shown }
func (s *scene) served(string) (here bool, other string)                       { return true, "" }
func (s *scene) health(fleet.Member, health.Thresholds) health.Verdict         { return s.verdict }
func (s *scene) clock(lease.Reading, fleet.Member, time.Duration) skew.Verdict { return s.offset }

func (s *scene) move(context.Context, string) (fleet.Move, error) { return s.moves, s.unmoved }

func (s *scene) namespace(context.Context, fleet.Member, string) (*corev1.Namespace, error) {
	if s.space == nil && s.refuses == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), "shop")
	}
	return s.space, s.refuses
}

// laborer is a worker as decisions see it.
type laborer struct {
	publisher *publish.Publisher
	unguarded error
	unfenced  func(guard.Fence, string) error
	lock      worker.LockState
	accounts  map[v1alpha1.FencedServiceAccount]worker.AccountState
	readers   int
	woken     int
}

// atWork is a guarded member in which a publisher is at work.
func atWork(p *publish.Publisher) *memberState {
	return &memberState{worker: &laborer{publisher: p}}
}

func (l *laborer) Publisher() *publish.Publisher { return l.publisher }
func (l *laborer) Unguarded() error              { return l.unguarded }
func (l *laborer) Unfenced(f guard.Fence, ns string) error {
	if l.unfenced == nil {
		return nil
	}
	return l.unfenced(f, ns)
}
func (l *laborer) FencedSince(f guard.Fence, ns string) (time.Duration, error) {
	return 0, l.Unfenced(f, ns)
}
func (l *laborer) LockOf(guard.Fence) worker.LockState { return l.lock }

func (l *laborer) AccountOf(a v1alpha1.FencedServiceAccount) worker.AccountState {
	return l.accounts[a]
}

func (l *laborer) Readers(string) int { return l.readers }
func (l *laborer) Wake()              { l.woken++ }

// onScene is a controller whose tenure is past all earlier ones, with a record of shop and cluster east.
func onScene(t *testing.T) (*Controller, *scene, client.Client) {
	t.Helper()
	c := New(Options{Tenure: succeeding(t, musterStart, 6*time.Second, -time.Hour), Clock: fixedClock(musterStart),
		HubID: "this", OwnNamespace: "leasecast-system"})
	api := hubOf(t, c)
	s := &scene{
		shown: []fleet.Member{{Key: eastKey, Connected: true}}, space: &corev1.Namespace{},
		verdict: health.Verdict{State: health.Healthy},
	}
	c.source = s
	old := eastLease(20) // that lapsed long before this tenure
	old.AcquireTime, old.RenewTime = old.AcquireTime.Add(-2*time.Hour), old.RenewTime.Add(-2*time.Hour)
	c.members.of[eastKey] = atWork(publisherThatRead(t, musterStart.Wall, testKey, old))
	return c, s, api
}

// failing fails some kinds of requests.
type failing struct {
	client.Client
	get, list error
}

func (f failing) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if f.get != nil {
		return f.get
	}
	return f.Client.Get(ctx, key, o, opts...)
}

func (f failing) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	if f.list != nil {
		return f.list
	}
	return f.Client.List(ctx, l, opts...)
}

// What was not seen is not decided on: a record that could not be read is not a lost one.
func TestNothingIsDecidedWithoutWhatItRestsOn(t *testing.T) {
	refused := errors.New("refused")
	for name, breaks := range map[string]func(*Controller, *scene, client.Client){
		"the record":   func(c *Controller, _ *scene, api client.Client) { c.Live = failing{Client: api, get: refused} },
		"the policies": func(c *Controller, _ *scene, api client.Client) { c.Client = failing{Client: api, list: refused} },
		"the seal": func(_ *Controller, _ *scene, api client.Client) {
			broken := sealOf("fleet")
			broken.Data = map[string][]byte{"key": []byte("too short")}
			_ = api.Update(context.Background(), broken)
		},
		"a namespace": func(_ *Controller, s *scene, _ client.Client) { s.refuses = refused },
		"whether a fleet whose record went is moving": func(_ *Controller, s *scene, api client.Client) {
			s.unmoved, s.shown[0].Paused = refused, true
			_ = api.Delete(context.Background(), ledger.NewRecord(shop))
		},
	} {
		t.Run(name, func(t *testing.T) {
			whole, _, _ := onScene(t)
			if _, err := whole.gather(t.Context(), shop); err != nil {
				t.Fatalf("before: %v", err)
			}
			c, s, api := onScene(t)
			breaks(c, s, api)
			if v, err := c.gather(t.Context(), shop); err == nil {
				t.Errorf("gathered: %+v", v)
			}
		})
	}
}

func TestARecordThatIsNotThereIsLost(t *testing.T) {
	c, _, api := onScene(t)
	if err := api.Delete(t.Context(), ledger.NewRecord(shop)); err != nil {
		t.Fatal(err)
	}
	v, err := c.gather(t.Context(), shop)
	if err != nil || v.Object != nil || v.Found != nil || !v.State.Record.Lost() {
		t.Errorf("%+v, %v", v, err)
	}
}

// Rule 6: what an earlier hub may have promised under counts as well as what the policies say.
func TestTheLargestSkewAndDurationOfPoliciesAndSealCount(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*v1alpha1.LeadershipPolicy)
		skew, d time.Duration
	}{
		"the seal's are larger": {func(*v1alpha1.LeadershipPolicy) {}, 5 * time.Second, time.Minute},
		"the policy's are": {func(p *v1alpha1.LeadershipPolicy) {
			p.Spec.Timings.LeaseDurationMilliseconds, p.Spec.Timings.MaxClockSkewMilliseconds = 120_000, 20_000
		}, 20 * time.Second, 2 * time.Minute},
		"the policy's are, but it is invalid": {func(p *v1alpha1.LeadershipPolicy) {
			p.Spec.Timings.LeaseDurationMilliseconds, p.Spec.Timings.MaxClockSkewMilliseconds = 30_000, 20_000
		}, 5 * time.Second, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, api := onScene(t)
			p := policyOf("fleet", "shops", "shop")
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
				t.Fatal(err)
			}
			test.change(p)
			if err := api.Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if err := api.Create(t.Context(), policyOf("fleet", "younger", "till")); err != nil { // with a smaller ε
				t.Fatal(err)
			}
			v, err := c.gather(t.Context(), shop)
			if err != nil || v.Skew != test.skew || v.State.LargestDuration != test.d {
				t.Errorf("ε %v, D %v (%s, %v); want %v, %v", v.Skew, v.State.LargestDuration, v.Stop, err, test.skew, test.d)
			}
		})
	}
}

func TestWhatIsKnownOfAMember(t *testing.T) {
	there := &corev1.Namespace{}
	for name, test := range map[string]struct {
		connected, published bool
		scene                scene
		isConnected, isRead  bool
		namespace            bool
	}{
		"it was read, and has the namespace":   {true, true, scene{space: there}, true, true, true},
		"it was read, and does not have it":    {true, true, scene{}, true, true, false},
		"its Leases were not read":             {true, false, scene{space: there}, true, false, true},
		"it is not connected":                  {false, true, scene{space: there}, false, false, false},
		"it was let go of since it was listed": {true, true, scene{refuses: errDisengaged}, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, _ := onScene(t)
			c.source = &test.scene
			l := c.members.of[eastKey].worker.(*laborer)
			if l.unguarded, l.readers = guard.ErrNotEnforced, 3; !test.published {
				l.publisher = nil
			}
			m, err := c.members.lookAt(t.Context(), fleet.Member{Key: eastKey, Connected: test.connected}, "shop")
			if err != nil || m.Connected != test.isConnected || m.IsRead != test.isRead ||
				(m.Namespace != nil) != test.namespace {
				t.Errorf("connected %v, read %v, namespace %v, %v", m.Connected, m.IsRead, m.Namespace != nil, err)
			}
			if (m.Publisher != nil) != test.published || !errors.Is(m.Unguarded, guard.ErrNotEnforced) || m.Readers != 3 {
				t.Errorf("publisher %v, guard %v, readers %d", m.Publisher, m.Unguarded, m.Readers)
			}
		})
	}
}

// eastLease is the Lease of a term of east in east, stamped at the start.
func eastLease(epoch int64) lease.Content {
	us := eastKey.Identity()
	return lease.Content{
		Namespace: "shop", Name: "leasecast", Cluster: us, ClusterUID: "uid", Hub: "this",
		Term: lease.Term{
			Holder: us, Epoch: epoch, AcquireTime: musterStart.Wall, RenewTime: musterStart.Wall, Duration: 15 * time.Second,
		},
	}
}

// folded is what a controller makes of a record, and of a Lease in east.
func folded(
	t *testing.T, c *Controller, r election.Record, cp lease.Content, changes ...func(*decide.Snapshot),
) *decide.Snapshot {
	t.Helper()
	v := shopView(r, decide.Member{Member: fleet.Member{Key: eastKey, Connected: true}, TakesPart: true, IsRead: true})
	v.Members[0].Publisher = publisherThatRead(t, musterStart.Wall, testKey, cp)
	v.Members[0].Initial = v.Members[0].Publisher.Initial()
	for _, change := range changes {
		change(v)
	}
	completed(t, c, v)
	return v
}

// Rule 7: epochs rise above all that was ever seen.
func TestTheHighestEpochThatIsKnown(t *testing.T) {
	floor := lease.EpochFloor(musterStart.Wall)
	for name, test := range map[string]struct {
		granted, seen, recorded, copied, want int64
	}{
		"of the record":                         {0, 0, 30, 20, 30},
		"of a Lease":                            {0, 0, 10, 20, 20},
		"that this tenure granted":              {40, 0, 10, 20, 40},
		"that was in a record that was lost":    {0, 50, 10, 20, 50},
		"none that a clock gave that was ahead": {0, floor + 1e9, 10, 20, 20},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, _ := onScene(t)
			r := election.Record{State: election.Vacant, Epoch: test.recorded, LeaseName: "leasecast"}
			v := folded(t, c, r, eastLease(test.copied), func(v *decide.Snapshot) {
				v.Granted, v.Highest = test.granted, test.seen
			})
			if v.State.Highest != test.want {
				t.Errorf("%d, want %d", v.State.Highest, test.want)
			}
			if want := max(test.granted, test.seen, test.recorded); v.Highest != want {
				t.Errorf("remembered %d, want %d", v.Highest, want)
			}
		})
	}
}

// Rule 8: what became of a standing term since it was taken over is in the record.
func TestWhichLeaseIsAStandingTerm(t *testing.T) {
	for name, test := range map[string]struct {
		adopted int64
		epoch   int64
		change  func(*decide.Snapshot)
		want    bool
	}{
		"the leader's":                    {0, 20, func(*decide.Snapshot) {}, true},
		"one that was adopted already":    {20, 20, func(*decide.Snapshot) {}, false},
		"one that is newer than what was": {19, 20, func(*decide.Snapshot) {}, true},
		"not one of another namespace": {
			0, 20, func(v *decide.Snapshot) { v.Members[0].Initial.Leases[0].Namespace = "till" }, false,
		},
		"not one that no hub can have granted": {0, 1 << 40, func(*decide.Snapshot) {}, false},
		"of a moved record, only what is found now": {0, 20, func(v *decide.Snapshot) {
			v.Moved, v.Members[0].Initial.Leases[0].Epoch = true, 25
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, _ := onScene(t)
			cp := eastLease(min(test.epoch, 20))
			v := folded(t, c, election.Record{State: election.Vacant, Epoch: 1, LeaseName: "leasecast"}, cp,
				func(v *decide.Snapshot) {
					v.Adopted = test.adopted
					v.Members[0].Initial.Leases = slices.Clone(v.Members[0].Initial.Leases)
					v.Members[0].Initial.Leases[0].Epoch = test.epoch
					test.change(v)
				})
			if got := v.State.Found; (got != nil) != test.want {
				t.Fatalf("standing: %+v, want one: %v", got, test.want)
			} else if got != nil && (got.Cluster != "east" || got.Term.Epoch != 20 ||
				got.Boot != musterStart.Boot+15*time.Second) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// An election's Lease that told an untruth is found out by the renewTimes of the Leases.
func TestARenewTimeThatIsLaterThanWhatWasInheritedCastsDoubt(t *testing.T) {
	c, _, _ := onScene(t)
	v := folded(t, c, election.Record{State: election.Vacant, Epoch: 1}, eastLease(20))
	if want := musterStart.Wall.Add(6 * time.Second); !c.inherits().Equal(want) {
		t.Errorf("inherited %v, want %v", c.inherits(), want)
	}
	if started := v.State.Tenure.Started; started != musterStart {
		t.Errorf("started %v", started)
	}
}

func (c *Controller) inherits() time.Time {
	_, inherited := c.Tenure.Started()
	return inherited
}

func TestAnotherHubsLeaseIsSeen(t *testing.T) {
	cp := eastLease(20)
	cp.Hub = "another"
	c, _, _ := onScene(t)
	v := folded(t, c, election.Record{State: election.Vacant, Epoch: 1, LeaseName: "leasecast"}, cp,
		func(*decide.Snapshot) {
			cp.Holder = "" // and what leads is judged elsewhere
		})
	if !v.State.OtherHub || v.Members[0].Sync.Problem != reason.OtherHub {
		t.Errorf("other hub %v, facts %+v", v.State.OtherHub, v.Members[0].Sync)
	}
	if v := folded(t, c, election.Record{State: election.Vacant, Epoch: 1, LeaseName: "leasecast"},
		eastLease(20)); v.State.OtherHub {
		t.Error("this hub's Lease is another's")
	}
}

func TestADecisionKnowsThatMostClustersAreLost(t *testing.T) {
	for state, want := range map[health.State]bool{health.Unhealthy: true, health.Healthy: false} {
		c, s, _ := onScene(t)
		s.verdict.State = state
		v := folded(t, c, election.Record{State: election.Vacant, Epoch: 1}, eastLease(20))
		if v.State.MostUnreachable != want || v.Members[0].Verdict.State != state {
			t.Errorf("most unreachable: %v of %+v", v.State.MostUnreachable, v.Members[0].Verdict)
		}
	}
}
