package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/ledger"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/seal"
)

// Rule 3: the tenure that persisted a grant writes the first Lease of the term, once. In any other case the missing
// Lease may be what was to end the term.
func TestWhoWritesTheFirstLeaseOfATerm(t *testing.T) {
	elected := func(m *testMember, epoch int64, grants bool) {
		r := m.leading(reason.Elected)
		r.Epoch = epoch
		m.assigns(m.publisher(), r, grants)
	}
	lost := func(m *testMember) { // also over another connection
		elected(m, 20, true)
		if len(m.api.leases) != 1 {
			m.t.Fatal("no Lease was written")
		}
		m.clock.Advance(time.Second)
		clear(m.api.leases)
	}
	adopted := func(m *testMember) { m.assigns(m.publisher(), m.leading(reason.Adopted), true) }
	for name, test := range map[string]struct {
		happens func(*testMember)
		written bool
	}{
		"this tenure granted the term":           {func(m *testMember) { elected(m, 20, true) }, true},
		"the record has the term":                {func(m *testMember) { elected(m, 20, false) }, false},
		"a Lease has the term":                   {adopted, false},
		"the Lease of the granted term is lost":  {func(m *testMember) { lost(m); elected(m, 20, false) }, false},
		"the next term is granted, too":          {func(m *testMember) { lost(m); elected(m, 21, true) }, true},
		"the record has lost its epoch":          {func(m *testMember) { elected(m, 0, true) }, false},
		"the record has lost its epoch, a grant": {func(m *testMember) { lost(m); elected(m, 0, true) }, false},
	} {
		m := newTestMember(t)
		test.happens(m)
		if written := m.api.leases[shopLease] != nil; written != test.written {
			t.Errorf("%s: a first Lease was written: %v, want %v", name, written, test.written)
		}
	}
}

// Rule 4: renewals end before what was sent is counted. It counts with the stop time of its policy.
func TestRenewalsEndBeforePromisesAreCounted(t *testing.T) {
	stays, goes := func(*decide.Member) {}, func(m *decide.Member) { m.Problem.Reason = reason.Deleting }
	for name, test := range map[string]struct {
		phase  election.RecordState
		change func(*decide.Member)
		closed bool
	}{
		"a term that goes on":          {election.Leading, stays, false},
		"a term that ends":             {election.Ending, stays, true},
		"a leader that must not go on": {election.Leading, goes, true},
	} {
		t.Run(name, func(t *testing.T) {
			m, p := leads(t)
			m.policy.Election.StopTime = 17 * time.Second
			m.assigns(p, m.leading(reason.Elected), false)
			if !m.renews(p) {
				t.Fatal("it is not renewed")
			}
			r := m.leading(reason.Elected)
			r.State = test.phase
			v := shopView(r, measured("east", agrees, test.change))
			v.Policy, v.Members[0].Publisher = m.policy, p
			m.c.decide(v)
			if got := m.c.sent(shop, test.closed); got.Final != test.closed || got.Skew != time.Second ||
				got.Stop != 17*time.Second || !got.Until.Equal(m.renewTime().Add(15*time.Second)) {
				t.Errorf("sent: %+v, want it closed: %v", got, test.closed)
			}
			if renews := m.renews(p); renews == test.closed {
				t.Errorf("renewed: %v", renews)
			}
		})
	}
}

