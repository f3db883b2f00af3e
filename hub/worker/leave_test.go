package worker

import (
	"errors"
	"net/http"
	"path"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/publish"
)

func moves(m *fleet.Member)  { m.Paused, m.DeleteForMove = true, true }
func pauses(m *fleet.Member) { m.Paused = true }
func goes(m *fleet.Member)   { m.Gone = true }

// of is a Lease of another hub.
func of(hub string, c lease.Content) lease.Content {
	c.Hub = hub
	return c
}

// A guard stays where another hub has Leases, and where a Lease of this one may be left.
func TestWhenAMemberThatTakesNoPartIsLetGoOf(t *testing.T) {
	second := eastLease(20)
	second.Name = "second"
	for name, test := range map[string]struct {
		leases  []lease.Content
		change  func(*rig)
		removed bool // the guard
		known   bool // the member
		unsure  bool // whether the guard and the fences are in force
	}{
		"nothing is left there": {nil, func(*rig) {}, true, false, true},
		"the guard cannot be taken out": {nil, func(r *rig) {
			r.look = failure(http.StatusForbidden, metav1.StatusReasonForbidden)
		}, false, true, true},
		"the member was not read yet":   {nil, func(r *rig) { r.publisher = publish.New(publish.Options{}) }, false, true, false},
		"a standby lets go of nothing":  {nil, func(r *rig) { r.standby = true }, false, true, false},
		"nor does one that stands back": {nil, func(r *rig) { r.by = them }, false, true, false},
		"a Lease of this hub is left":   {[]lease.Content{eastLease(20)}, func(*rig) {}, false, true, false},
		"a Lease of another hub is left": {
			[]lease.Content{of("another", eastLease(20))}, func(*rig) {}, false, false, false,
		},
		"a Lease of this hub and one of another are left": {
			[]lease.Content{of("another", eastLease(20)), second}, func(*rig) {}, false, true, false,
		},
		"it moved to another hub": {nil, func(r *rig) {
			m := r.members[eastKey]
			moves(&m)
			r.members[eastKey] = m
		}, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := jobsOf("")
				r := newFenced(t, f).rig
				r.east.loses("leases")
				end := r.runs(r.keep)
				pass(3 * time.Second)
				end()
				r.has(test.leases...)
				r.reads()
				r.is("east", goes)
				test.change(r)
				r.leave(t.Context())
				if removed := !r.installed(); removed != test.removed {
					t.Errorf("the guard is gone: %v, want %v", removed, test.removed)
				}
				if known := r.knows("east"); known != test.known {
					t.Errorf("it is known: %v, want %v", known, test.known)
				}
				if unsure := errors.Is(r.Unguarded(), ErrUnchecked); unsure != test.unsure {
					t.Errorf("the worker says of the guard: %v", r.Unguarded())
				}
				if unsure := errors.Is(r.Unfenced(f, ""), ErrUnchecked); unsure != test.unsure {
					t.Errorf("the worker says of a fence: %v", r.Unfenced(f, ""))
				}
			})
		})
	}
}

func TestAMemberIsNotLetGoOfBeforeItsFencesAreTakenOut(t *testing.T) {
	for name, test := range map[string]struct {
		answer *metav1.Status
		known  bool
	}{
		"nothing is known of them":       {failure(http.StatusInternalServerError, metav1.StatusReasonInternalError), true},
		"who may not list them has none": {failure(http.StatusForbidden, metav1.StatusReasonForbidden), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.guarded()
				r.reads()
				r.is("east", goes)
				r.east.refuses(func(req *http.Request) *metav1.Status {
					if path.Base(req.URL.Path) == "validatingadmissionpolicies" && req.Method == http.MethodGet {
						return test.answer // of lists
					}
					return nil
				})
				r.leave(t.Context())
				if known := r.knows("east"); known != test.known {
					t.Errorf("it is known: %v", known)
				}
			})
		})
	}
}

// Of a member that is not known nothing is left that could be let go of.
func TestAGuardStaysWhereTheMemberIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.guarded()
		r.reads()
		r.Forget(eastKey)
		r.leave(t.Context())
		if !r.installed() {
			t.Error("it was taken out")
		}
	})
}

// The Clusters of a fleet move together: with the first that is deleted all that are paused are let go of.
func TestWhichClustersMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for _, name := range []string{"east", "north", "west"} {
			r.is(name, func(*fleet.Member) {})
		}
		south := fleet.Key{Fleet: "fleet2", Name: "south"}
		r.members[south] = fleet.Member{Key: south}
		moving := func() (names []string) {
			for _, fleetName := range []string{"fleet", "fleet2"} {
				for _, m := range r.Members(fleetName) {
					if r.moves(m) {
						names = append(names, m.Name)
					}
				}
			}
			slices.Sort(names)
			return names
		}
		leaves := func(key fleet.Key) bool {
			r.Worker.Member.Key = key
			return r.leaving()
		}
		r.is("west", pauses)
		if got := moving(); len(got) > 0 {
			t.Errorf("a pause alone: %q", got)
		}
		r.is("east", moves)
		if got := moving(); !slices.Equal(got, []string{"east", "west"}) {
			t.Errorf("%q", got)
		}
		for name, want := range map[string]bool{"east": true, "west": true, "north": false, "unknown": true} {
			if got := leaves(fleet.Key{Fleet: "fleet", Name: name}); got != want {
				t.Errorf("%s leaves: %v", name, got)
			}
		}
		r.is("north", func(m *fleet.Member) { m.PriorityReason = reason.NoPriority })
		r.is("west", func(m *fleet.Member) { *m = fleet.Member{Key: m.Key, Gone: true} })
		for _, name := range []string{"north", "west"} {
			if !leaves(fleet.Key{Fleet: "fleet", Name: name}) {
				t.Errorf("%s does not leave", name)
			}
		}
		if leaves(south) {
			t.Error("one of another fleet leaves")
		}
	})
}

// A Cluster that clusterctl deletes for a move is paused, but who looks need not have seen that.
func TestAClusterThatIsDeletedForAMoveLeavesPausedOrNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.is("east", func(m *fleet.Member) { m.DeleteForMove = true })
		if !r.leaving() {
			t.Error("it stays")
		}
	})
}

func TestAMovedClusterIsKnownUntilItsLeasesAreLetGoOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.has(eastLease(20))
		r.reads()
		r.is("east", func(m *fleet.Member) { moves(m); goes(m) })
		r.relinquish(t.Context())
		if !r.knows("east") {
			t.Error("it is forgotten")
		}
	})
}

// As long as a Cluster of the fleet is left, those that are gone tell that they all move.
func TestAMovedClusterIsForgottenWithTheLastOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.has(of("another", eastLease(20)))
		r.reads()
		r.is("east", func(m *fleet.Member) { moves(m); goes(m) })
		r.is("west", moves)
		if r.relinquish(t.Context()); !r.knows("east") {
			t.Error("it is forgotten before west is gone")
		}
		r.is("west", goes)
		r.records = errRefused
		if r.relinquish(t.Context()); !r.knows("east") {
			t.Error("it is forgotten before the records are let go of")
		}
		r.records = nil
		if r.relinquish(t.Context()); r.knows("east") {
			t.Error("it is still known when all have gone")
		}
	})
}
