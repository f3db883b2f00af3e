package controller

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/ledger"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/tenure"
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
		if written := m.api.leases[shopLease.Name] != nil; written != test.written {
			t.Errorf("%s: a first Lease was written: %v, want %v", name, written, test.written)
		}
	}
}

// Rule 4: renewals end before what was sent is counted. It counts with the stop time of its policy.
func TestRenewalsEndBeforePromisesAreCounted(t *testing.T) {
	for name, test := range map[string]struct {
		phase  election.RecordState
		change func(*decide.Member)
		closed bool
	}{
		"a term that goes on":          {election.Leading, func(*decide.Member) {}, false},
		"a term that ends":             {election.Draining, func(*decide.Member) {}, true},
		"a leader that must not go on": {election.Leading, func(m *decide.Member) { m.Deleting = true }, true},
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
		"no change":             {leads, leads, ""},
		"another reason":        {leads, is(election.Leading, reason.Resumed), ""},
		"another leader":        {with(func(r *election.Record) { r.Leader = "west" }), leads, eastLeads},
		"another epoch":         {with(func(r *election.Record) { r.Epoch = 19 }), leads, eastLeads},
		"nobody leads":          {leads, is(election.Vacant, reason.NoCandidate), "Warning NoCandidate: no cluster"},
		"the leader is lost":    {leads, is(election.Draining, reason.Unreachable), "Warning Unreachable: east is being"},
		"a planned change":      {leads, is(election.Draining, reason.PriorityChanged), ""},
		"vacant after a plan":   {leads, is(election.Vacant, reason.PriorityChanged), "Warning PriorityChanged: no cluster"},
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

func TestWhenANamespaceIsDecidedOnAgain(t *testing.T) {
	answers := func(err error) func(*Controller, *fakeMembers, client.Client) {
		return func(c *Controller, _ *fakeMembers, api client.Client) { c.Client = &writes{Client: api, answer: err} }
	}
	conflict := apierrors.NewConflict(recordResource, "shop", errRefused)
	exists := apierrors.NewAlreadyExists(recordResource, "shop")
	health := func(next time.Duration) func(*Controller, *fakeMembers, client.Client) {
		return func(_ *Controller, f *fakeMembers, _ client.Client) { f.verdict.Next = next }
	}
	for name, test := range map[string]struct {
		change func(*Controller, *fakeMembers, client.Client)
		want   time.Duration
		fails  bool
	}{
		"the tenure does not hold": {func(c *Controller, _ *fakeMembers, _ client.Client) {
			c.Tenure = tenure.New(fixedClock(testStart), time.Second)
		}, notYet, false},
		"another client wrote the record":   {answers(conflict), rightAway, false},
		"another client created the record": {answers(exists), rightAway, false},
		"the write fails":                   {answers(errRefused), 0, true},
		"the record cannot be read": {
			func(c *Controller, _ *fakeMembers, api client.Client) { c.Live = failing(api, "get") }, 0, true,
		},
		"a health changes before all else": {health(time.Millisecond), time.Millisecond, false},
		"a health changes after all else":  {health(time.Hour), rightAway, false},
		"each request has a deadline": {func(c *Controller, _ *fakeMembers, api client.Client) {
			c.Client, c.Live, c.Seals = bounded(api), bounded(api), seal.NewStore(bounded(api), bounded(api))
		}, rightAway, false},
	} {
		c, f, api := newTestHub(t)
		f.shown[0].Priority, f.verdict.Answering = 5, true
		test.change(c, f, api)
		got, err := c.reconcileNamespace(t.Context(), aboutShop)
		if (err != nil) != test.fails || got.RequeueAfter != test.want {
			t.Errorf("%s: again in %v, %v; want %v, an error: %v", name, got.RequeueAfter, err, test.want, test.fails)
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
			if err := m.c.Client.Delete(m.t.Context(), o); err != nil {
				m.t.Fatal(err)
			}
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
			if got, err := m.c.reconcileNamespace(t.Context(), aboutShop); err != nil || got.RequeueAfter != notYet {
				t.Fatalf("%+v, %v", got, err)
			}
			if renews := m.renews(p); renews != test.renews {
				t.Errorf("renewed: %v, want %v", renews, test.renews)
			}
		})
	}
}

func TestDroppedNamespaceIsForgotten(t *testing.T) {
	m, _ := leads(t)
	p := publisherThatRead(t, testStart.Wall, testKey, eastLease(20))
	m.c.members.of[eastKey], m.c.Live = atWork(p), noRecords{}
	e := entryOf(t, m.c, shop)
	e.Highest = 20
	m.c.drop(e)
	if promise := m.c.promises.Get(shop); promise.Epoch != 0 {
		t.Errorf("promised: %+v", promise)
	}
	if highest := entryOf(t, m.c, shop).Highest; highest != 0 || len(p.Initial().Leases) > 0 {
		t.Errorf("the highest epoch is %d, Leases are %v", highest, p.Initial().Leases)
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

// Rule 2: the seal holds the D and the ε of a term before its record is written, and only then.
func TestSealIsRaisedBeforeATermBegins(t *testing.T) {
	till := types.NamespacedName{Namespace: "fleet", Name: "till"}
	for name, test := range map[string]struct {
		phase            election.RecordState
		unowned, broken  bool
		raised, persists bool
	}{
		"a term that begins":             {election.Leading, false, false, true, true},
		"a record without a leader":      {election.Draining, false, false, false, true},
		"a term that no policy claims":   {election.Leading, true, false, false, true},
		"the seal cannot be read":        {election.Leading, false, true, false, false},
		"no leader, and no seal is read": {election.Draining, false, true, false, true},
	} {
		c, _, api := newTestHub(t)
		good := c.Seals
		if test.broken {
			c.Seals = seal.NewStore(failing(api, "get"), failing(api, "get"))
		}
		v := shopView(election.Record{})
		if v.Key, v.Policy.Election.Timings.Skew = till, 20*time.Second; test.unowned {
			v.Policy = nil
		}
		r := eastLeads(20)
		r.State, r.Duration = test.phase, 2*time.Minute
		_, err := c.persist(t.Context(), v, planOf(election.Decision{Record: r, Persist: true}))
		getErr := api.Get(t.Context(), till, &v1alpha1.NamespaceLeader{})
		if (err == nil) != test.persists || apierrors.IsNotFound(getErr) == test.persists {
			t.Errorf("%s: %v, stored: %v", name, err, getErr)
		}
		s, err := good.Find(t.Context(), "fleet")
		if is := s.Largest(); err != nil || (is.Duration == 2*time.Minute && is.Skew == 20*time.Second) != test.raised {
			t.Errorf("%s: the seal has %+v, %v", name, is, err)
		}
	}
}

// A tenant with policies in one namespace of the hub reaches no Cluster of another one, whatever the policies say.
func TestPolicyNeverTouchesTheClustersOfAnotherNamespace(t *testing.T) {
	for of, leads := range map[string]bool{"fleet": true, "fleet2": false} { // the policy's namespace
		c, f, api := newTestHub(t)
		f.shown[0].Priority, f.verdict.Answering = 5, true
		east := c.members.of[eastKey].worker.Publisher()
		before := east.Queue.Len() // what was read there
		if err := api.Create(t.Context(), policyOf(of, "greedy", "till")); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			for _, key := range []types.NamespacedName{{Namespace: "fleet", Name: "till"}, {Namespace: "fleet2", Name: "till"}} {
				if _, err := c.reconcileNamespace(t.Context(), requestAbout(key)); err != nil {
					t.Fatal(err)
				}
			}
		}
		record, other := recordOf("fleet", "till"), recordOf("fleet2", "till")
		err := api.Get(t.Context(), client.ObjectKeyFromObject(record), record)
		if got := err == nil && record.Spec.Leader == "east"; got != leads {
			t.Errorf("of %s: east leads: %v (%+v, %v)", of, got, record.Spec, err)
		}
		if assigned := east.Queue.Len() > before; assigned != leads {
			t.Errorf("of %s: something is to be written into east: %v", of, assigned)
		}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(other), other); !apierrors.IsNotFound(err) {
			t.Errorf("of %s: a namespace without Clusters has a record: %+v, %v", of, other.Spec, err)
		}
	}
}