func TestEventsOfAChange(t *testing.T) {
	leads := election.Record{State: election.Leading, Reason: reason.Elected, Leader: "east", Epoch: 20}
	with := func(change func(*election.Record)) election.Record {
		r := leads
		change(&r)
		return r
	}
	is := func(state election.RecordState, why reason.Reason) election.Record {
		return with(func(r *election.Record) { r.State, r.Reason = state, why })
	}
	const eastLeads = "Normal Elected: east leads in epoch 20"
	for name, test := range map[string]struct {
		was, now election.Record
		want     string // the beginning of the one event
	}{
		"no change":          {leads, leads, ""},
		"another leader":     {with(func(r *election.Record) { r.Leader = "west" }), leads, eastLeads},
		"another epoch":      {with(func(r *election.Record) { r.Epoch = 19 }), leads, eastLeads},
		"nobody leads":       {leads, is(election.Vacant, reason.NoCandidate), "Warning NoCandidate: no cluster"},
		"the leader is lost": {leads, is(election.Ending, reason.Unreachable), "Warning Unreachable: east is being"},
		"a planned change":   {leads, is(election.Ending, reason.PriorityChanged), ""},
		"it is declared off": {leads, with(func(r *election.Record) { r.Fence.UID = "uid-of-east" }),
			"Warning Fenced: "},
		"the policy is deleted": {leads, is(election.Retired, reason.PolicyGone), "Normal PolicyGone: no policy claims"},
	} {
		c, recorder := New(Options{}), &fakeRecorder{}
		c.events = recorder
		v := shopView(test.was)
		v.Object = &v1alpha1.NamespaceLeader{}
		c.changed(t.Context(), v, planOf(election.Decision{Record: test.now}))
		c.recordEvents(v)
		c.recordEvents(v)
		got := strings.TrimPrefix(strings.Join(recorder.events, "|"), "*v1alpha1.NamespaceLeader ")
		if len(recorder.events) > 1 || !strings.HasPrefix(got, test.want) || test.want == "" && got != "" {
			t.Errorf("%s: events %q, want %q", name, got, test.want)
		}
	}
}

// A policy's conditions show the bounds and the closed locks of its records.
func TestChangesOfARecordThatTriggerItsPolicy(t *testing.T) {
	was := eastLeads(20)
	was.Skew, was.Stop = time.Second, time.Second
	for name, test := range map[string]struct {
		change   func(*election.Record)
		policy   string
		triggers bool
	}{
		"nothing changes":     {func(*election.Record) {}, "shops", false},
		"D falls":             {func(r *election.Record) { r.Duration-- }, "shops", true},
		"ε falls":             {func(r *election.Record) { r.Skew-- }, "shops", true},
		"the stop time falls": {func(r *election.Record) { r.Stop-- }, "shops", true},
		"all of them rise":    {func(r *election.Record) { r.Duration++; r.Skew++; r.Stop++ }, "shops", false},
		"a lock is opened":    {func(r *election.Record) { r.OpenLocks = []string{"stock/stock"} }, "shops", true},
		"no policy owns it":   {func(r *election.Record) { r.Duration-- }, "", false},
	} {
		inBubble(t, name, func(t *testing.T) {
			c, v, now := New(Options{}), shopView(was), was
			c.policyQueue.q = newTestQueue(t)
			if test.policy == "" {
				v.Policy = nil
			}
			test.change(&now)
			c.changed(t.Context(), v, planOf(election.Decision{Record: now}))
			early := asked(&c.policyQueue)
			pass(time.Second) // the cache shows the record by then
			if got := asked(&c.policyQueue); len(early) > 0 || slices.Equal(got, []string{"fleet/shops"}) != test.triggers {
				t.Errorf("policies %q at once, %q later", early, got)
			}
		})
	}
}

var aSecondLater = fixedClock(lease.Reading{Wall: testStart.Wall.Add(time.Second), Boot: testStart.Boot + time.Second})

// A freeze has one event, also after one that was mistyped, which has its own.
func TestAFreezeHasAnEvent(t *testing.T) {
	c, f, api := newTestHub(t)
	recorder := &fakeRecorder{}
	c.events, f.shown[0].Priority, f.verdict.Answering = recorder, 5, true
	for _, until := range []string{"in May", testStart.Wall.Add(time.Hour).Format(time.RFC3339)} {
		changeStored(t, api, recordOf("fleet", "shop"), func(o *v1alpha1.NamespaceLeader) {
			o.Annotations = map[string]string{v1alpha1.FrozenUntilAnnotation: until}
		})
		entryOf(t, c, shop).Recheck()
		for range 3 {
			_, err := c.reconcileNamespace(t.Context(), aboutShop)
			musttest.Do(t, err)
			c.Clock = fixedClock(lease.Reading{Wall: testStart.Wall, Boot: testStart.Boot + time.Hour}) // the status is due
		}
	}
	for _, why := range []string{" InvalidFreeze: ", " Frozen: "} {
		if all := strings.Join(recorder.events, "\n"); strings.Count(all, why) != 1 {
			t.Errorf("not one event%sin %s", why, all)
		}
	}
}

