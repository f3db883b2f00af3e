package controller

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/ledger"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/worker"
)

// A record that could not be read is not a lost one.
func TestNothingIsDecidedWithoutWhatItRestsOn(t *testing.T) {
	for name, breaks := range map[string]func(*Controller, *fakeMembers, testAPI){
		"nothing": func(*Controller, *fakeMembers, testAPI) {},
		"the record": func(c *Controller, _ *fakeMembers, api testAPI) {
			c.Live = failing(api, "get")
		},
		"the policies": func(c *Controller, _ *fakeMembers, api testAPI) { c.Client = failing(api, "list") },
		"the seal": func(_ *Controller, _ *fakeMembers, api testAPI) {
			changeStored(t, api, sealOf("fleet"), func(s *corev1.Secret) {
				s.Data = map[string][]byte{"key": []byte("too short")}
			})
		},
		"a namespace": func(_ *Controller, f *fakeMembers, _ testAPI) { f.refuses = errRefused },
		"whether a fleet whose record went is moving": func(_ *Controller, f *fakeMembers, api testAPI) {
			f.unmoved, f.shown[0].Paused = errRefused, true
			_ = api.Delete(context.Background(), ledger.NewRecord(shop))
		},
	} {
		c, f, api := newTestHub(t)
		breaks(c, f, api)
		if v, err := c.gather(t.Context(), shop); (err == nil) != (name == "nothing") {
			t.Errorf("%s: gathered: %+v, %v", name, v, err)
		}
		if name == "the record" && c.ledger.Knows(shop) {
			t.Error("what could not be read is remembered")
		}
	}
}

// Rule 6: what an earlier tenure may have promised under counts as well as what the policies say. Only the seal holds
// that.
func TestLargestBoundsOfPoliciesAndSealCount(t *testing.T) {
	const second = time.Second
	for name, test := range map[string]struct {
		duration, eps int32         // of the policy, in seconds; with an ε of 21 it is invalid
		stop          string        // of the seal
		skew, d, want time.Duration // largest ε, D and stop time
	}{
		"the seal's are larger":               {15, 1, "17s", 5 * second, time.Minute, 17 * second},
		"the policy's are larger":             {120, 20, "0s", 20 * second, 2 * time.Minute, 0},
		"the policy's are, but it is invalid": {120, 21, "0s", 5 * second, time.Minute, 0},
	} {
		c, _, api := newTestHub(t)
		changeStored(t, api, policyOf("fleet", "shops", ""), func(p *v1alpha1.LeadershipPolicy) {
			p.Spec.Timings.LeaseDurationMilliseconds = 1000 * test.duration
			p.Spec.Timings.MaxClockSkewMilliseconds = 1000 * test.eps
			if test.eps == 21 {
				p.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "no value!"}}
			}
		})
		changeStored(t, api, sealOf("fleet"), func(s *corev1.Secret) {
			s.Data["policies"] = boundsOf("60s", "5s", test.stop, "shops")
		})
		if err := api.Create(t.Context(), policyOf("fleet", "younger", "till")); err != nil { // with a smaller ε
			t.Fatal(err)
		}
		v, err := c.gather(t.Context(), shop)
		s := v.State
		if err != nil || v.Skew != test.skew || s.LargestDuration != test.d || s.LargestStop != test.want ||
			s.FleetDuration != test.d || s.FleetSkew != test.skew || s.FleetStop != test.want {
			t.Errorf("%s: ε %v, %+v (%v)", name, v.Skew, s, err)
		}
	}
}

// Neither the hub's own namespace nor those of the system have a policy, whatever a policy names.
func TestNamespacesThatNoPolicyOwns(t *testing.T) {
	for namespace, owned := range map[string]bool{"shop": true, "leasecast-system": false, "kube-shop": false} {
		c, _, _ := newTestHub(t)
		o := policyOf("fleet", "shops", "shop")
		o.Spec.Namespaces.Names = []string{"shop", "leasecast-system", "kube-shop"}
		v := shopView(eastLeads(20), measured("east", agrees))
		v.Key.Name, v.Policy = namespace, nil
		v.Object = recordOf("fleet", namespace)
		v.Object.Spec.Policy = "shops"
		v.Members[0].IsRead = false // so the record stands in
		v.Claim(c.claimable(t.Context(), v, []*decide.Policy{decide.ParsePolicy(o)}))
		if (v.Policy != nil) != owned {
			t.Errorf("%s is owned: %v", namespace, v.Policy != nil)
		}
	}
}

