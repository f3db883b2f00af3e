package controller

import (
	"errors"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/ledger"
	"github.com/leasecast/leasecast/hub/publish"
)

// Rule 8: what a move makes of records, policies and Clusters decides nothing.
func TestWhatAMoveStops(t *testing.T) {
	refused := errors.New("refused")
	leads := eastLeads(20)
	retired := election.Record{State: election.Retired, Epoch: 20}
	paused := func(v *decide.Snapshot) { v.Members[0].Paused, v.Members[1].Paused = true, true }
	lost := func(v *decide.Snapshot) { v.Found, v.Object = nil, nil }
	unclaimed := func(v *decide.Snapshot) { v.Policy = nil }
	for name, test := range map[string]struct {
		record   election.Record
		change   []func(*decide.Snapshot)
		move     fleet.Move
		err      error
		stops    bool
		standing bool
		fails    bool
		dropped  bool
	}{
		"a fleet that stays": {record: leads},
		"a Cluster that moves": {
			record: leads, change: []func(*decide.Snapshot){func(v *decide.Snapshot) { v.Members[1].DeleteForMove = true }},
			stops: true,
		},
		"a moved record that no policy claims yet": {
			record: leads, change: []func(*decide.Snapshot){unclaimed, func(v *decide.Snapshot) { v.Moved = true }}, stops: true,
			standing: true,
		},
		"a moved record that one claims": {
			record: leads, change: []func(*decide.Snapshot){func(v *decide.Snapshot) { v.Moved = true }}, move: fleet.Moving,
		},
		"a record that is there, though all pause": {
			record: leads, change: []func(*decide.Snapshot){paused}, move: fleet.Moving,
		},
		"a record that vanished from a fleet": {
			record: leads, change: []func(*decide.Snapshot){func(v *decide.Snapshot) { v.Restored = true }},
		},
		"a record that vanished from a moving one": {
			record: leads, change: []func(*decide.Snapshot){func(v *decide.Snapshot) { v.Restored = true }}, move: fleet.Moving,
			stops: true, standing: true,
		},
		"a lost record of a fleet that pauses": {
			change: []func(*decide.Snapshot){lost, paused}, move: fleet.Moving, stops: true, standing: true,
		},
		"a lost record of one that pauses in part": {
			change: []func(*decide.Snapshot){lost, func(v *decide.Snapshot) { v.Members[0].Paused = true }}, move: fleet.Moving,
		},
		"a lost record of a fleet without Clusters": {
			change: []func(*decide.Snapshot){lost, func(v *decide.Snapshot) { v.Members = nil }}, move: fleet.Moving,
		},
		"a lost record of a fleet that has moved": {
			change: []func(*decide.Snapshot){lost, paused}, move: fleet.MovedAway, stops: true, dropped: true,
		},
		"a policy that went from a moving fleet": {
			record: leads, change: []func(*decide.Snapshot){unclaimed}, move: fleet.Moving, stops: true, standing: true,
		},
		"a policy that went from one that has moved": {
			record: leads, change: []func(*decide.Snapshot){unclaimed}, move: fleet.MovedAway, stops: true,
		},
		"a policy that went from a fleet that stays": {record: leads, change: []func(*decide.Snapshot){unclaimed}},
		"a record that retires anyway": {
			record: retired, change: []func(*decide.Snapshot){unclaimed}, move: fleet.Moving,
		},
		"an empty record that no policy claims": {change: []func(*decide.Snapshot){unclaimed}, move: fleet.Moving},
		"nobody tells whether the fleet is moving": {
			record: leads, change: []func(*decide.Snapshot){unclaimed}, err: refused, fails: true,
		},
		"what stops for another reason is not looked": {
			record: leads, change: []func(*decide.Snapshot){unclaimed, func(v *decide.Snapshot) { v.Stop = "another" }},
			err: refused, stops: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, s, _ := onScene(t)
			s.moves, s.unmoved = test.move, test.err
			p := c.members.of[eastKey].worker.Publisher()
			v := shopView(test.record, measured("east", agrees), measured("west", agrees))
			v.Object, v.Found = &v1alpha1.NamespaceLeader{}, &v1alpha1.NamespaceLeaderSpec{}
			for _, change := range test.change {
				change(v)
			}
			err := c.checkMove(t.Context(), v)
			if (err != nil) != test.fails || (v.Stop != "") != test.stops || v.Renews != test.standing {
				t.Errorf("stops %q, standing %v, %v; want %v, %v", v.Stop, v.Renews, err, test.stops, test.standing)
			}
			if known := len(p.Initial().Leases) > 0; known == test.dropped {
				t.Errorf("it is still known: %v", known)
			}
		})
	}
}