// A decision that could not be carried out may have been made on what is not stored any more.
func TestADecisionThatFailsIsMadeAgainOnWhatIsStored(t *testing.T) {
	unsealed := func(refusal error) func(*Controller, testAPI) {
		return func(c *Controller, api testAPI) {
			changeStored(t, api, policyOf("fleet", "shops", "shop"), func(p *v1alpha1.LeadershipPolicy) {
				p.Spec.Timings.LeaseDurationMilliseconds, p.Generation = 120_000, 2 // which the seal has to hold
			})
			c.Seals = seal.NewStore(api, refusing(api, &refusal, "update"))
		}
	}
	for name, test := range map[string]struct {
		breaks func(*Controller, testAPI)
		reads  int // of the record, for the next decision
	}{
		"one that is carried out is not": {func(*Controller, testAPI) {}, 0},
		"its status cannot be written": {func(c *Controller, api testAPI) {
			c.Client = failing(api, "status")
			c.Clock = fixedClock(lease.Reading{Wall: testStart.Wall, Boot: testStart.Boot + time.Hour})
		}, 1},
		"the seal cannot be used": {unsealed(sealRefused), 1},
	} {
		t.Run(name, func(t *testing.T) {
			c, s, api := newTestHub(t)
			s.shown[0].Priority, s.verdict.Answering = 5, true
			later := testStart
			later.Boot += time.Minute // no earlier tenure can write any more
			c.Clock = fixedClock(later)
			_ = musttest.Get(c.reconcileNamespace(t.Context(), aboutShop))(t)
			test.breaks(c, api)
			_, _ = c.reconcileNamespace(t.Context(), aboutShop)
			var n traffic
			c.Live = n.to(api)
			_, _ = c.reconcileNamespace(t.Context(), aboutShop)
			if n.reads != test.reads {
				t.Errorf("the record was read %d times, want %d", n.reads, test.reads)
			}
		})
	}
}

// A term's first Lease does not wait until the order for it is removed from the record. What is not stored has no
// event, and what is stored has one. The change counts until it has ended.
func TestLeaderGetsItsLeaseAlthoughItsOrderCannotBeRemoved(t *testing.T) {
	c, f, api := newTestHub(t)
	recorder := &fakeRecorder{}
	c.events, f.shown[0].Priority, f.verdict.Answering = recorder, 5, true
	changeStored(t, api, recordOf("fleet", "shop"), func(o *v1alpha1.NamespaceLeader) {
		o.Annotations = map[string]string{v1alpha1.MoveToAnnotation: "east"}
		o.Spec.State, o.Spec.Reason = v1alpha1.StateEnding, "Ordered"
	})
	east := c.members.of[eastKey].worker.Publisher()
	before := east.Queue.Len()
	c.moves.of[shop] = "shops"
	for _, step := range []struct {
		refused          string
		counts, assigned bool
	}{{"update", true, false}, {"patch", false, true}} {
		c.Client = failing(api, step.refused)
		_, err := c.reconcileNamespace(t.Context(), aboutShop)
		if assigned := east.Queue.Len() > before; assigned != step.assigned || !errors.Is(err, errRefused) {
			t.Errorf("%s is refused: the Lease in east is to be written: %v (%v)", step.refused, assigned, err)
		}
		if counts := c.moves.of[shop] != ""; counts != step.counts {
			t.Errorf("%s is refused: the change counts: %v", step.refused, counts)
		}
	}
	c.Client = api
	for hours := range time.Duration(3) { // and each status is due
		c.Clock = fixedClock(lease.Reading{Wall: testStart.Wall, Boot: testStart.Boot + hours*time.Hour})
		_, err := c.reconcileNamespace(t.Context(), aboutShop)
		musttest.Do(t, err)
	}
	if owned, lost := c.statuses.claimsOf(shops); owned != 1 || len(lost) > 0 {
		t.Errorf("the policy owns %d namespaces, and lost %q", owned, lost)
	}
	if len(recorder.events) != 2 || !strings.Contains(recorder.events[0], "east leads in epoch") ||
		!strings.HasSuffix(recorder.events[1], "Normal Ordered: east leads, as ordered") {
		t.Errorf("events %q", recorder.events)
	}
}

