package worker

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
)

var (
	broken  = failure(http.StatusInternalServerError, metav1.StatusReasonInternalError)
	refused = failure(http.StatusForbidden, metav1.StatusReasonForbidden)
	invalid = failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	unknown = failure(http.StatusNotFound, metav1.StatusReasonNotFound)
)

func TestKeeperWritesWhereItsHubServesTheFleet(t *testing.T) {
	for name, test := range map[string]struct {
		change         func(*rig)
		guarded, there bool
	}{
		"it serves the fleet":            {func(*rig) {}, true, true},
		"another installation serves it": {func(r *rig) { r.by = them }, false, false},
		"another replica may write":      {func(r *rig) { r.standby = true }, false, false},
		"the seal is not known":          {func(r *rig) { r.by, r.unsealed = "", true }, false, false},
		"the member takes no part": {func(r *rig) {
			r.members[eastKey] = fleet.Member{Key: eastKey, PriorityReason: reason.NoPriority}
		}, false, false},
		"the member has moved": {func(r *rig) {
			r.members[eastKey] = fleet.Member{Key: eastKey, DeleteForMove: true}
		}, false, false},
		"no policy has fences":        {func(r *rig) { r.wanted = nil }, true, false},
		"the fence of a policy warns": {func(r *rig) { r.wanted = []guard.Fence{jobsOf(v1alpha1.EnforcementWarn)} }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenced(t, jobsOf(""))
				f.reads()
				test.change(f.rig)
				defer f.runs(f.keep)()
				pass(time.Second)
				if guarded := len(f.east.holds(guard.Name)) == 2; guarded != test.guarded {
					t.Errorf("the guard is there: %v", guarded)
				}
				if err := f.Unguarded(); (err == nil) != test.guarded {
					t.Errorf("the guard: %v", err)
				}
				if there := len(f.east.holds("wall")) > 0; there != test.there {
					t.Errorf("there are %q", f.east.holds("admission"))
				}
			})
		})
	}
}

func TestUnguarded_SaysWhatTheMemberAnswers(t *testing.T) {
	notHub := failure(http.StatusForbidden, metav1.StatusReasonForbidden)
	notHub.Message = guard.Policies()[0].Policy.Spec.Validations[0].Message
	for name, test := range map[string]struct {
		look, try *metav1.Status
		want      error // at first
		later     error // after the guard was in force
	}{
		"the guard rejects the probe":           {nil, nil, nil, nil},
		"the guard accepts the probe":           {nil, letThrough, guard.ErrNotEnforced, guard.ErrNotEnforced},
		"the hub may not install it":            {refused, nil, guard.ErrForbidden, guard.ErrForbidden},
		"the hub may not publish":               {nil, notHub, guard.ErrForbidden, guard.ErrForbidden},
		"the member does not serve the kind":    {unknown, nil, guard.ErrUnsupported, guard.ErrUnsupported},
		"the member is silent":                  {broken, broken, ErrUnchecked, nil},
		"the member does not answer the probes": {nil, broken, ErrUnchecked, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				expects := func(r *rig, want error) {
					t.Helper()
					if err := r.Unguarded(); !errors.Is(err, want) || (err == nil) != (want == nil) {
						t.Errorf("the guard: %v, want %v", err, want)
					}
				}
				r := newRig(t)
				r.look, r.try = test.look, test.try
				end := r.runs(r.keep)
				pass(5 * time.Second)
				end()
				expects(r, test.want)

				r = newRig(t)
				defer r.runs(r.keep)()
				pass(time.Second)
				expects(r, nil)
				r.news()
				r.will(func(r *rig) { r.look, r.try = test.look, test.try })
				pass(guard.VerifyEvery + guard.IdleEvery)
				expects(r, test.later)
				if news := slices.Contains(r.news(), ""); news != (test.later != nil) {
					t.Errorf("a decision is enqueued: %v", news)
				}
			})
		})
	}
}

func TestGuardThatIsDeletedIsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.runs(r.keep)()
		pass(3 * time.Second)
		there := len(r.east.holds("admission"))
		r.east.loses(guard.Name)
		pass(guard.IdleEvery + keepEvery)
		if n := len(r.east.holds("admission")); n != there || there != 4 {
			t.Errorf("%d of %d objects are back", n, there)
		}
	})
}

// A member that is in order costs two lists a second while it has fences, and two in ten seconds without any.
func TestHowManyRequestsAMemberInOrderGets(t *testing.T) {
	for name, test := range map[string]struct {
		wanted        []guard.Fence
		listed, tried []time.Duration
	}{
		"with a fence":    {[]guard.Fence{jobsOf("")}, every(guard.LookEvery, 125*time.Second), every(guard.VerifyEvery, 120*time.Second)},
		"without a fence": {nil, every(guard.IdleEvery, 120*time.Second), nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenced(t, test.wanted...)
				f.kept()
				f.keeper.Forget()
				writes := f.east.version
				end := f.runs(f.keep)
				pass(125 * time.Second)
				end()
				// After Forget, everything is written once without effect, so a second snapshot follows.
				listed := slices.DeleteFunc(f.listed, func(at time.Duration) bool { return at == keepEvery })
				if len(listed) < len(test.listed)-2 || len(listed) > len(test.listed)+2 || !slices.Equal(f.tried, test.tried) {
					t.Errorf("listed at %v, probed at %v, want %v and %v", listed, f.tried, test.listed, test.tried)
				}
				if f.east.version != writes {
					t.Errorf("%d writes", f.east.version-writes)
				}
			})
		})
	}
}

func TestFenceThatOthersChangeIsRestoredInASecond(t *testing.T) {
	shops := jobsOf("")
	audit := func(spec map[string]any) { spec["validationActions"] = []any{"Audit"} }
	for name, test := range map[string]struct {
		change func(*fenced)
		events int
	}{
		"its wall is deleted":       {func(f *fenced) { f.east.loses("wall") }, 1},
		"its bindings are deleted":  {func(f *fenced) { f.east.loses("bindings/shops.fleet") }, 1},
		"its gate only audits":      {func(f *fenced) { f.east.edits("bindings/"+shops.Name(), audit) }, 1},
		"everything is deleted":     {func(f *fenced) { f.east.loses("shops.fleet") }, 1},
		"the anchor is deleted":     {func(f *fenced) { f.east.loses("fences.leasecast.dev") }, 0},
		"its gate loses its labels": {func(f *fenced) { f.unlabels("policies/" + shops.Name()) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenced(t, shops)
				f.kept()
				there := len(f.east.holds("admission"))
				before, err := f.FencedSince(shops, "shop")
				if err != nil || len(f.events) > 0 {
					t.Fatalf("%v; events are %q", err, f.events)
				}
				defer f.runs(f.keep)()
				pass(5 * time.Second)
				f.will(func(*rig) { test.change(f) })
				pass(guard.LookEvery + 2*keepEvery)
				if n := len(f.east.holds("admission")); n != there || !f.stores(shops) {
					t.Errorf("%d of %d objects are there", n, there)
				}
				f.east.edits("bindings/"+shops.Name(), func(spec map[string]any) {
					if actions := spec["validationActions"].([]any); actions[0] != "Deny" {
						t.Errorf("the gate has the actions %v", actions)
					}
				})
				if len(f.events) != test.events || test.events > 0 && !strings.Contains(f.events[0], "restored") {
					t.Errorf("events are %q", f.events)
				}
				if since, err := f.FencedSince(shops, "shop"); err != nil || (since > before) != (test.events > 0) {
					t.Errorf("it is in force since %v, %v; before that since %v", since, err, before)
				}
			})
		})
	}
}

