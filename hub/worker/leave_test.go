package worker

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/publish"
)

// of is a Lease of another hub.
func of(hub string, c lease.Content) lease.Content {
	c.Hub = hub
	return c
}

// A guard stays where another hub has Leases, and where a Lease of this one may be left. A fence whose Leases are gone
// would refuse everybody.
func TestLeave_RemovesTheGuardAndForgetsTheMember(t *testing.T) {
	second, another := eastLease(20), of("another", eastLease(20))
	second.Name = "second"
	// to answers lists of what the guard consists of, or all requests about it.
	to := func(lists bool, status *metav1.Status) func(*env) {
		return func(r *env) {
			r.answer = func(req *http.Request) *metav1.Status {
				if strings.Contains(req.URL.Path, "admission") && (!lists || req.URL.Query().Get("labelSelector") != "") {
					return status
				}
				return nil
			}
		}
	}
	unread := func(r *env) { r.publisher = publish.New(publish.Options{}) }
	type row struct {
		leases    []lease.Content
		change    func(*env)
		removed   bool // the guard
		fenced    bool // a fence is left
		known     bool // the member, to the fleet
		unchecked bool // whether the guard and the fences are in force
		event     reason.Reason
	}
	rows(t, map[string]row{
		"no Lease is left":               {nil, func(*env) {}, true, false, false, true, ""},
		"the guard cannot be removed":    {nil, to(false, forbidden), false, true, true, true, reason.Forbidden},
		"the fences cannot be listed":    {nil, to(true, internal), false, true, true, true, reason.Unreachable},
		"the fences may not be listed":   {nil, to(true, forbidden), true, true, false, true, ""},
		"the member was not read yet":    {nil, unread, false, true, true, false, ""},
		"the replica is a standby":       {nil, func(r *env) { r.standby = true }, false, true, true, false, ""},
		"a Lease of this hub is left":    {[]lease.Content{eastLease(20)}, func(*env) {}, false, true, true, false, ""},
		"a Lease of another hub is left": {[]lease.Content{another}, func(*env) {}, false, false, false, true, ""},
		"Leases of both are left":        {[]lease.Content{another, second}, func(*env) {}, false, true, true, false, ""},
		"it moved to another hub":        {nil, func(r *env) { r.is("east", moves) }, false, true, false, false, ""},
		"the fleet does not know it":     {nil, func(r *env) { r.Forget(eastKey) }, false, true, false, false, ""},
	}, func(t *testing.T, row row) {
		r := newEnv(t, allJobs)
		r.kept()
		end := r.runs(r.keep)
		r.east.loses("/leases/")
		r.has(row.leases...)
		r.reads()
		r.is("east", goes)
		row.change(r)
		for range 2 {
			r.Wake()
			synctest.Wait()
		}
		end()
		if removed := len(r.east.holds(guard.Name)) == 0; removed != row.removed {
			t.Errorf("the guard is removed: %v, want %v", removed, row.removed)
		}
		if left := r.east.holds(allJobs.Name()); len(left) > 0 != row.fenced {
			t.Errorf("fences are left: %q, want any: %v", left, row.fenced)
		}
		if known := r.knows("east"); known != row.known {
			t.Errorf("the member is known: %v, want %v", known, row.known)
		}
		for _, err := range []error{r.Unguarded(), r.Unfenced(allJobs, "")} {
			if unchecked := errors.Is(err, guard.ErrUnchecked); unchecked != row.unchecked {
				t.Errorf("the worker reports %v", err)
			}
		}
		named := func(event string) bool { return strings.HasPrefix(event, string(row.event)+": the hub cannot remove") }
		if n := len(r.events); n > 1 || (n == 1) != (row.event != "") || n == 1 && !named(r.events[0]) {
			t.Errorf("events are %q", r.events)
		}
	})
}

