package controller

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/ledger"
	"github.com/leasecast/leasecast/hub/seal"
)

var aboutShop = mcreconcile.Request{Request: reconcile.Request{NamespacedName: shop}}

// The next look is at the first instant at which anything may change by time alone.
func TestWhichInstantIsTheNext(t *testing.T) {
	// The bound of what the last tenure may have promised passes soon after this one began.
	soon := func(t *testing.T) (*Controller, *fakeMembers) {
		c, s, api := newTestHub(t)
		c.Tenure = succeeding(t, testStart, 6*time.Second, -68*time.Second)
		changeStored(t, api, recordOf("fleet", "shop"), func(o *v1alpha1.NamespaceLeader) {
			o.Spec.State, o.Spec.Reason = v1alpha1.StateDraining, "PriorityChanged"
		})
		s.shown[0].Priority, s.verdict.Answering = 5, true
		return c, s
	}
	c, _ := soon(t)
	v, err := c.gather(t.Context(), shop)
	if err != nil {
		t.Fatal(err)
	}
	bound := c.decide(v).After
	if bound <= time.Second || bound >= 6*time.Second {
		t.Fatalf("the bound passes in %v", bound)
	}
	for name, test := range map[string]struct{ health, want time.Duration }{
		"a bound":                 {0, bound},
		"a bound before a health": {bound + time.Second, bound},
		"a health before a bound": {time.Second, time.Second},
	} {
		c, s := soon(t)
		s.verdict.Next = test.health
		got, err := c.reconcileNamespace(t.Context(), aboutShop)
		if err != nil || got.RequeueAfter != test.want {
			t.Errorf("%s: again in %v, %v; want %v", name, got.RequeueAfter, err, test.want)
		}
	}
}

// A record that says all that it has to is looked at again to explain what was written.
func TestWhenARecordThatStaysIsLookedAtAgain(t *testing.T) {
	c, s, _ := newTestHub(t)
	s.shown[0].Priority, s.verdict.Answering = 5, true
	if _, err := c.reconcileNamespace(t.Context(), aboutShop); err != nil {
		t.Fatal(err)
	}
	if got, err := c.reconcileNamespace(t.Context(), aboutShop); err != nil || got.RequeueAfter != 4*time.Second {
		t.Errorf("again in %v, %v; want 4s", got.RequeueAfter, err)
	}
}

// A decision that could not be carried out may have been made on what is not stored any more.
func TestADecisionThatFailsIsMadeAnewOnWhatIsStored(t *testing.T) {
	unsealed := func(c *Controller, api client.Client, refusal error) {
		p := policyOf("fleet", "shops", "shop")
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			t.Fatal(err)
		}
		p.Spec.Timings.LeaseDurationMilliseconds, p.Generation = 120_000, 2 // which the seal has to know
		if err := api.Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		c.Seals = seal.NewStore(api, &refusing{api, refusal})
	}
	for name, test := range map[string]struct {
		breaks func(*Controller, client.Client)
		reads  int // of the record, for the next decision
	}{
		"one that is carried out is not": {func(*Controller, client.Client) {}, 0},
		"its status cannot be written": {func(c *Controller, api client.Client) {
			c.Client = &explains{Client: api, answer: errRefused}
			c.Clock = fixedClock(lease.Reading{Wall: testStart.Wall, Boot: testStart.Boot + time.Hour})
		}, 1},
		"the seal cannot be used": {
			func(c *Controller, api client.Client) { unsealed(c, api, ofSeal()["an immutable Secret"]) }, 1,
		},
		"the seal cannot be raised now": {func(c *Controller, api client.Client) { unsealed(c, api, errRefused) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c, s, api := newTestHub(t)
			s.shown[0].Priority, s.verdict.Answering = 5, true
			later := testStart
			later.Boot += time.Minute // no earlier tenure can write any more
			c.Clock = fixedClock(later)
			if _, err := c.reconcileNamespace(t.Context(), aboutShop); err != nil {
				t.Fatal(err)
			}
			test.breaks(c, api)
			_, _ = c.reconcileNamespace(t.Context(), aboutShop)
			live := &counting{Reader: api}
			c.Live = live
			_, _ = c.reconcileNamespace(t.Context(), aboutShop)
			if live.n != test.reads {
				t.Errorf("the record was read %d times, want %d", live.n, test.reads)
			}
		})
	}
}

// undeleted refuses to delete.
type undeleted struct{ client.Client }

func (undeleted) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	return errRefused
}