func TestViewOfAMember(t *testing.T) {
	there := &corev1.Namespace{}
	for name, test := range map[string]struct {
		connected, published bool
		source               fakeMembers
		isConnected, isRead  bool
		namespace            bool
	}{
		"it was read, and has the namespace":    {true, true, fakeMembers{space: there}, true, true, true},
		"it was read, and does not have it":     {true, true, fakeMembers{}, true, true, false},
		"its Leases were not read":              {true, false, fakeMembers{space: there}, true, false, true},
		"it is not connected":                   {false, true, fakeMembers{space: there}, false, false, false},
		"it was disconnected since it was read": {true, true, fakeMembers{refuses: errDisengaged}, false, false, false},
	} {
		c, _, _ := newTestHub(t)
		c.source = &test.source
		w := c.members.of[eastKey].worker.(*fakeWorker)
		if w.unguarded, w.readers = guard.ErrNotEnforced, 3; !test.published {
			w.publisher = nil
		}
		m, err := c.members.lookAt(t.Context(), fleet.Member{Key: eastKey, Connected: test.connected}, "shop")
		if err != nil || m.Connected != test.isConnected || m.IsRead != test.isRead ||
			(m.Namespace != nil) != test.namespace {
			t.Errorf("%s: connected %v, read %v, namespace %v, %v", name, m.Connected, m.IsRead, m.Namespace != nil, err)
		}
		if (m.Publisher != nil) != test.published || !errors.Is(m.Unguarded, guard.ErrNotEnforced) || m.Readers != 3 {
			t.Errorf("%s: publisher %v, guard %v, readers %d", name, m.Publisher, m.Unguarded, m.Readers)
		}
	}
	inBubble(t, "its connection ended since it was listed", func(t *testing.T) {
		f := newTestFleet(t, pinned("east"))
		east := f.member("east")
		east.Connected = true
		if m, err := f.members.lookAt(t.Context(), east, "shop"); err != nil || m.Connected || m.IsRead {
			t.Errorf("connected %v, read %v, %v", m.Connected, m.IsRead, err)
		}
	})
}

// A member is judged by the thresholds and the ε of the policy. Its Leases count with their seals, and show whether the
// election's Lease was edited.
func TestWhatIsObservedOfAMember(t *testing.T) {
	c, f, _ := newTestHub(t)
	f.offset = twoAhead
	v := shopView(eastLeads(20), measured("east", agrees), measured("west", agrees))
	v.Policy.Thresholds = health.Thresholds{UnreachableAfter: 7 * time.Second, RecoverAfter: 9 * time.Second}
	v.Members[1].Publisher = nil
	for key, sealed := range map[string]bool{string(testKey): true, "another one of as many characters": false} {
		p := publisherThatRead(t, testStart.Wall, seal.Key(key), eastLease(20))
		v.Members[0].Publisher, v.Members[0].Initial = p, p.Initial()
		completed(t, c, v)
		if ls := v.Members[0].Leases; len(ls) != 1 || !ls[0].Known || ls[0].Sealed != sealed || ls[0].Epoch != 20 {
			t.Errorf("sealed %v: %+v", sealed, ls)
		}
	}
	if f.thresholds != v.Policy.Thresholds || f.eps != time.Second {
		t.Errorf("judged by %+v and %v", f.thresholds, f.eps)
	}
	if v.State.Behind != twoAhead.Behind() || v.Members[1].ClockVerdict != twoAhead ||
		v.Members[1].Verdict.State != health.Healthy || v.Members[1].Answered != testStart {
		t.Errorf("behind by %v, %+v", v.State.Behind, v.Members[1])
	}
	c.members.of[eastKey].worker.(*fakeWorker).required = worker.Required{Unhealthy: "web"}
	unread := worker.Required{Err: worker.ErrUnread}
	for requires, want := range map[*worker.Requires][]worker.Required{nil: {{}, {}}, {}: {{Unhealthy: "web"}, unread}} {
		v.Policy.Requires, v.Members[0].Required, v.Members[1].Required = requires, unread, unread
		completed(t, c, v)
		if got := []worker.Required{v.Members[0].Required, v.Members[1].Required}; !slices.Equal(got, want) {
			t.Errorf("if %+v is required: %+v, want %+v", requires, got, want)
		}
	}
	if _, inherited := c.Tenure.Started(); !inherited.Equal(testStart.Wall.Add(6 * time.Second)) {
		t.Errorf("a later renewTime than the election's Lease allowed is not inherited: %v", inherited)
	}
	v.Policy, v.Members[1].Verdict = nil, health.Verdict{}
	if completed(t, c, v); v.Members[1].Verdict.State == health.Healthy {
		t.Error("judged without a policy")
	}
}

