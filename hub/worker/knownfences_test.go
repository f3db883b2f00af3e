package worker

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

// restarts is the next worker of the member, which knows nothing yet.
func (f *fenced) restarts() {
	f.fences, f.stored = map[string]knownFence{}, nil
	f.start = time.Now()
	f.news()
}

// A hub that was away comes back to a leader with many locks that is far away. What the member stores is known at once,
// and that it is in force a little later.
func TestManyFencesOfAFarMemberAreKnownInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "locks"}}
		o.Spec.Namespaces.Names, o.Spec.Fencing = []string{"shop"}, &v1alpha1.Fencing{}
		for i := range 16 {
			l := stock
			l.Name = fmt.Sprintf("stock-%d", i)
			o.Spec.Fencing.LeaderElectionLocks = append(o.Spec.Fencing.LeaderElectionLocks, l)
		}
		f := newFenced(t, guard.Fences(us, o, nil)...)
		f.east.namespaces[stock.Namespace] = map[string]string{v1alpha1.FencingLabel: v1alpha1.FencingAllowed}
		f.kept()
		f.restarts()
		f.east.latency = 120 * time.Millisecond
		defer f.runs(f.keepFences)()
		all := func(want error) (is bool) {
			return !slices.ContainsFunc(f.wanted, func(one guard.Fence) bool {
				err := f.Unfenced(one, "shop")
				return (err == nil) != (want == nil) || !errors.Is(err, want)
			})
		}
		if !all(ErrUnchecked) || all(ErrStored) {
			t.Errorf("at first the worker says %v", f.Unfenced(f.wanted[0], "shop"))
		}
		pass(250 * time.Millisecond)
		if !all(ErrStored) || !slices.Contains(f.news(), "") {
			t.Errorf("then the worker says %v, and asks for no decision", f.Unfenced(f.wanted[0], "shop"))
		}
		pass(1250 * time.Millisecond)
		if !all(nil) || !slices.Contains(f.news(), "") {
			t.Errorf("in the end the worker says %v", f.Unfenced(f.wanted[len(f.wanted)-1], "shop"))
		}
	})
}

// A fence that takes long keeps nothing back that is known of others.
func TestAFenceIsNotedWhenItIsKnown(t *testing.T) {
	for _, slow := range []string{"shops", "tills"} {
		t.Run(slow, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenced(t, ofJobs("shops", "once"), ofJobs("tills", "once"))
				f.east.slow = func(req *http.Request) time.Duration {
					if strings.Contains(req.URL.Path, "/"+slow+".fleet.") {
						return 5 * time.Second
					}
					return 0
				}
				defer f.runs(f.keepFences)()
				pass(fenceLook)
				for _, one := range f.wanted {
					if err := f.Unfenced(one, "shop"); (err == nil) == (one.PolicyName() == slow) {
						t.Errorf("of %s the worker says %v", one.PolicyName(), err)
					}
				}
				if !slices.Contains(f.news(), "") {
					t.Error("no decision is asked for")
				}
			})
		})
	}
}

// All of it has to be there, under the names of what is asked for now.
func TestWhichFenceIsStored(t *testing.T) {
	nothing := func(*fenced) {}
	others := func(f ...guard.Fence) []guard.Fence { return append(f, ofJobs("tills", "once")) }
	for name, test := range map[string]struct {
		before, after func(*fenced) // the look at what is stored
		stored        bool
	}{
		"one that was left there":             {nothing, nothing, true},
		"not one whose policy is gone":        {func(f *fenced) { f.east.loses("policies/" + f.wanted[0].Name()) }, nothing, false},
		"not one whose binding is gone":       {func(f *fenced) { f.east.loses("bindings/" + f.wanted[0].Name()) }, nothing, false},
		"not one whose wall is gone":          {func(f *fenced) { f.east.loses("policies/" + f.wanted[0].Names()[1]) }, nothing, false},
		"not another version":                 {func(f *fenced) { f.wanted = []guard.Fence{ofJobs("shops", "twice")} }, nothing, false},
		"not one of a member that was left":   {nothing, func(f *fenced) { f.forgetFences(nil) }, false},
		"not one that was not asked for":      {nothing, func(f *fenced) { f.forgetFences(others()) }, false},
		"one that is asked for, among others": {nothing, func(f *fenced) { f.forgetFences(others(f.wanted[0])) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenced(t, ofJobs("shops", "once"))
				f.kept()
				f.restarts()
				test.before(f)
				f.versions(t.Context(), f.wanted, nil)
				test.after(f)
				err := f.Unfenced(f.wanted[0], "shop")
				if stored := errors.Is(err, ErrStored); stored != test.stored || !errors.Is(err, ErrUnchecked) {
					t.Errorf("the worker says %v", err)
				}
			})
		})
	}
}