// Rule 7: a record outlives its policy until all that it promised has passed.
func TestARetiredRecordGoesWhenItsTimeHasCome(t *testing.T) {
	for name, refused := range map[string]bool{"it goes": false, "and a failure is reported": true} {
		c, _, api := newTestHub(t)
		musttest.Do(t, api.Delete(t.Context(), policyOf("fleet", "shops", "shop")))
		changeStored(t, api, recordOf("fleet", "shop"), func(o *v1alpha1.NamespaceLeader) {
			o.Spec.State, o.Spec.Reason, o.Spec.Leader = v1alpha1.StateRetired, "PolicyGone", ""
		})
		c.members.of = map[fleet.Key]*memberState{}
		if refused {
			c.Client = failing(api, "delete")
		}
		events := &fakeRecorder{}
		c.events = events
		entryOf(t, c, shop).Events = []ledger.Event{{Kind: "Normal", Reason: reason.PolicyGone, Message: "it retires"}}
		again, err := c.reconcileNamespace(t.Context(), aboutShop)
		if (err != nil) != refused || again != (reconcile.Result{}) {
			t.Errorf("%s: %+v, %v", name, again, err)
		}
		if len(events.events) != 1 {
			t.Errorf("%s: the events of what happened before are %q", name, events.events)
		}
		if gone := apierrors.IsNotFound(api.Get(t.Context(), shop, &v1alpha1.NamespaceLeader{})); gone == refused {
			t.Errorf("%s: it is gone: %v", name, gone)
		}
	}
}

func TestPresentTermIsRenewedWhileNothingIsDecided(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*testMember, *fakeMembers)
		renews bool
	}{
		"the Clusters are not known": {func(_ *testMember, f *fakeMembers) { f.unsynced = true }, false},
		"the record is gone from a fleet that moves": {func(m *testMember, f *fakeMembers) {
			entryOf(m.t, m.c, shop)
			o := ledger.NewRecord(shop)
			musttest.Do(m.t, m.c.Client.Delete(m.t.Context(), o))
			m.c.ledger.Show(o, true)
			f.moves = fleet.Moving
		}, true},
		"another installation serves the fleet": {func(_ *testMember, f *fakeMembers) { f.other = "platform" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			m, p := leads(t)
			m.c.Tenure = succeeding(t, m.clock.Now(), 6*time.Second, -time.Hour)
			withTestAPI(t, m.c)
			f := &fakeMembers{}
			m.c.source = f
			test.change(m, f)
			m.c.moves.setWaiting(shop, true)
			if got, err := m.c.reconcileNamespace(t.Context(), aboutShop); err != nil || got.RequeueAfter != notYet ||
				m.c.moves.giving[shop] != (f.other != "") {
				t.Fatalf("%+v, %v; waits for the leader's cluster: %v", got, err, m.c.moves.giving[shop])
			}
			if renews := m.renews(p); renews != test.renews {
				t.Errorf("renewed: %v, want %v", renews, test.renews)
			}
		})
	}
}

func TestDroppedNamespaceForgetsItsPromise(t *testing.T) {
	m, _ := leads(t)
	m.c.drop(entryOf(t, m.c, shop))
	if p := m.c.promises.Get(shop); p != (publish.Promise{}) {
		t.Errorf("promised: %+v", p)
	}
}