// The Clusters of a fleet move together: with the first one that is deleted, all that are paused leave.
func TestLeaving_ClustersThatMoveOrTakeNoPart(t *testing.T) {
	nothing := func(*fleet.Member) {}
	type row struct {
		east, west func(*fleet.Member)
		leaving    []string
	}
	rows(t, map[string]row{
		"no move":                           {nothing, nothing, nil},
		"one is paused":                     {nothing, pauses, nil},
		"one moves, another is paused":      {moves, pauses, []string{"east", "west"}},
		"one moves, another is not paused":  {moves, nothing, []string{"east"}},
		"one moves, and is not seen paused": {func(m *fleet.Member) { m.DeleteForMove = true }, nothing, []string{"east"}},
		"one takes no part":                 {takesNoPart, nothing, []string{"east"}},
		"one is gone":                       {nothing, goes, []string{"west"}},
	}, func(t *testing.T, row row) {
		r := newEnv(t)
		r.is("east", row.east)
		r.is("west", row.west)
		south := fleet.Key{Fleet: "fleet2", Name: "south"}
		r.members[south] = fleet.Member{Key: south, Paused: true}
		var leaving []string
		for _, key := range []fleet.Key{eastKey, south, {Fleet: "fleet", Name: "west"}, {Name: "unknown"}} {
			if r.Worker.Member.Key = key; r.leaving() {
				leaving = append(leaving, key.Name)
			}
		}
		if !slices.Equal(leaving, append(row.leaving, "unknown")) {
			t.Errorf("%q leave, want %q", leaving, row.leaving)
		}
	})
}

// As long as a Cluster of the fleet is left, the ones that are gone show that all of them move.
func TestRelinquish_ForgetsTheMemberWithTheLastOfItsFleet(t *testing.T) {
	type row struct {
		lease  lease.Content
		change func(*env)
		known  bool
	}
	another := of("another", eastLease(20))
	rows(t, map[string]row{
		"all are gone": {another, func(*env) {}, false},
		"another Cluster is left": {another, func(r *env) {
			r.is("west", func(m *fleet.Member) { m.Gone = false })
		}, true},
		"the records are not relinquished": {another, func(r *env) { r.records = errRefused }, true},
		"its Lease is not relinquished":    {eastLease(20), func(*env) {}, true},
	}, func(t *testing.T, row row) {
		r := newEnv(t)
		r.has(row.lease)
		r.reads()
		r.is("east", func(m *fleet.Member) { moves(m); goes(m) })
		r.is("west", func(m *fleet.Member) { moves(m); goes(m) })
		row.change(r)
		r.relinquish(t.Context())
		if known := r.knows("east"); known != row.known {
			t.Errorf("it is known: %v, want %v", known, row.known)
		}
	})
}

// A move that is given up, or back again, leaves nothing behind: the hub writes the Leases of the member again.
func TestMemberOfAMoveThatIsGivenUp(t *testing.T) {
	stays := func(m *fleet.Member) { m.Gone, m.Paused, m.DeleteForMove = false, false, false }
	type row struct {
		steps []func(*fleet.Member)
		mark  string // on the Lease
	}
	rows(t, map[string]row{
		"it goes on":                       {nil, ""},
		"it is given up":                   {[]func(*fleet.Member){stays}, us},
		"the Cluster is gone, and is back": {[]func(*fleet.Member){goes, stays}, us},
		"it is given up, and begins again": {[]func(*fleet.Member){stays, moves}, ""},
		"it is given up, and the Cluster takes no part any more": {
			[]func(*fleet.Member){func(m *fleet.Member) { stays(m); takesNoPart(m) }}, us,
		},
	}, func(t *testing.T, row row) {
		r := newEnv(t)
		r.has(eastLease(20))
		defer r.runs(r.Run)()
		follow := assign.Assignment{Role: assign.Follow, Term: eastLease(20).Term}
		r.Publisher().Assign(shopLease, follow, publish.Timings{Timeout: time.Second})
		for _, step := range append([]func(*fleet.Member){moves}, row.steps...) {
			r.is("east", step)
			pass(3 * time.Second)
		}
		leases := r.Client.CoordinationV1().Leases(shopLease.Namespace)
		l := musttest.Get(leases.Get(t.Context(), shopLease.Name, metav1.GetOptions{}))(t)
		if c, _ := wire.Read(l); c.Hub != row.mark {
			t.Errorf("the Lease carries the mark %q, want %q", c.Hub, row.mark)
		}
	})
}