// Another policy takes a namespace over. What the earlier one fenced there stays until the fence of the next one refuses.
func TestANamespaceGoesFromOneFenceToTheNext(t *testing.T) {
	refused := failure(http.StatusForbidden, metav1.StatusReasonForbidden)
	for name, test := range map[string]struct {
		open   bool // the next fence is not in force
		answer *metav1.Status
		stays  bool
	}{
		"the next one is in force":         {false, nil, false},
		"the next one is not in force yet": {true, nil, true},
		"the member refuses the next one":  {false, refused, true},
		"nobody answers for the next one":  {false, failure(http.StatusInternalServerError, metav1.StatusReasonInternalError), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shops := &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "shops"}}
				shops.Spec.Namespaces.Names = []string{"shop"}
				shops.Spec.Fencing = &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{MatchLabels: map[string]string{"run": "once"}}}
				f := newFenced(t, guard.Fences(us, shops, nil)...)
				f.kept()
				defer f.runs(f.keepFences)()
				tills := ofJobs("tills", "once")
				f.answersAbout(test.answer, "tills")
				f.will(func(r *rig) {
					if test.open {
						f.open = tills.Names()
					}
					r.wanted = []guard.Fence{guard.Fences(us, shops, []string{"shop"})[0], tills}
				})
				pass(5 * time.Second)
				gate := "bindings/" + f.wanted[0].Name()
				if stays := len(f.east.holds(gate)) == 1; stays != test.stays {
					t.Errorf("the earlier fence is there: %v, want %v", stays, test.stays)
				}
				f.answersAbout(nil)
				f.will(func(*rig) { f.open = nil })
				pass(guardEvery + 2*fenceLook)
				if err := f.Unfenced(tills, "shop"); err != nil || len(f.east.holds(gate)) > 0 {
					t.Errorf("of the next fence the worker says %v; there are %q", err, f.east.holds("admission"))
				}
				if len(f.events) > 0 {
					t.Errorf("events are %q", f.events)
				}
			})
		})
	}
}

func TestWhatIsNewsOfFences(t *testing.T) {
	type is = guard.FenceState
	type found struct {
		is
		why error
	}
	shop := map[string]bool{"shop": true}
	settled, unsettled, mended := is{InForce: shop, Settled: true}, is{InForce: shop}, is{InForce: shop, Settled: true, Mended: true}
	refusesNowhere := is{InForce: map[string]bool{"shop": false}, Settled: true}
	for name, test := range map[string]struct {
		before, after *found
		news          bool
	}{
		"nothing is known, and nothing found":    {nil, nil, false},
		"the first one":                          {nil, &found{}, true},
		"the same again":                         {&found{settled, nil}, &found{settled, nil}, false},
		"it was mended":                          {&found{settled, nil}, &found{mended, nil}, false},
		"it is settled":                          {&found{unsettled, nil}, &found{settled, nil}, true},
		"it is in force in a namespace":          {&found{refusesNowhere, nil}, &found{settled, nil}, true},
		"it cannot be put in place":              {&found{settled, nil}, &found{settled, guard.ErrForbidden}, true},
		"it can be put in place again":           {&found{settled, guard.ErrForbidden}, &found{settled, nil}, true},
		"it cannot be for another reason":        {&found{settled, guard.ErrForbidden}, &found{settled, guard.ErrUnsupported}, true},
		"the last one is gone":                   {&found{settled, nil}, nil, true},
		"it is gone that could not be put there": {&found{why: guard.ErrForbidden}, nil, true},
		"the member is silent":                   {&found{settled, nil}, &found{is{}, errRefused}, false},
		"the member is silent at first":          {nil, &found{is{}, errRefused}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, f := newRig(t), jobsOf("")
				notes := func(of *found) (news bool) {
					if of == nil {
						return r.forgetFences(nil)
					}
					_, news = r.noteFence(f, of.is, of.why, false)
					return news
				}
				notes(test.before)
				if news := notes(test.after); news != test.news {
					t.Errorf("it is news: %v", news)
				}
				if news := notes(test.after); news {
					t.Error("it is news once more")
				}
			})
		})
	}
}