// unlabels removes the labels of an object.
func (f *fenced) unlabels(path string) {
	for _, p := range f.east.holds(path) {
		f.east.shows(func(a *memberAPI) {
			o := a.stored[p].DeepCopy()
			o.SetLabels(nil)
			a.put(p, o)
		})
	}
}

func TestFencedSince_StartsAgainWhenAProbeWasAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenced(t, jobsOf(""))
		one := f.wanted[0]
		defer f.runs(f.keep)()
		pass(2 * time.Second)
		first, err := f.FencedSince(one, "shop")
		if err != nil || first < rigStart.Boot || first > rigStart.Boot+2*time.Second {
			t.Fatalf("in force since %v, %v", first, err)
		}
		pass(2 * guard.VerifyEvery)
		if since, err := f.FencedSince(one, "shop"); err != nil || since != first {
			t.Errorf("then in force since %v, %v, want %v", since, err, first)
		}
		f.will(func(*rig) { f.open = []string{"gate", "wall"} })
		f.news()
		pass(guard.VerifyEvery)
		if _, err := f.FencedSince(one, "shop"); !errors.Is(err, guard.ErrNotEnforced) || !slices.Contains(f.news(), "") {
			t.Errorf("while a probe is accepted: %v", err)
		}
		f.will(func(*rig) { f.open = nil })
		pass(2 * time.Second)
		if since, err := f.FencedSince(one, "shop"); err != nil || since <= first || !slices.Contains(f.news(), "") {
			t.Errorf("in the end in force since %v, %v", since, err)
		}
	})
}

// Every namespace has a gate or a wall at any time. A gate is where there is a Lease, and the wall leaves out what the
// gate was seen to reject.
func TestWhereTheGateAndTheWallAre(t *testing.T) {
	led := func(f *fenced) { f.has(eastLease(20)) }
	for name, test := range map[string]struct {
		before, change func(*fenced)
		open           []string
		gate, wall     string // what they are bound to and what they exclude; "-": not stored
		err            error
	}{
		"a namespace without a Lease":                  {nil, nil, nil, "-", "/", nil},
		"a namespace with its Lease":                   {led, nil, nil, "shop", "/shop", nil},
		"a namespace gets its Lease":                   {nil, led, nil, "shop", "/shop", nil},
		"a namespace whose gate does not reject":       {nil, led, []string{"gate"}, "shop", "/", nil},
		"a namespace where nothing rejects":            {nil, nil, []string{"wall"}, "-", "/", guard.ErrNotEnforced},
		"a namespace that loses its Lease has a gate":  {led, func(f *fenced) { f.east.loses("leases") }, nil, "shop", "/shop", nil},
		"a namespace that is gone":                     {led, func(f *fenced) { f.east.namespaces = nil }, nil, "-", "/", guard.ErrNotEnforced},
		"a hub that was away finds them as they were":  {led, func(f *fenced) { f.restarts() }, nil, "shop", "/shop", nil},
		"a hub that was away keeps the gate of a gone": {led, func(f *fenced) { f.east.loses("leases"); f.restarts() }, nil, "shop", "/shop", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenced(t, jobsOf(""))
				f.east.loses("leases")
				if test.before != nil {
					test.before(f)
				}
				if test.change != nil {
					f.kept()
					test.change(f)
				}
				f.open = test.open
				defer f.runs(f.keep)()
				pass(2 * time.Second)
				names := f.wanted[0].Names()
				gate, stored := f.bound(names[0])
				if !stored {
					gate = "-"
				}
				if wall, _ := f.bound(names[1]); gate != test.gate || wall != test.wall {
					t.Errorf("the gate is in %q, the wall is not in %q; want %q and %q", gate, wall, test.gate, test.wall)
				}
				if err := f.Unfenced(f.wanted[0], "shop"); !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
					t.Errorf("missing is %v, want %v", err, test.err)
				}
				if len(f.events) > 0 {
					t.Errorf("events are %q", f.events)
				}
			})
		})
	}
}

