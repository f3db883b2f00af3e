package controller

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/seal"
)

// leads is a stage on which east leads, by a publisher that is at work.
func leads(t *testing.T) (*stage, *publish.Publisher) {
	t.Helper()
	s := newStage(t)
	s.c.events = silent{}
	p := s.publisher()
	s.decided(p, s.leading(reason.Elected), true)
	s.c.members[eastKey] = atWork(p)
	if s.stamp().IsZero() {
		t.Fatal("nothing was stamped")
	}
	return s, p
}

// stamp is that of the Lease in east.
func (s *stage) stamp() time.Time {
	l := s.east.leases[shopCopy.Name]
	if l == nil {
		return time.Time{}
	}
	c, _ := wire.Read(l)
	return c.RenewTime
}

// renews reports whether the Lease is renewed when that is due.
func (s *stage) renews(p *publish.Publisher) bool {
	before := s.stamp()
	s.clock.Advance(6 * time.Second)
	p.Queue.Add(shopCopy)
	s.work(p)
	return s.stamp().After(before)
}

// Rule 4: the source of stamps is closed before what was sent is counted.
func TestRenewTimesEndBeforeTheyAreCounted(t *testing.T) {
	for name, test := range map[string]struct {
		phase  election.RecordState
		change func(*memberView)
		closed bool
	}{
		"a term that goes on":             {election.Leading, func(*memberView) {}, false},
		"a term that ends":                {election.Draining, func(*memberView) {}, true},
		"a leader that is to be replaced": {election.Leading, func(m *memberView) { m.Deleting = true }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := leads(t)
			sent := s.stamp()
			m := changed(measured("east", agrees), test.change)
			m.publisher = p
			r := s.leading(reason.Elected)
			r.State = test.phase
			v := shopView(r, m)
			v.policy = s.policy
			cs, _ := v.candidates()
			s.c.decide(v, cs)
			if got := v.state.Sent; got.Final != test.closed || !got.Until.Equal(sent.Add(15*time.Second)) || got.Skew != time.Second {
				t.Errorf("sent: %+v, want it closed: %v", got, test.closed)
			}
			if renews := s.renews(p); renews == test.closed {
				t.Errorf("renewed: %v", renews)
			}
		})
	}
}

// A lock may be held for the stop time after the end of a term, by what the policy said when the term was renewed last.
func TestWhatWasSentCountsWithTheStopTimeOfItsPolicy(t *testing.T) {
	s := newStage(t)
	s.policy.election.StopTime = 17 * time.Second
	s.decided(s.publisher(), s.leading(reason.Elected), true)
	if got := s.c.sent(shop, true); got.Stop != 17*time.Second || got.Skew != time.Second {
		t.Errorf("sent: %+v, want a stop time of 17 s and an ε of 1 s", got)
	}
}

// beside is a scene in which another installation serves the fleet.
type beside struct{ *scene }

func (beside) servedBy(string) string { return besideMark }

// What stands is renewed only as long as nothing says that this would be wrong.
func TestWhatStandsWhileNothingIsDecided(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*stage)
		renews bool
	}{
		"the Clusters are not known": {func(s *stage) { s.c.source = &scene{unsynced: true} }, false},
		"this replica may not be the elected one any more": {func(s *stage) {
			s.c.namespace(shop).known = ofSpec(v1alpha1.NamespaceLeaderSpec{Leader: "west"})
			s.c.Elected = func(context.Context) bool { return false }
		}, true},
		"another installation serves the fleet": {func(s *stage) {
			s.c.HubID, s.c.source = seal.Mark("uid", "leasecast-system"), beside{&scene{}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := leads(t)
			s.c.Tenure = succeeding(t, s.clock.Now(), 6*time.Second, -time.Hour)
			hubOf(t, s.c)
			s.c.source = &scene{}
			test.change(s)
			got, err := s.c.reconcileNamespace(t.Context(), mcreconcile.Request{Request: reconcile.Request{NamespacedName: shop}})
			if err != nil || got.RequeueAfter != notYet {
				t.Fatalf("%+v, %v", got, err)
			}
			if renews := s.renews(p); renews != test.renews {
				t.Errorf("renewed: %v, want %v", renews, test.renews)
			}
		})
	}
}

// A decision takes as long as it may, and no longer.
func TestADecisionIsBounded(t *testing.T) {
	c, s, api := onScene(t)
	s.shown[0].Priority, s.verdict.Answering = 5, true
	c.client, c.live = bounded{api}, bounded{api}
	c.Seals = seal.NewStore(bounded{api}, bounded{api})
	if _, err := c.reconcileNamespace(t.Context(), mcreconcile.Request{Request: reconcile.Request{NamespacedName: shop}}); err != nil {
		t.Error(err)
	}
	if claim := c.recall(shop).claim; claim.owner == "" {
		t.Errorf("nobody remembers which policy claims it: %v", claim)
	}
}

func TestNothingIsLeftOfANamespaceThatIsDropped(t *testing.T) {
	s, _ := leads(t)
	p := publisherThatRead(t, musterStart.Wall, testKey, eastLease(20))
	s.c.members[eastKey], s.c.namespace(shop).known = atWork(p), ofSpec(said20())
	s.c.drop(shop)
	if promise := s.c.promises.Get(shop); promise.Epoch != 0 {
		t.Errorf("promised: %+v", promise)
	}
	if s.c.recall(shop).known != nil || len(p.Initial().Leases) > 0 {
		t.Errorf("known: %v, found: %v", s.c.recall(shop).known, p.Initial().Leases)
	}
}