// Rule 7: a record outlives its policy until all that it promised has passed.
func TestARetiredRecordGoesWhenItsTimeHasCome(t *testing.T) {
	for name, refused := range map[string]bool{"it goes": false, "and a failure is told": true} {
		c, _, api := newTestHub(t)
		if err := api.Delete(t.Context(), policyOf("fleet", "shops", "shop")); err != nil {
			t.Fatal(err)
		}
		changeStored(t, api, recordOf("fleet", "shop"), func(o *v1alpha1.NamespaceLeader) {
			o.Spec.State, o.Spec.Reason, o.Spec.Leader = v1alpha1.StateRetired, "PolicyGone", ""
		})
		c.members.of = map[fleet.Key]*memberState{}
		if refused {
			c.Client = undeleted{api}
		}
		events := &fakeRecorder{}
		c.events = events
		entryOf(t, c, shop).Events = []ledger.Event{{Kind: "Normal", Reason: reason.PolicyGone, Message: "it retires"}}
		again, err := c.reconcileNamespace(t.Context(), aboutShop)
		if (err != nil) != refused || again != (reconcile.Result{}) {
			t.Errorf("%s: %+v, %v", name, again, err)
		}
		if len(events.events) != 1 {
			t.Errorf("%s: what happened to it before is told as %q", name, events.events)
		}
		if gone := apierrors.IsNotFound(api.Get(t.Context(), shop, &v1alpha1.NamespaceLeader{})); gone == refused {
			t.Errorf("%s: it is gone: %v", name, gone)
		}
	}
}

// Rule 6: the largest D counts for a record without a policy, too.
func TestTheLargestDCountsWithoutAPolicy(t *testing.T) {
	c, _, api := newTestHub(t)
	if err := api.Delete(t.Context(), policyOf("fleet", "shops", "shop")); err != nil {
		t.Fatal(err)
	}
	v, err := c.gather(t.Context(), shop)
	if err != nil || v.Policy != nil || v.State.LargestDuration != time.Minute {
		t.Errorf("%v, %v (%v)", v.Policy, v.State.LargestDuration, err)
	}
}

// oneAfterTheOther has members be lost at different times.
type oneAfterTheOther struct{ *fakeMembers }

func (oneAfterTheOther) health(m fleet.Member, _ health.Thresholds) health.Verdict {
	since := testStart
	if m.Name == "east" {
		since.Boot -= 5 * time.Second
	}
	return health.Verdict{State: health.Unhealthy, Since: since}
}

func TestADecisionCountsWhatWasLostWithinOneWindow(t *testing.T) {
	for window, want := range map[time.Duration]bool{10 * time.Second: true, time.Second: false} {
		c, s, _ := newTestHub(t)
		c.source = oneAfterTheOther{s}
		v := shopView(election.Record{State: election.Vacant, Epoch: 1}, measured("east", agrees), measured("west", agrees))
		for i := range v.Members {
			v.Members[i].Publisher = nil
		}
		v.Policy.Thresholds.UnreachableAfter = window
		if completed(t, c, v); v.State.MostUnreachable != want {
			t.Errorf("within %v: most are lost: %v, want %v", window, v.State.MostUnreachable, want)
		}
	}
}

// A record of another hub whose Leases are this one's becomes this one's, and a failure of that is told.
func TestARecordThatCannotBeTakenOverIsTold(t *testing.T) {
	s, p := leads(t)
	s.c.Tenure = succeeding(t, lease.Reading{Wall: s.clock.Now().Wall, Boot: s.clock.Now().Boot}, 6*time.Second,
		-time.Hour)
	api := withTestAPI(t, s.c)
	changeStored(t, api, recordOf("fleet", "shop"), func(o *v1alpha1.NamespaceLeader) {
		o.Spec.Hub = "another"
	})
	members := &fakeMembers{verdict: health.Verdict{State: health.Healthy, Answering: true}}
	members.shown = []fleet.Member{{Key: eastKey, Connected: true, Priority: 5}}
	members.space = measured("east", agrees).Namespace
	s.c.source = members
	s.c.Client = refusing{api, errRefused}
	var err error
	for range 4 {
		if _, err = s.c.reconcileNamespace(t.Context(), aboutShop); err != nil {
			break
		}
		s.work(p)
	}
	if err == nil {
		t.Error("nobody is told")
	}
}

// counting counts the live reads of a record.
type counting struct {
	client.Reader
	n int
}

func (c *counting) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, ok := o.(*v1alpha1.NamespaceLeader); ok {
		c.n++
	}
	return c.Reader.Get(ctx, key, o, opts...)
}

// noRecords is an API server without any record.
type noRecords struct{ client.Reader }

func (noRecords) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(recordResource, key.Name)
}

// entryOf is what a controller remembers of a namespace.
func entryOf(t *testing.T, c *Controller, key types.NamespacedName) *ledger.Entry {
	t.Helper()
	if c.Live == nil {
		c.Live, c.Clock = noRecords{}, fixedClock(testStart)
	}
	e, err := c.ledger.Take(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// takenOf is the entry of a namespace without a record.
func takenOf(key types.NamespacedName) *ledger.Entry {
	return &ledger.Entry{Taken: ledger.Taken{Key: key}}
}

// said20 is what a record says of a term of east.
func said20() v1alpha1.NamespaceLeaderSpec {
	var s v1alpha1.NamespaceLeaderSpec
	ledger.Store(eastLeads(20), &s)
	return s
}