// restarts replaces the worker by one that knows nothing.
func (f *fenced) restarts() {
	f.Worker = New(f.Options)
	f.start = time.Now()
	f.news()
}

// A leader goes on with a fence that is stored, while the hub asks whether it rejects.
func TestFenceThatWasNotCheckedIsKnownToBeStored(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*fenced)
		stored bool
	}{
		"all of it is there":        {func(*fenced) {}, true},
		"the gate's policy is gone": {func(f *fenced) { f.east.loses("policies/" + f.wanted[0].Name()) }, false},
		"the wall's binding gone":   {func(f *fenced) { f.east.loses("bindings/" + f.wanted[0].Names()[1]) }, false},
		"another version is there":  {func(f *fenced) { f.wanted = []guard.Fence{ofJobs("shops", "twice")} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenced(t, ofJobs("shops", "once"))
				f.kept()
				f.restarts()
				test.change(f)
				f.answersAbout(broken, "shops")
				defer f.runs(f.keep)()
				err := f.Unfenced(f.wanted[0], "shop")
				if stored := errors.Is(err, ErrStored); stored != test.stored || !errors.Is(err, ErrUnchecked) {
					t.Errorf("missing is %v", err)
				}
				if news := slices.Contains(f.news(), ""); !news {
					t.Error("no decision is enqueued")
				}
			})
		})
	}
}

// What cannot be read may have changed or not. As if it were empty, all would be removed.
func TestFencesStayWhileTheirPoliciesOrNamespacesCannotBeRead(t *testing.T) {
	uncached := func(leases bool) func(*fenced) {
		return func(f *fenced) {
			f.east.shows(func(a *memberAPI) {
				a.uncached = func(list client.ObjectList) error {
					if _, is := list.(*coordinationv1.LeaseList); is == leases {
						return errRefused
					}
					return nil
				}
			})
		}
	}
	for name, lost := range map[string]func(*fenced){
		"the policies": func(f *fenced) { f.unread = errRefused }, "the namespaces": uncached(false), "the Leases": uncached(true),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenced(t, jobsOf(""))
				f.kept()
				writes := f.east.version
				lost(f)
				defer f.runs(f.keep)()
				pass(30 * time.Second)
				if f.east.version != writes || !f.stores(f.wanted[0]) || f.Unfenced(f.wanted[0], "shop") != nil {
					t.Errorf("%d writes; there are %q", f.east.version-writes, f.east.holds("admission"))
				}
			})
		})
	}
}

func TestAMemberThatLeavesLosesTheFencesOfItsHubAndFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenced(t, jobsOf(""))
		f.kept()
		ours := f.east.holds("shops.fleet")
		f.east.shows(func(a *memberAPI) {
			for _, p := range ours {
				for mark, change := range map[string]func(labels, annotations map[string]string){
					"them":   func(_, annotations map[string]string) { annotations[v1alpha1.HubAnnotation] = them },
					"branch": func(labels, _ map[string]string) { labels[v1alpha1.FenceLabel] = "branch" },
				} {
					o := a.stored[p].DeepCopy()
					labels, annotations := o.GetLabels(), o.GetAnnotations()
					change(labels, annotations)
					o.SetLabels(labels)
					o.SetAnnotations(annotations)
					o.SetName(mark + o.GetName())
					a.put(strings.Replace(p, "shops.", mark+"shops.", 1), o)
				}
			}
		})
		if err := f.keeper.Remove(t.Context()); err != nil || len(f.east.holds("/shops.fleet")) > 0 || len(f.east.holds(guard.Name)) > 0 {
			t.Errorf("%v; there are %q", err, f.east.holds("admission"))
		}
		if n := len(f.east.holds("themshops")) + len(f.east.holds("branchshops")); n != 2*len(ours) {
			t.Errorf("of others there are %d objects, want %d", n, 2*len(ours))
		}
	})
}