// One that never was is forgotten as well: the next look takes what it finds.
func TestARecordThatNeverWasIsForgotten(t *testing.T) {
	c, _, _ := onScene(t)
	c.namespace(shop).known = ofSpec(said20())
	if err := c.finish(t.Context(), &view{key: shop}); err != nil || c.recall(shop).known != nil {
		t.Errorf("%v, known: %v", err, c.recall(shop).known)
	}
}

func TestADecisionReadsAClockAsARecordStoresIt(t *testing.T) {
	odd := musterStart
	odd.Wall = odd.Wall.Add(1234567)
	c := New(Options{Clock: fixedClock(odd)})
	if now := c.now(); !now.Wall.Equal(musterStart.Wall.Add(1234*time.Microsecond)) || now.Boot != odd.Boot {
		t.Errorf("%v", now)
	}
}

func TestANewRecordIsMadeWithWhatItSays(t *testing.T) {
	for name, refuses := range map[string]error{"it is made": nil, "it is not": errRefused} {
		c, _, api := onScene(t)
		c.client = &writes{Client: api, answer: refuses}
		v := &view{key: types.NamespacedName{Namespace: "fleet", Name: "till"}}
		o := newRecord(v.key)
		o.Spec = said20()
		err := c.write(t.Context(), v, o)
		if (err != nil) != (refuses != nil) {
			t.Fatalf("%s: %v", name, err)
		}
		if refuses != nil {
			if v.object != nil {
				t.Errorf("%s, and it is known", name)
			}
			continue
		}
		stored := &v1alpha1.NamespaceLeader{}
		if err := api.Get(t.Context(), v.key, stored); err != nil || stored.Spec.Leader != "east" || v.object == nil {
			t.Errorf("%s: %+v, %v; of the view: %+v", name, stored.Spec, err, v.object)
		}
	}
}

// A grant is what begins a term, whoever wrote it first.
func TestWhatCountsAsAGrant(t *testing.T) {
	with := func(epoch int64, phase election.RecordState, why reason.Reason) election.Record {
		r := eastLeads(epoch)
		r.State, r.Reason = phase, why
		return r
	}
	for name, test := range map[string]struct {
		now              election.Record
		granted, adopted int64
	}{
		"a new term":                 {with(21, election.Leading, reason.Elected), 21, 0},
		"a term that was taken over": {with(20, election.Leading, reason.Adopted), 0, 20},
		"a term that resumes":        {with(20, election.Leading, reason.Resumed), 0, 0},
		"a term that is revoked":     {with(21, election.Draining, reason.PriorityChanged), 0, 0},
		"one that ends":              {with(20, election.Draining, reason.Adopted), 0, 0},
	} {
		c, _, _ := onScene(t)
		v, err := c.gather(t.Context(), shop)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.persist(t.Context(), v, election.Decision{Record: test.now, Persist: true}); err != nil {
			t.Fatal(err)
		}
		if c.namespace(shop).granted != test.granted || c.namespace(shop).adopted != test.adopted {
			t.Errorf("%s: granted %d, adopted %d; want %d, %d", name, c.namespace(shop).granted, c.namespace(shop).adopted, test.granted, test.adopted)
		}
	}
}

// Rule 2: the largest D and ε are stored before a Lease depends on them, and only for that.
func TestWhatTheSealIsToldOf(t *testing.T) {
	till := types.NamespacedName{Namespace: "fleet", Name: "till"}
	for name, test := range map[string]struct {
		phase    election.RecordState
		unowned  bool
		broken   bool
		raised   bool
		persists bool
	}{
		"a term that begins":                    {election.Leading, false, false, true, true},
		"a record that leads nobody":            {election.Draining, false, false, false, true},
		"a term that no policy claims any more": {election.Leading, true, false, false, true},
		"a term, and the seal cannot be told":   {election.Leading, false, true, false, false},
	} {
		c, _, api := onScene(t)
		good := c.Seals
		if test.broken {
			refused := failing{Client: api, get: errRefused}
			c.Seals = seal.NewStore(refused, refused)
		}
		v := shopView(election.Record{})
		v.key = till
		if test.unowned {
			v.policy = nil
		}
		r := eastLeads(20)
		r.State, r.Duration = test.phase, 2*time.Minute
		err := c.persist(t.Context(), v, election.Decision{Record: r, Persist: true})
		getErr := api.Get(t.Context(), till, &v1alpha1.NamespaceLeader{})
		if (err == nil) != test.persists || apierrors.IsNotFound(getErr) == test.persists {
			t.Errorf("%s: %v, stored: %v", name, err, getErr)
		}
		if s, err := good.Find(t.Context(), "fleet"); err != nil || (s.Largest().Duration == 2*time.Minute) != test.raised {
			t.Errorf("%s: the seal says %v, %v", name, s.Largest().Duration, err)
		}
	}
}

func TestWhoMayWrite(t *testing.T) {
	c, _, _ := onScene(t)
	if !c.mayWrite("fleet", musterStart) {
		t.Error("the elected replica may not")
	}
	late := lease.Reading{Wall: musterStart.Wall.Add(time.Hour), Boot: musterStart.Boot + time.Hour}
	if c.mayWrite("fleet", late) {
		t.Error("it may without an election that lasts")
	}
}