// Rule 6: what was read while an earlier tenure may have been at work, that one can have changed since.
func TestNothingIsDecidedOnARecordThatWasReadBesideAnEarlierTenure(t *testing.T) {
	const h, takes = 6 * time.Second, 500 * time.Millisecond
	for name, test := range map[string]struct {
		asked, want time.Duration // since the start of this tenure; the earlier one ends a second after it
	}{
		"asked while it is at work":                         {0, time.Second},
		"asked just before its end, answered just after it": {time.Second - takes/2, takes / 2},
		"asked at the last instant, answered long after it": {time.Second - 1, 1},
		"asked at its end":                                  {time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktest.NewHand(clocktest.Start)
			// By its own clock, which may be behind by the ε of the seal.
			c := New(Options{Tenure: succeeding(t, clock.Now(), h, -h+time.Second-5*time.Second), Clock: clock, HubID: "this"})
			c.Live = checked(withTestAPI(t, c), func(context.Context, string, runtime.Object) error {
				clock.Advance(takes)
				return nil
			})
			clock.Advance(test.asked)
			got, err := c.reconcileNamespace(t.Context(), aboutShop)
			musttest.Do(t, err)
			decided := got.RequeueAfter > time.Second || got.RequeueAfter == rightAway
			if decided != (test.want == 0) || !decided && got.RequeueAfter != test.want {
				t.Errorf("decides again in %v, want %v (0: not for the earlier tenure)", got.RequeueAfter, test.want)
			}
		})
	}
}

// What an earlier tenure has raised while it was at work counts. Whether it has ended is judged by the largest ε of the
// policies and of the seal. A worker may have read the seal before the first decision.
func TestSealIsReadAgainOnceAnEarlierTenureHasEnded(t *testing.T) {
	const h, ms = 6 * time.Second, time.Millisecond
	type step struct {
		at     time.Duration // since the start
		raised string        // D in seconds, by the earlier tenure just before
		want   time.Duration // the largest D
	}
	first := step{0, "60", time.Minute}
	for name, test := range map[string]struct {
		skew  int32  // the ε of the policy, in milliseconds
		seal  string // the ε of the seal
		steps []step
	}{
		"a small ε": {
			250, "100ms", []step{first, {h + 100*ms, "70", 70 * time.Second}, {h + 400*ms, "80", 80 * time.Second}},
		},
		"a large ε of a policy": {
			2000, "100ms", []step{first, {h + 100*ms, "70", 70 * time.Second}, {h + 400*ms, "80", 70 * time.Second}},
		},
		"a large ε of the seal": {250, "5s", []step{
			first, {time.Second, "70", time.Minute}, {h + 400*ms, "80", time.Minute}, {h + 700*ms, "90", 90 * time.Second},
			{h + 800*ms, "95", 90 * time.Second}, {time.Hour, "99", 90 * time.Second}, // which nobody else raises any more
		}},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktest.NewHand(testStart)
			c := New(Options{Tenure: succeeding(t, testStart, h, -2*time.Second), Clock: clock, HubID: "this"})
			api := withTestAPI(t, c)
			raise := func(seconds string) {
				changeStored(t, api, sealOf("fleet"), func(s *corev1.Secret) {
					s.Data["policies"] = boundsOf(seconds+"s", test.seal, "0s", "shops")
				})
			}
			raise("50")
			_ = musttest.Get(c.Seals.Find(t.Context(), "fleet"))(t)
			changeStored(t, api, policyOf("fleet", "shops", ""), func(p *v1alpha1.LeadershipPolicy) {
				p.Spec.Timings.MaxClockSkewMilliseconds = test.skew
			})
			for _, step := range test.steps {
				clock.Advance(testStart.Boot + step.at - clock.Now().Boot)
				raise(step.raised)
				if v, err := c.gather(t.Context(), shop); err != nil || v.State.LargestDuration != step.want {
					t.Errorf("after %v the largest D is %v, want %v (%v)", step.at, v.State.LargestDuration, step.want, err)
				}
			}
		})
	}
}

func TestFirstDecisionFailsIfTheSealCannotBeReadAgain(t *testing.T) {
	c, _, api := newTestHub(t)
	var refusal error
	c.Seals = seal.NewStore(refusing(api, &refusal, "get"), api)
	_, err := c.Seals.Find(t.Context(), "fleet")
	refusal = errRefused
	if _, again := c.seals.of(t.Context(), "fleet", time.Second); err != nil || !errors.Is(again, errRefused) {
		t.Errorf("%v, then %v", err, again)
	}
}
