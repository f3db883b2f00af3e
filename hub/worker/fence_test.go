package worker

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
)

// jobsOf is a fence of all Jobs in namespace shop.
func jobsOf(mode v1alpha1.Enforcement) guard.Fence {
	return guard.Fences(us, &v1alpha1.LeadershipPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "shops"},
		Spec: v1alpha1.LeadershipPolicySpec{
			Namespaces: v1alpha1.NamespaceSelection{Names: []string{"shop"}},
			Fencing:    &v1alpha1.Fencing{Enforcement: mode, Schedules: &metav1.LabelSelector{}},
		},
	}, nil)[0]
}

func TestWhatIsMissingOfAFence(t *testing.T) {
	seen := func(shop, settled bool) *guard.FenceState {
		return &guard.FenceState{InForce: map[string]bool{"shop": shop}, Settled: settled}
	}
	for name, test := range map[string]struct {
		mode      v1alpha1.Enforcement
		namespace string
		state     *guard.FenceState
		why       error
		want      error
	}{
		"nothing is known":                               {"", "shop", nil, nil, ErrUnchecked},
		"it refuses there":                               {"", "shop", seen(true, false), nil, nil},
		"it does not refuse there":                       {"", "shop", seen(false, false), nil, guard.ErrNotEnforced},
		"it was seen elsewhere only":                     {"", "shop", &guard.FenceState{Settled: true}, nil, guard.ErrNotEnforced},
		"it is forbidden":                                {"", "shop", seen(true, true), guard.ErrForbidden, guard.ErrForbidden},
		"of the member: it is settled":                   {"", "", seen(true, true), nil, nil},
		"of the member: it is not settled":               {"", "", seen(true, false), nil, guard.ErrNotEnforced},
		"one that warns is there":                        {v1alpha1.EnforcementWarn, "shop", &guard.FenceState{}, nil, nil},
		"of one that warns nothing is known":             {v1alpha1.EnforcementWarn, "shop", nil, nil, ErrUnchecked},
		"one that warns is not let into the member, too": {v1alpha1.EnforcementWarn, "shop", seen(false, false), guard.ErrUnsupported, guard.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			w, f := New(Options{}), jobsOf(test.mode)
			if test.state != nil {
				w.fences[f.Name()] = knownFence{FenceState: *test.state, why: test.why}
			}
			if err := w.Unfenced(f, test.namespace); !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
				t.Errorf("missing is %v, want %v", err, test.want)
			}
		})
	}
}

func TestFencesAreKeptByTheInstallationThatServesTheFleet(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*rig)
		there  bool
	}{
		"it serves the fleet":             {func(*rig) {}, true},
		"another installation does":       {func(r *rig) { r.by = them }, false},
		"another replica may write":       {func(r *rig) { r.standby = true }, false},
		"the member takes no part":        {func(r *rig) { r.members[eastKey] = fleet.Member{Key: eastKey, PriorityReason: reason.NoPriority} }, false},
		"the member has moved elsewhere":  {func(r *rig) { r.members[eastKey] = fleet.Member{Key: eastKey, DeleteForMove: true} }, false},
		"no policy asks for anything":     {func(r *rig) { r.wanted = nil }, false},
		"a policy asks to warn of things": {func(r *rig) { r.wanted = []guard.Fence{jobsOf(v1alpha1.EnforcementWarn)} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.wanted = []guard.Fence{jobsOf("")}
				test.change(r)
				defer r.runs(r.keepFences)()
				pass(time.Second)
				if there := len(r.east.holds("wall")) > 0; there != test.there {
					t.Errorf("there are %q", r.east.holds("admission"))
				}
			})
		})
	}
}

func TestWhichNamespacesAFenceIsPutIn(t *testing.T) {
	shop := func(changes ...func(*corev1.Namespace)) []corev1.Namespace {
		ns := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
		for _, change := range changes {
			change(&ns)
		}
		return []corev1.Namespace{ns, {ObjectMeta: metav1.ObjectMeta{Name: "bank"}}}
	}
	of := func(namespace, name string) []coordinationv1.Lease {
		return []coordinationv1.Lease{{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}}
	}
	for name, test := range map[string]struct {
		namespaces []corev1.Namespace
		leases     []coordinationv1.Lease
		want       map[string]bool
	}{
		"one that the policy names, and no other": {shop(), nil, map[string]bool{"shop": false}},
		"one that has the Lease":                  {shop(), of("shop", "leasecast"), map[string]bool{"shop": true}},
		"one that has another Lease":              {shop(), of("shop", "other"), map[string]bool{"shop": false}},
		"one where another has it":                {shop(), of("bank", "leasecast"), map[string]bool{"shop": false}},
		"none that was deleted":                   {shop(func(ns *corev1.Namespace) { ns.DeletionTimestamp = &metav1.Time{Time: rigStart.Wall} }), nil, map[string]bool{}},
		"none that ends":                          {shop(func(ns *corev1.Namespace) { ns.Status.Phase = corev1.NamespaceTerminating }), nil, map[string]bool{}},
		"none that is not there":                  {nil, nil, map[string]bool{}},
		"nor its Lease, when it ends":             {shop(func(ns *corev1.Namespace) { ns.Status.Phase = corev1.NamespaceTerminating }), of("shop", "leasecast"), map[string]bool{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := wantedFences{fences: []guard.Fence{jobsOf("")}}
			got.add(test.namespaces, test.leases)
			if len(got.spaces) != 1 || !maps.Equal(got.spaces[0], test.want) {
				t.Errorf("%v, want %v", got.spaces, test.want)
			}
			if has := got.leases[types.NamespacedName{Namespace: "shop", Name: "leasecast"}]; has != test.want["shop"] {
				t.Errorf("there are the Leases %v", got.leases)
			}
		})
	}
}

