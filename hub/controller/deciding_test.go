package controller

import (
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
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/ledger"
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
	s.c.members.of[eastKey] = atWork(p)
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
		change func(*decide.Member)
		closed bool
	}{
		"a term that goes on":             {election.Leading, func(*decide.Member) {}, false},
		"a term that ends":                {election.Draining, func(*decide.Member) {}, true},
		"a leader that is to be replaced": {election.Leading, func(m *decide.Member) { m.Deleting = true }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := leads(t)
			sent := s.stamp()
			m := changed(measured("east", agrees), test.change)
			m.Publisher = p
			r := s.leading(reason.Elected)
			r.State = test.phase
			v := shopView(r, m)
			v.Policy = s.policy
			s.c.decide(v)
			if got := s.c.sent(shop, test.closed); got.Final != test.closed || !got.Until.Equal(sent.Add(15*time.Second)) ||
				got.Skew != time.Second {
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
	s.policy.Election.StopTime = 17 * time.Second
	s.decided(s.publisher(), s.leading(reason.Elected), true)
	if got := s.c.sent(shop, true); got.Stop != 17*time.Second || got.Skew != time.Second {
		t.Errorf("sent: %+v, want a stop time of 17 s and an ε of 1 s", got)
	}
}

// beside is a scene in which another installation serves the fleet.
type beside struct{ *scene }

func (beside) served(string) (here bool, other string) { return false, "platform" }

// What stands is renewed only as long as nothing says that this would be wrong.
func TestWhatStandsWhileNothingIsDecided(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*stage)
		renews bool
	}{
		"the Clusters are not known": {func(s *stage) { s.c.source = &scene{unsynced: true} }, false},
		"the record is gone from a fleet that moves": {func(s *stage) {
			entryOf(t, s.c, shop)
			o := ledger.NewRecord(shop)
			if err := s.c.Client.Delete(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			s.c.ledger.Show(o, true)
			s.c.source = &scene{moves: fleet.Moving}
		}, true},
		"another installation serves the fleet": {func(s *stage) {
			s.c.source = beside{&scene{}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := leads(t)
			s.c.Tenure = succeeding(t, s.clock.Now(), 6*time.Second, -time.Hour)
			hubOf(t, s.c)
			s.c.source = &scene{}
			test.change(s)
			got, err := s.c.reconcileNamespace(t.Context(),
				mcreconcile.Request{Request: reconcile.Request{NamespacedName: shop}})
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
	c.Client, c.Live = bounded{api}, bounded{api}
	c.Seals = seal.NewStore(bounded{api}, bounded{api})
	if _, err := c.reconcileNamespace(t.Context(),
		mcreconcile.Request{Request: reconcile.Request{NamespacedName: shop}}); err != nil {
		t.Error(err)
	}
	c.Live = api
	if claim := entryOf(t, c, shop).Claim; claim.Owner == "" {
		t.Errorf("nobody remembers which policy claims it: %v", claim)
	}
}

func TestNothingIsLeftOfANamespaceThatIsDropped(t *testing.T) {
	s, _ := leads(t)
	p := publisherThatRead(t, musterStart.Wall, testKey, eastLease(20))
	s.c.members.of[eastKey], s.c.Live = atWork(p), noRecords{}
	e := entryOf(t, s.c, shop)
	e.Highest = 20
	s.c.drop(e)
	if promise := s.c.promises.Get(shop); promise.Epoch != 0 {
		t.Errorf("promised: %+v", promise)
	}
	if highest := entryOf(t, s.c, shop).Highest; highest != 0 || len(p.Initial().Leases) > 0 {
		t.Errorf("known: %d, found: %v", highest, p.Initial().Leases)
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
		v.Key = till
		if test.unowned {
			v.Policy = nil
		}
		r := eastLeads(20)
		r.State, r.Duration = test.phase, 2*time.Minute
		_, err := c.persist(t.Context(), v, planOf(election.Decision{Record: r, Persist: true}))
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
	if !c.MayWrite("fleet", musterStart) {
		t.Error("the elected replica may not")
	}
	late := lease.Reading{Wall: musterStart.Wall.Add(time.Hour), Boot: musterStart.Boot + time.Hour}
	if c.MayWrite("fleet", late) {
		t.Error("it may without an election that lasts")
	}
}