// Whether a policy went says something only where a record was known.
func TestARecordThatWasKnownAndIsGoneMeansSomething(t *testing.T) {
	v := shopView(election.Record{})
	v.Policy = nil
	if v.Managed() {
		t.Error("a namespace that nobody ever managed")
	}
	v.Highest = 20
	if !v.Managed() {
		t.Error("one that had a record until now")
	}
	v.Found = &v1alpha1.NamespaceLeaderSpec{}
	if v.Managed() {
		t.Error("one whose record says nothing")
	}
}

// Rule 8: for as long as a record was another hub's, that hub may have stamped.
func TestAMovedRecordIsInheritedFromNow(t *testing.T) {
	c, _, _ := onScene(t)
	now := c.now().Wall
	v := &decide.Snapshot{Entry: &ledger.Entry{Taken: ledger.Taken{Key: shop, Moved: true}}}
	completed(t, c, v)
	if !v.State.Moved || !v.State.Tenure.Inherited.Equal(now) || !v.OtherHub.Equal(now) {
		t.Errorf("moved %v, inherited %v, noted %v", v.State.Moved, v.State.Tenure.Inherited, v.OtherHub)
	}
	v.Moved = false
	v = &decide.Snapshot{Entry: v.Entry}
	completed(t, c, v)
	if v.State.Moved || !v.State.Tenure.Inherited.Equal(now) {
		t.Errorf("once taken over: moved %v, inherited %v", v.State.Moved, v.State.Tenure.Inherited)
	}
	v = &decide.Snapshot{Entry: v.Entry}
	if v.Complete(decide.Fleet{Now: c.now(),
		Tenure: election.Tenure{Inherited: now.Add(1)}}); !v.State.Tenure.Inherited.Equal(now.Add(1)) {
		t.Errorf("inherited %v, which is earlier than known", v.State.Tenure.Inherited)
	}
}

func TestWhenARecordOfAnotherHubBecomesThisOnes(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*decide.Snapshot, *election.Decision)
		taken  bool
	}{
		"once its Leases are": {func(*decide.Snapshot, *election.Decision) {}, true},
		"not while there is something to write": {func(_ *decide.Snapshot, d *election.Decision) {
			d.Persist, d.Record.Next = true, "west"
		}, false},
		"not before its Leases are": {func(v *decide.Snapshot, _ *election.Decision) {
			v.Members[0].Sync.Marked = false
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, api := onScene(t)
			restated(t, api, func(o *v1alpha1.NamespaceLeader) { o.Spec = said20(); o.Spec.Hub = "another" })
			v := shopView(eastLeads(20), measured("east", agrees))
			v.Entry, v.Members[0].Sync = entryOf(t, c, shop), publish.SyncStatus{Marked: true, InPlace: true}
			d := election.Decision{Record: v.Record}
			test.change(v, &d)
			if _, err := c.persist(t.Context(), v, planOf(d)); err != nil {
				t.Error(err)
			}
			if e := entryOf(t, c, shop); (e.Found.Hub == "this") != test.taken || e.Moved == test.taken {
				t.Errorf("mark %q, of another hub: %v", e.Found.Hub, e.Moved)
			}
		})
	}
}

// Should this hub ever find one of its records again, it is not its own any more.
func TestTheRecordsOfAFleetAreLetGoOf(t *testing.T) {
	record := func(fleetName, name string, mark ...string) *v1alpha1.NamespaceLeader {
		o := &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: fleetName, Name: name}}
		if len(mark) > 0 {
			o.Spec.Hub = mark[0]
		}
		return o
	}
	synctest.Test(t, func(t *testing.T) {
		m := newMuster(t, record("fleet", "another", "another"), record("fleet", "old"), record("fleet2", "elsewhere"))
		mine := record("fleet", "mine", m.HubID)
		if err := m.api.Create(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
		m.Client = failing{Client: m.api, list: errRefused}
		if err := (workersHub{m.Controller}).RelinquishRecords(t.Context(), "fleet"); err == nil {
			t.Error("that they could not be listed is not told")
		}
		m.Client = m.api
		if err := (workersHub{m.Controller}).RelinquishRecords(t.Context(), "fleet"); err != nil {
			t.Fatal(err)
		}
		for _, want := range []struct {
			fleet, name, mark string
		}{{"fleet", "another", "another"}, {"fleet", "old", "none"}, {"fleet", "mine", "none"}, {"fleet2", "elsewhere", ""}} {
			o := record(want.fleet, want.name)
			if err := m.api.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				t.Fatal(err)
			}
			if o.Spec.Hub != want.mark {
				t.Errorf("%s is marked %q, want %q", want.name, o.Spec.Hub, want.mark)
			}
		}
	})
}
