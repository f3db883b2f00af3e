package controller

import (
	"errors"
	"testing"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/publish"
)

// Rule 8: what a move makes of records, policies and Clusters decides nothing.
func TestWhatAMoveStops(t *testing.T) {
	type (
		snapshot = *decide.Snapshot
		changes  = []func(snapshot)
	)
	leads, retired := eastLeads(20), election.Record{State: election.Retired, Epoch: 20}
	never := election.Record{}
	leaves := func(v snapshot) { v.Members[1].DeleteForMove = true }
	paused := func(v snapshot) { v.Members[0].Paused, v.Members[1].Paused = true, true }
	partly := func(v snapshot) { v.Members[0].Paused = true }
	lost := func(v snapshot) { v.Found, v.Object = nil, nil }
	restored := func(v snapshot) { v.Restored = true }
	unclaimed := func(v snapshot) { v.Policy = nil }
	moved := func(v snapshot) { v.Moved = true }
	stopped := func(v snapshot) { v.Stop = "another reason" }
	const none, stops, renews = "", "stops", "stops and renews"
	for name, test := range map[string]struct {
		record  election.Record
		changes changes
		move    fleet.Move
		err     error
		want    string
	}{
		"the fleet stays":                         {leads, nil, fleet.Stays, nil, none},
		"a Cluster moves":                         {leads, changes{leaves}, fleet.Stays, nil, stops},
		"a moved record that no policy claims":    {leads, changes{unclaimed, moved}, fleet.Stays, nil, renews},
		"a moved record that a policy claims":     {leads, changes{moved}, fleet.Moving, nil, none},
		"all Clusters pause, the record exists":   {leads, changes{paused}, fleet.Moving, nil, none},
		"the record vanished, the fleet moves":    {leads, changes{restored}, fleet.Moving, nil, renews},
		"a lost record, all Clusters pause":       {never, changes{lost, paused}, fleet.Moving, nil, renews},
		"a lost record, some Clusters pause":      {never, changes{lost, partly}, fleet.Moving, nil, none},
		"a lost record, the fleet has moved":      {never, changes{lost, paused}, fleet.MovedAway, nil, "stops and drops"},
		"the policy is gone, the fleet moves":     {leads, changes{unclaimed}, fleet.Moving, nil, renews},
		"the policy is gone, the fleet has moved": {leads, changes{unclaimed}, fleet.MovedAway, nil, stops},
		"the policy is gone, the fleet stays":     {leads, changes{unclaimed}, fleet.Stays, nil, none},
		"no policy claims a retired record":       {retired, changes{unclaimed}, fleet.Moving, nil, none},
		"the Clusters cannot be listed":           {leads, changes{unclaimed}, fleet.Stays, errRefused, "fails"},
		"it stops for another reason":             {leads, changes{unclaimed, stopped}, fleet.Stays, errRefused, stops},
	} {
		c, f, _ := newTestHub(t)
		f.moves, f.unmoved = test.move, test.err
		v := shopView(test.record, measured("east", agrees), measured("west", agrees))
		v.Object, v.Found = &v1alpha1.NamespaceLeader{}, &v1alpha1.NamespaceLeaderSpec{}
		for _, change := range test.changes {
			change(v)
		}
		got := ""
		if err := c.checkMove(t.Context(), v); err != nil {
			got = "fails"
		} else if v.Stop != "" {
			got = stops
		}
		if v.Renews {
			got += " and renews"
		}
		if p := c.members.of[eastKey].worker.Publisher(); len(p.Initial().Leases) == 0 {
			got += " and drops"
		}
		if got != test.want {
			t.Errorf("%s: it %s (%s), want %q", name, got, v.Stop, test.want)
		}
	}
}

func TestWhenARecordOfAnotherHubIsTakenOver(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*decide.Snapshot, *election.Decision)
		refusal error // of the write
		taken   bool
	}{
		"its Leases are this hub's": {func(*decide.Snapshot, *election.Decision) {}, nil, true},
		"its write fails":           {func(*decide.Snapshot, *election.Decision) {}, errRefused, false},
		"it has to be written": {
			func(_ *decide.Snapshot, d *election.Decision) { d.Persist, d.Record.Next = true, "west" }, nil, false,
		},
		"its Leases are not this hub's": {
			func(v *decide.Snapshot, _ *election.Decision) { v.Members[0].Sync.Marked = false }, nil, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, api := newTestHub(t)
			changeStored(t, api, recordOf("fleet", "shop"), func(o *v1alpha1.NamespaceLeader) {
				o.Spec = said20()
				o.Spec.Hub = "another"
			})
			v := shopView(eastLeads(20), measured("east", agrees))
			v.Entry, v.Members[0].Sync = entryOf(t, c, shop), publish.SyncStatus{Marked: true, InPlace: true}
			d := election.Decision{Record: v.Record}
			test.change(v, &d)
			c.Client = refusing(api, &test.refusal, "update")
			if _, err := c.persist(t.Context(), v, planOf(d)); !errors.Is(err, test.refusal) {
				t.Error(err)
			}
			if e := entryOf(t, c, shop); (e.Found.Hub == "this") != test.taken || e.Moved == test.taken {
				t.Errorf("mark %q, of another hub: %v", e.Found.Hub, e.Moved)
			}
			musttest.Do(t, workersHub{c}.RelinquishRecords(t.Context(), "fleet"))
			o := recordOf("fleet", "shop")
			musttest.Do(t, api.Get(t.Context(), shop, o))
			if relinquished := o.Spec.Hub == v1alpha1.NoHub; relinquished != test.taken {
				t.Errorf("mark %q after this hub has relinquished its records", o.Spec.Hub)
			}
		})
	}
}