// Each namespace of each fence is asked. Whether it has the Lease does not matter.
func TestHowLongACheckOfFencesMayTake(t *testing.T) {
	for name, test := range map[string]struct {
		spaces []map[string]bool
		want   time.Duration
	}{
		"without fences":              {nil, guardTimeout},
		"of fences of no namespace":   {[]map[string]bool{{}, {}}, guardTimeout},
		"of a fence of two":           {[]map[string]bool{{"shop": true, "bank": false}}, guardTimeout + 2*namespaceTimeout},
		"of two fences of one of two": {[]map[string]bool{{"shop": true}, {"shop": true, "bank": true}}, guardTimeout + 3*namespaceTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (wantedFences{spaces: test.spaces}).timeout(); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// A member is looked at again and again for edits of its fences. One without fences is not.
func TestAMemberWithoutFencesIsAskedForNone(t *testing.T) {
	for name, test := range map[string]struct {
		answer *metav1.Status
		want   []time.Duration // looks for what an earlier hub has left there
	}{
		"there is none":                  {nil, every(guardEvery, 0)},
		"who may not list them has none": {failure(http.StatusForbidden, metav1.StatusReasonForbidden), every(guardEvery, 0)},
		"until it has answered":          {failure(http.StatusInternalServerError, metav1.StatusReasonInternalError), every(fenceLook, guardEvery-fenceLook)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.look = test.answer
				defer r.runs(r.keepFences)()
				pass(guardEvery - fenceLook)
				if looked, _ := r.since(); !slices.Equal(looked, test.want) {
					t.Errorf("it was looked at after %v, want %v", looked, test.want)
				}
			})
		})
	}
}

// Somebody deletes a fence in the cluster, or all that belongs to it.
func TestAFenceThatSomebodyDeletesIsPutBackInASecond(t *testing.T) {
	for name, what := range map[string]string{
		"the wall": "wall", "its binding": "bindings/shops.fleet", "the anchor": guard.AnchorName, "everything": "shops.fleet",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.wanted = []guard.Fence{jobsOf("")}
				defer r.runs(r.keepFences)()
				pass(3 * time.Second)
				there := len(r.east.holds("admission"))
				if there == 0 || len(r.events) > 0 {
					t.Fatalf("%d objects are there, and there are events %q", there, r.events)
				}
				r.east.loses(what)
				pass(editedEvery + fenceLook)
				if n := len(r.east.holds("admission")); n != there {
					t.Errorf("%d of %d objects are back", n, there)
				}
				if len(r.events) != 1 || !strings.Contains(r.events[0], "put it back") {
					t.Errorf("events are %q", r.events)
				}
			})
		})
	}
}

// The hub itself changes what it keeps, which is no edit of anybody.
func TestAFenceThatTheHubChangesIsNotSaidToBeEdited(t *testing.T) {
	for name, change := range map[string]func(*rig){
		"another fence is wanted": func(r *rig) { r.wanted = []guard.Fence{jobsOf(v1alpha1.EnforcementWarn)} },
		"none is wanted":          func(r *rig) { r.wanted = nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.wanted = []guard.Fence{jobsOf("")}
				defer r.runs(r.keepFences)()
				pass(3 * time.Second)
				r.will(change)
				pass(3 * time.Second)
				if len(r.events) > 0 {
					t.Errorf("events are %q", r.events)
				}
			})
		})
	}
}

// A cluster that does not answer has not lost its fences. One that forbids them, or does not know them, has none.
func TestSilenceSaysNothingOfAFence(t *testing.T) {
	for name, test := range map[string]struct {
		answer *metav1.Status
		want   error
	}{
		"silence":   {failure(http.StatusInternalServerError, metav1.StatusReasonInternalError), nil},
		"a refusal": {failure(http.StatusForbidden, metav1.StatusReasonForbidden), guard.ErrForbidden},
		"ignorance": {failure(http.StatusNotFound, metav1.StatusReasonNotFound), guard.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				f := jobsOf("")
				r.wanted = []guard.Fence{f}
				defer r.runs(r.keepFences)()
				pass(time.Second)
				if err := r.Unfenced(f, ""); err != nil {
					t.Fatal(err)
				}
				r.will(func(r *rig) { r.look = test.answer })
				pass(guardEvery + fenceLook)
				if err := r.Unfenced(f, ""); !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
					t.Errorf("missing is %v, want %v", err, test.want)
				}
			})
		})
	}
}