func TestDecisionReadsTheClockAsARecordStoresIt(t *testing.T) {
	odd := testStart
	odd.Wall = odd.Wall.Add(1234567)
	c := New(Options{Clock: fixedClock(odd)})
	if now := c.now(); !now.Wall.Equal(testStart.Wall.Add(1234*time.Microsecond)) || now.Boot != odd.Boot {
		t.Errorf("%v", now)
	}
}

// Rules 2 and 6: the seal holds the D and the ε of a term before its record is written, and only then. Where people
// have to repair the seal, the error says so.
func TestSealIsRaisedBeforeATermBegins(t *testing.T) {
	till := types.NamespacedName{Namespace: "fleet", Name: "till"}
	later := apierrors.NewTimeoutError("etcdserver: request timed out", 0)
	for name, test := range map[string]struct {
		state                        election.RecordState
		unowned                      bool
		verb                         string // of requests for the Secret that are refused
		refusal                      error
		raised, persists, isOfPeople bool
	}{
		"a term that begins":             {state: election.Leading, raised: true, persists: true},
		"a record without a leader":      {state: election.Ending, persists: true},
		"a term that no policy claims":   {state: election.Leading, unowned: true, persists: true},
		"the seal cannot be read":        {state: election.Leading, verb: "get", refusal: errRefused},
		"no leader, and no seal is read": {state: election.Ending, verb: "get", refusal: errRefused, persists: true},
		"the seal cannot be written now": {state: election.Leading, verb: "update", refusal: later},
		"people have to repair the seal": {state: election.Leading, verb: "update", refusal: sealRefused, isOfPeople: true},
	} {
		c, _, api := newTestHub(t)
		good, refused := c.Seals, refusing(api, &test.refusal, test.verb)
		c.Seals = seal.NewStore(refused, refused)
		v := shopView(election.Record{})
		if v.Key, v.Policy.Election.Timings.Skew = till, 20*time.Second; test.unowned {
			v.Policy = nil
		}
		r := eastLeads(20)
		r.State, r.Duration = test.state, 2*time.Minute
		_, err := c.persist(t.Context(), v, planOf(election.Decision{Record: r, Persist: true}))
		getErr := api.Get(t.Context(), till, &v1alpha1.NamespaceLeader{})
		if (err == nil) != test.persists || apierrors.IsNotFound(getErr) == test.persists ||
			errors.Is(err, errSeal) != test.isOfPeople {
			t.Errorf("%s: %v, stored: %v", name, err, getErr)
		}
		s, err := good.Find(t.Context(), "fleet")
		if is := s.Largest(); err != nil || (is.Duration == 2*time.Minute && is.Skew == 20*time.Second) != test.raised {
			t.Errorf("%s: the seal has %+v, %v", name, is, err)
		}
	}
}

// Rule 2: also where the record stays as it is, beside a seal that was restored from a backup.
func TestSealHoldsWhatAStoredRecordPromises(t *testing.T) {
	c, _, api := newTestHub(t)
	changeStored(t, api, recordOf("fleet", "shop"), func(o *v1alpha1.NamespaceLeader) {
		o.Spec = said20()
		o.Spec.Hub, o.Spec.Policy, o.Spec.LeaseDurationSeconds, o.Spec.StopTimeSeconds = "this", "shops", 77, 99
		o.Spec.MaxClockSkewMilliseconds = 6000
	})
	c.Client = failing(api, "create", "update", "status")
	v, err := c.gather(t.Context(), shop)
	if err == nil {
		_, err = c.persist(t.Context(), v, planOf(election.Decision{Record: v.State.Record}))
	}
	s, findErr := seal.NewStore(api, api).Find(t.Context(), "fleet")
	if b := s.Of("shops"); errors.Join(err, findErr) != nil || b != (seal.Bounds{
		Duration: 77 * time.Second, Skew: 6 * time.Second, Stop: 99 * time.Second,
	}) {
		t.Errorf("the seal holds %v of the policy (%v, %v); the record has D 77 s, ε 6 s and a stop time of 99 s", b, err,
			findErr)
	}
}
