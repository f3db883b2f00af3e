package decide_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/decide/decidetest"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/ledger"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/skew"
)

var us, them = decidetest.EastKey.Identity(), decidetest.WestKey.Identity()

// found is a snapshot of a namespace without a policy. The Leases were found in east when it was read.
func found(r election.Record, initial ...lease.Content) *decide.Snapshot {
	v := shopView(r, measured("east", agrees, func(m *member) {
		m.Initial = publish.Initial{Read: true, At: start.Boot, Leases: initial}
	}))
	v.HubID, v.Policy = "this", nil
	return v
}

// Rule 8: a follower's Lease is written on change and promises nothing, whoever it names. What happened to an adopted
// term is in the record.
func TestPresentTermIsTheLeadersOwnLease(t *testing.T) {
	type (
		snapshot = *decide.Snapshot
		content  = *lease.Content
	)
	for name, test := range map[string]struct {
		change func(snapshot, content)
		found  bool
	}{
		"the leader's own":                     {func(snapshot, content) {}, true},
		"a follower's":                         {func(_ snapshot, c content) { c.Holder = them }, false},
		"another cluster's name":               {func(_ snapshot, c content) { c.Cluster, c.Holder = them, them }, false},
		"another namespace":                    {func(_ snapshot, c content) { c.Namespace = "till" }, false},
		"an epoch that no hub can have given":  {func(_ snapshot, c content) { c.Epoch = 1 << 40 }, false},
		"a term that was adopted":              {func(v snapshot, _ content) { v.Adopted = 20 }, false},
		"a newer term than the adopted":        {func(v snapshot, _ content) { v.Adopted = 19 }, true},
		"a moved record: the Lease may be old": {func(v snapshot, _ content) { v.Moved = true }, false},
	} {
		v := found(election.Record{}, leaseOf(20))
		test.change(v, &v.Members[0].Initial.Leases[0])
		v.Complete(decide.Fleet{Now: start})
		if got := v.State.Found; (got != nil) != test.found {
			t.Errorf("%s: present term %+v, want one: %v", name, got, test.found)
		} else if got != nil && (got.Cluster != "east" || got.Boot != start.Boot+15*time.Second) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	v := found(election.Record{}, leaseOf(7), leaseOf(9), leaseOf(8))
	if v.Complete(decide.Fleet{Now: start}); v.State.Found.Term.Epoch != 9 {
		t.Errorf("present term %+v, want the highest epoch", v.State.Found)
	}
}

// Rule 8: two hubs whose policies name their Leases differently would both have their leader. Where no term stands, all
// Leases of a moved namespace are taken, so none may be overlooked.
func TestLeasesOfOtherHubs(t *testing.T) {
	const second = time.Second
	unread := leaseOf(30, func(c *lease.Content) { c.Hub = "another" })
	absurd := leaseOf(1<<30, func(c *lease.Content) { c.Hub = "" })
	for name, test := range map[string]struct {
		hub, holder     string
		moved           bool
		sealed          bool
		stop, after     time.Duration // of fenced locks; since the renewTime
		found, otherHub bool
	}{
		"moved: the leader's, relinquished":          {"", us, true, true, 0, 0, true, false},
		"moved: the leader's, the other hub's":       {"another", us, true, true, 0, 0, false, true},
		"moved: a follower's, relinquished":          {"", them, true, true, 0, 0, false, false},
		"moved: a follower's, the other hub's":       {"another", them, true, true, 0, 0, false, true},
		"moved: the other hub's with another seal":   {"another", us, true, false, 0, 0, false, true},
		"moved: without a mark, with another seal":   {"", us, true, false, 0, 0, false, false},
		"another hub's, a lock outlasts it":          {"another", us, false, false, 20 * second, 36*second - 1, false, true},
		"another hub's term, its locks have stopped": {"another", us, false, false, 20 * second, 36 * second, false, false},
		"another hub's follower":                     {"another", them, false, false, 0, 0, false, false},
		"this hub's under an old name":               {"this", us, false, false, 0, 0, false, false},
		"not moved: relinquished":                    {"", us, false, true, 0, 0, false, false},
	} {
		v := found(election.Record{})
		v.Moved = test.moved
		is := leaseOf(20, func(c *lease.Content) { c.Hub, c.Holder = test.hub, test.holder })
		v.Members[0].Leases = []publish.Lease{
			{Content: is, Known: true, Sealed: test.sealed}, {Content: unread}, {Content: absurd, Known: true, Sealed: true},
		}
		bounds := map[string]seal.Bounds{"deleted": {Duration: 20 * second, Skew: second, Stop: test.stop}}
		v.Complete(decide.Fleet{Now: later(test.after), Seal: seal.Seal{Policies: bounds}})
		if is := v.State.Found != nil; is != test.found || v.State.OtherHub != test.otherHub {
			t.Errorf("%s: found %v, another hub: %v; want %v, %v", name, is, v.State.OtherHub, test.found, test.otherHub)
		}
		if f := v.State.Found; f != nil && f.Boot != later(test.after).Boot+15*second {
			t.Errorf("%s: it may be live until %v", name, f.Boot)
		}
		if v.State.LargestDuration != 20*second || v.State.LargestSkew != second {
			t.Errorf("%s: D %v, ε %v", name, v.State.LargestDuration, v.State.LargestSkew)
		}
		if raised := v.State.Highest == 20; raised != (test.moved && test.sealed && test.hub != "another") {
			t.Errorf("%s: the highest epoch is %d", name, v.State.Highest)
		}
	}
}

// later is a reading after the start.
func later(d time.Duration) lease.Reading {
	return lease.Reading{Wall: start.Wall.Add(d), Boot: start.Boot + d}
}

// Rule 8: the hub of a moved record may have written until now.
func TestMovedRecordIsInheritedFromNow(t *testing.T) {
	e := decidetest.Entry(shop)
	for _, step := range []struct {
		moved           bool
		at, from, wants time.Duration // from: what the tenure inherits anyway
	}{{true, 0, -time.Hour, 0}, {true, time.Minute, -time.Hour, time.Minute}, {false, 2 * time.Minute, -time.Hour,
		2 * time.Minute}, {false, time.Hour, -time.Hour, 2 * time.Minute}, {false, time.Hour, time.Hour, time.Hour}} {
		e.Moved = step.moved
		v := &decide.Snapshot{Entry: e}
		v.Complete(decide.Fleet{Now: later(step.at), Tenure: election.Tenure{Inherited: later(step.from).Wall}})
		if got := v.State.Tenure.Inherited; v.State.Moved != step.moved || !got.Equal(later(step.wants).Wall) {
			t.Errorf("%+v: moved %v, inherited %v", step, v.State.Moved, got)
		}
	}
}

// Rule 8: what another hub that leads can have promised counts from the first decision that does not see it any more.
func TestPromisesOfAnotherHubThatLeads(t *testing.T) {
	const minute = time.Minute
	theirs := leaseOf(20, func(c *lease.Content) { c.Hub, c.Duration, c.Skew = "another", minute, 4*time.Second })
	claimed := shopView(election.Record{}).Policy
	for name, test := range map[string]struct {
		policy    *decide.Policy
		found     *v1alpha1.NamespaceLeaderSpec
		inherited bool
	}{
		"a policy claims the namespace": {claimed, nil, true},
		"it has a record":               {nil, &v1alpha1.NamespaceLeaderSpec{}, true},
		"this hub has no part in it":    {nil, nil, false},
	} {
		v := found(election.Record{})
		v.Policy, v.Found = test.policy, test.found
		want := election.State{Tenure: election.Tenure{Inherited: start.Wall}}
		if test.inherited {
			want.Tenure.Inherited, want.LargestDuration, want.LargestSkew = later(2*time.Second).Wall, minute, 4*time.Second
		}
		is := []publish.Lease{{Content: theirs, Known: true}}
		for at, leases := range [][]publish.Lease{is, is, nil, nil} {
			v.State, v.Members[0].Leases = election.State{}, leases
			v.Complete(decide.Fleet{Now: later(time.Duration(at) * time.Second), Tenure: election.Tenure{Inherited: start.Wall}})
		}
		got := v.State
		if !got.Tenure.Inherited.Equal(want.Tenure.Inherited) || got.LargestDuration != want.LargestDuration ||
			got.LargestSkew != want.LargestSkew {
			t.Errorf("%s: inherited %v, D %v, ε %v", name, got.Tenure.Inherited, got.LargestDuration, got.LargestSkew)
		}
	}
}

// Rule 6: only the leader's cluster shows when a term was renewed last.
func TestWhetherTheLeaderWasRead(t *testing.T) {
	led, vacant := decidetest.EastLeads(20), election.Record{State: election.Vacant, Epoch: 20}
	for name, test := range map[string]struct {
		record election.Record
		member member
		unread bool
	}{
		"the leader was read":                        {led, measured("east", agrees), false},
		"the leader was not read":                    {led, measured("east", agrees, unread), true},
		"another cluster was, the leader's is gone":  {led, measured("west", agrees), true},
		"nobody leads, and the cluster was not read": {vacant, measured("east", agrees, unread), false},
	} {
		v := shopView(test.record, test.member)
		if v.Complete(decide.Fleet{Now: start}); v.State.LeaderUnread != test.unread {
			t.Errorf("%s: unread %v", name, v.State.LeaderUnread)
		}
	}
}

// Rule 24: a rebalance moves what the policy owned at its instant.
func TestRebalanceOfANewOwner(t *testing.T) {
	const hour = time.Hour
	for name, test := range map[string]struct {
		recorded    string // the owner
		at, counted time.Duration
		want        election.RecordState
	}{
		"the owner's, its instant has come":         {"shops", -hour, -2 * hour, election.Ending},
		"the owner's, it was counted":               {"shops", -hour, -hour, election.Leading},
		"a new owner's, its instant was before":     {"before", -hour, -2 * hour, election.Leading},
		"a new owner's, the former one's was later": {"before", -2 * hour, -hour, election.Leading},
	} {
		r := decidetest.EastLeads(20)
		r.Rebalanced = start.Wall.Add(test.counted)
		r.Observed["west"] = 90
		west := measured("west", agrees, func(m *member) { m.Priority = 90 })
		v := shopView(r, measured("east", agrees, func(m *member) { m.Priority = 9 }), west)
		v.Policy.Election.LeaseName, v.Policy.Election.RebalanceAt = "leasecast", start.Wall.Add(test.at)
		v.Found = &v1alpha1.NamespaceLeaderSpec{Policy: test.recorded}
		v.Complete(decide.Fleet{Now: start})
		p := v.Decide(start, election.Sent{Final: true}, false)
		if p.Record.State != test.want || p.Record.Rebalanced.Before(v.Policy.Election.RebalanceAt) {
			t.Errorf("%s: %s, rebalanced at %v", name, p.Record.State, p.Record.Rebalanced)
		}
	}
}

// Rule 7: epochs rise above all that was ever seen, also in a cluster that takes no part.
func TestHighestEpoch(t *testing.T) {
	floor := lease.EpochFloor(start.Wall)
	for name, test := range map[string]struct {
		granted, seen, recorded, found, want int64
	}{
		"the record's":                          {0, 0, 30, 20, 30},
		"a Lease's":                             {0, 0, 10, 20, 20},
		"a grant of this tenure":                {40, 0, 10, 20, 40},
		"a record's that was lost since":        {0, 50, 10, 20, 50},
		"a clock that was ahead gave the seen":  {0, floor + 1e9, 10, 20, 20},
		"a clock that was ahead gave the found": {0, 0, 10, floor + 1e9, 10},
	} {
		v := found(election.Record{State: election.Vacant, Epoch: test.recorded}, leaseOf(test.found))
		v.Granted, v.Highest, v.Members[0].TakesPart = test.granted, test.seen, false
		v.Complete(decide.Fleet{Now: start})
		if got := v.State.Highest; got != test.want || v.Highest != max(test.granted, test.seen, test.recorded) {
			t.Errorf("%s: %d, remembered %d; want %d", name, got, v.Highest, test.want)
		}
	}
}

// Rule 6: a restored record, policy and seal may be older than the Leases of the same term, whose D and ε count.
func TestLeasesBoundWhatARestoredRecordPromised(t *testing.T) {
	const second, minute = time.Second, time.Minute
	smaller := seal.Bounds{Duration: 10 * second}
	older, larger := seal.Bounds{Duration: 15 * second, Skew: second}, seal.Bounds{Duration: minute, Skew: 4 * second}
	for name, test := range map[string]struct {
		leader string // only east is read, and has the Lease
		holder string // in the Lease
		epoch  int64
		lease  seal.Bounds
		want   seal.Bounds
	}{
		"larger ones in the record's epoch":                         {"west", them, 20, larger, larger},
		"smaller ones in the record's epoch":                        {"west", them, 20, smaller, older},
		"larger ones of an earlier term":                            {"west", them, 19, larger, older},
		"larger ones in the leader's Lease":                         {"east", us, 20, larger, larger},
		"larger ones in another's Lease, and the leader's was read": {"east", them, 20, larger, older},
		"larger ones in a later Lease, and the leader's was read":   {"east", them, 21, larger, larger},
	} {
		r := election.Record{State: election.Leading, Leader: test.leader, Epoch: 20, Duration: 15 * second, Skew: second}
		v := found(r, leaseOf(test.epoch, func(c *lease.Content) {
			c.Holder, c.Duration, c.Skew = test.holder, test.lease.Duration, test.lease.Skew
		}))
		v.Found = &v1alpha1.NamespaceLeaderSpec{Policy: "shops"}
		v.Complete(decide.Fleet{Now: start, Seal: seal.Seal{Policies: map[string]seal.Bounds{"shops": older}}})
		if got := (seal.Bounds{Duration: v.State.LargestDuration, Skew: v.State.LargestSkew}); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

// What the leader's Lease shows counts for its term. What another Lease shows counts for the next term.
func TestWhatADecisionTakesFromTheLeases(t *testing.T) {
	type facts = publish.SyncStatus
	type state = election.State
	leads := election.Record{State: election.Leading, Leader: "east", Epoch: 20}
	revoked := election.Record{State: election.Ending, Leader: "east", Epoch: 21, Revoked: 20}
	ends := election.Record{State: election.Ending, Leader: "east", Epoch: 20}
	for name, test := range map[string]struct {
		record election.Record
		member string
		facts  facts
		want   state
	}{
		"the leader's is lost":                {leads, "east", facts{Lost: true}, state{LeaseLost: true}},
		"a follower's is lost":                {leads, "west", facts{Lost: true}, state{}},
		"the leader's is burnt":               {leads, "east", facts{PoisonedEpoch: 20}, state{LeaseLost: true, Highest: 20}},
		"the leader's earlier epoch is burnt": {leads, "east", facts{PoisonedEpoch: 19}, state{}},
		"one leads, a follower's is burnt":    {leads, "west", facts{PoisonedEpoch: 30}, state{}},
		"nobody leads, a follower's is burnt": {ends, "west", facts{PoisonedEpoch: 30}, state{Highest: 30}},
		"nobody leads, a follower's is newer": {ends, "west", facts{Newer: 31}, state{Highest: 31}},
		"the leader's is newer":               {leads, "east", facts{Newer: 31}, state{Highest: 31}},
		"the term is released":                {revoked, "east", facts{Released: 20}, state{Released: true}},
		"another term is released":            {revoked, "east", facts{Released: 19}, state{}},
		"another hub's Lease":                 {leads, "west", facts{Problem: reason.OtherHub}, state{OtherHub: true}},
	} {
		v := shopView(test.record, measured(test.member, agrees, func(m *member) { m.Sync = test.facts }))
		v.Complete(decide.Fleet{Now: start})
		s, highest := v.State, max(test.record.Epoch, test.want.Highest)
		if s.LeaseLost != test.want.LeaseLost || s.Released != test.want.Released || s.Highest != highest ||
			s.OtherHub != test.want.OtherHub {
			t.Errorf("%s: lost %v, released %v, highest %d, other hub %v", name, s.LeaseLost, s.Released, s.Highest, s.OtherHub)
		}
	}
}

// Rule 16.
func TestLockIsRefusedOnlyWhereEveryReachedMemberSaysSo(t *testing.T) {
	type since = map[string]time.Duration
	refuses := func(name string, since time.Duration, err error, changes ...func(*member)) member {
		refusals := func(m *member) { m.Refusals = []decide.Refusal{{Lock: "stock/stock", Since: since, Err: err}} }
		return measured(name, agrees, append([]func(*member){refusals}, changes...)...)
	}
	unhealthy := func(m *member) { m.Verdict.State = health.Unhealthy }
	disconnected := func(m *member) { m.Connected = false }
	invalid := apierrors.NewInvalid(schema.GroupKind{}, "gate", nil)
	forbidden, east := fmt.Errorf("rights: %w", guard.ErrForbidden), refuses("east", time.Minute, nil)
	hour, minute, twoHours := since{"stock/stock": time.Hour}, since{"stock/stock": time.Minute},
		since{"stock/stock": 2 * time.Hour}
	for name, test := range map[string]struct {
		west member
		want since
	}{
		"the last one to refuse counts":             {refuses("west", time.Hour, nil), hour},
		"the first member was the last to refuse":   {refuses("west", time.Second, nil), minute},
		"west does not refuse it yet":               {refuses("west", 0, guard.ErrNotEnforced), since{}},
		"west will not have the fence":              {refuses("west", 0, forbidden), minute},
		"west does not store the fence":             {refuses("west", 0, invalid), minute},
		"west was lost before it refused":           {refuses("west", 0, guard.ErrNotEnforced, unhealthy), twoHours},
		"west was lost after it refused":            {refuses("west", time.Hour, nil, unhealthy), hour},
		"west was lost and will not have the fence": {refuses("west", 0, guard.ErrForbidden, unhealthy), minute},
		"west was disconnected in this moment":      {refuses("west", 0, guard.ErrNotEnforced, disconnected), twoHours},
		"west takes no part":                        {refuses("west", 0, guard.ErrNotEnforced, outside), minute},
	} {
		v := shopView(election.Record{}, east, test.west)
		v.Policy = fencing("shops", nil, stock)
		for _, at := range []time.Duration{2 * time.Hour, 3 * time.Hour} { // what is lost stays lost since then
			if v.Complete(decide.Fleet{Now: lease.Reading{Boot: at}}); !maps.Equal(v.State.RefusedSince, test.want) {
				t.Errorf("%s: %v, want %v", name, v.State.RefusedSince, test.want)
			}
		}
	}
	v := shopView(election.Record{}, refuses("east", time.Hour, nil, unhealthy))
	v.Policy = fencing("shops", nil, stock)
	if v.Complete(decide.Fleet{Now: start}); len(v.State.RefusedSince) > 0 {
		t.Errorf("no member is reached: %v", v.State.RefusedSince)
	}
	v = shopView(election.Record{}, east, east)
	v.Policy = fencing("shops", nil, stock)
	for at, is := range []func(*member){unhealthy, func(*member) {}, unhealthy} {
		v.Members[1] = refuses("west", 0, guard.ErrNotEnforced, is)
		v.Complete(decide.Fleet{Now: lease.Reading{Boot: time.Duration(at+1) * time.Hour}})
	}
	if v.State.RefusedSince["stock/stock"] != 3*time.Hour {
		t.Errorf("west was reached in between and was lost later: %v", v.State.RefusedSince)
	}
}

// Rule 6.
func TestWhichBoundsOfTheSealCountForARecord(t *testing.T) {
	s := seal.Seal{Policies: map[string]seal.Bounds{}}
	for i, name := range []string{"shops", "younger", "other", "deleted"} {
		s.Policies[name] = seal.Bounds{Stop: time.Duration(i+1) * time.Second, Duration: time.Duration(i) * 10 * time.Second}
	}
	younger := s.Policies["younger"]
	younger.Skew = 2 * time.Second
	s.Policies["younger"] = younger // it selects the namespace, too
	all := decidetest.Policies("shops", "younger", "other")
	record := func(policy string) *v1alpha1.NamespaceLeaderSpec {
		return &v1alpha1.NamespaceLeaderSpec{Policy: policy, State: v1alpha1.StateLeading, LeaseDurationSeconds: 15}
	}
	emptied := &v1alpha1.NamespaceLeaderSpec{Policy: "other"}
	for name, test := range map[string]struct {
		found         *v1alpha1.NamespaceLeaderSpec
		stop, d, skew time.Duration
	}{
		"the owner's":            {record("shops"), time.Second, 15 * time.Second, 0},
		"the former owner's too": {record("other"), 3 * time.Second, 20 * time.Second, 0},
		"a lost record: those of a deleted policy and of all that select it": {
			nil, 4 * time.Second, 30 * time.Second, younger.Skew},
		"an emptied record: those of a deleted policy and of all that select it": {
			emptied, 4 * time.Second, 30 * time.Second, younger.Skew},
	} {
		v := &decide.Snapshot{Entry: decidetest.Entry(shop), Policy: all[0], Losers: all[1:2]}
		if v.Found = test.found; test.found != nil {
			v.Record = ledger.RecordOf(test.found)
		}
		v.Complete(decide.Fleet{Seal: s, Policies: all})
		if is := v.State; is.LargestStop != test.stop || is.LargestDuration != test.d || is.LargestSkew != test.skew {
			t.Errorf("%s: stop time %v, D %v, ε %v", name, is.LargestStop, is.LargestDuration, is.LargestSkew)
		}
	}
	if b := decide.BoundsOf(decidetest.Policies("shops", "unknown!")[1:]); b != (seal.Bounds{}) {
		t.Errorf("the bounds of an invalid policy count: %+v", b)
	}
}

// Only the leader's clock delays the end of its term.
func TestClockOfTheLeaderThatIsBehind(t *testing.T) {
	behind := func(d time.Duration) skew.Verdict {
		return skew.Verdict{State: skew.Beyond, Offset: skew.Interval{Lo: -d, Hi: -d}}
	}
	for east, want := range map[skew.Verdict]time.Duration{
		behind(2 * time.Second): 2 * time.Second, agrees: 0, decidetest.Vague: 0, decidetest.TwoAhead: 0,
	} {
		v := shopView(election.Record{Leader: "east"}, measured("east", east), measured("west", behind(9*time.Second)))
		if v.Complete(decide.Fleet{Now: start}); v.State.Behind != want {
			t.Errorf("%v: behind by %v, want %v", east, v.State.Behind, want)
		}
	}
}

func TestManagedNamespaces(t *testing.T) {
	for name, test := range map[string]struct {
		found   *v1alpha1.NamespaceLeaderSpec
		state   election.RecordState
		highest int64
		want    bool
	}{
		"it had a record until now": {nil, "", 20, true},
		"its record is empty":       {&v1alpha1.NamespaceLeaderSpec{}, "", 20, false},
		"its record leads":          {&v1alpha1.NamespaceLeaderSpec{}, election.Leading, 20, true},
		"its record is retired":     {&v1alpha1.NamespaceLeaderSpec{}, election.Retired, 20, false},
		"this tenure never saw it":  {nil, election.Leading, 0, false},
	} {
		v := shopView(election.Record{State: test.state})
		v.Found, v.Highest = test.found, test.highest
		if got := v.Managed(); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// Rule 8: a record is this hub's once the leader's Lease is or, where nobody leads, every Lease.
func TestLeasesAreOurs(t *testing.T) {
	ours := func(name string, changes ...func(*member)) member {
		marked := func(m *member) { m.Sync = publish.SyncStatus{Marked: true, InPlace: true} }
		return measured(name, agrees, append([]func(*member){marked}, changes...)...)
	}
	unmarked := func(m *member) { m.Sync.Marked = false }
	misplaced := func(m *member) { m.Sync.InPlace = false }
	notRead := func(m *member) { m.IsRead = false }
	noPublisher := func(m *member) { m.Publisher = nil }
	leads, vacant := decidetest.EastLeads(20), election.Record{State: election.Vacant, Reason: reason.Moved, Epoch: 20}
	never, none, ends := vacant, vacant, vacant
	never.Epoch, none.Reason, ends.State = 0, reason.NoCandidate, election.Ending
	for name, test := range map[string]struct {
		record     election.Record
		east, west member
		want       bool
	}{
		"the leader's Lease is, a follower's is not":       {leads, ours("east"), ours("west", unmarked, notRead), true},
		"the leader's Lease is not":                        {leads, ours("east", unmarked), ours("west"), false},
		"the leader's Lease is of another term":            {leads, ours("east", misplaced), ours("west"), false},
		"nobody leads, all Leases are":                     {vacant, ours("east"), ours("west"), true},
		"nobody leads, one Lease is not":                   {vacant, ours("east"), ours("west", unmarked), false},
		"nobody leads, one Lease is of another term":       {vacant, ours("east"), ours("west", misplaced), false},
		"nobody leads, one member is not read":             {vacant, ours("east"), ours("west", notRead), false},
		"nobody leads, one member has no publisher":        {vacant, ours("east"), ours("west", noPublisher), false},
		"nobody leads, a member that takes no part is not": {vacant, ours("east"), ours("west", notRead, outside), true},
		"nobody leads, a member without the namespace":     {vacant, ours("east"), ours("west", without, unmarked), true},
		"nobody leads, the namespace terminates there":     {vacant, ours("east"), ours("west", terminating, unmarked), true},
		"nobody ever led, and there are no Leases":         {never, ours("east", unmarked), ours("west"), true},
		"nobody leads for another reason":                  {none, ours("east"), ours("west"), false},
		"a term that ends":                                 {ends, ours("east"), ours("west"), false},
	} {
		if got := shopView(test.record, test.east, test.west).LeasesAreOurs(test.record); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
