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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

// What was seen stays while the member is silent. An answer replaces it.
func TestSilenceKeepsTheStatusOfAFence(t *testing.T) {
	answers := map[string]struct {
		answer *metav1.Status
		want   error
	}{
		"in force":    {nil, nil},
		"forbidden":   {refused, guard.ErrForbidden},
		"unsupported": {unknown, guard.ErrUnsupported},
		"unchecked":   {broken, ErrUnchecked},
	}
	of := ofJobs("shops", "once")
	for name, first := range answers {
		for next, then := range answers {
			t.Run(name+", then "+next, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFenced(t, of)
					expects := func(want error) {
						t.Helper()
						if err := f.Unfenced(of, "shop"); !errors.Is(err, want) || (err == nil) != (want == nil) {
							t.Errorf("missing is %v, want %v", err, want)
						}
					}
					f.look = first.answer
					defer f.runs(f.keep)()
					pass(3 * time.Second)
					expects(first.want)
					f.news()
					f.will(func(r *rig) { r.look = then.answer })
					pass(guard.VerifyEvery + guard.IdleEvery)
					want := then.want
					if then.answer == broken {
						want = first.want
					}
					expects(want)
					if news := slices.Contains(f.news(), ""); news != (!errors.Is(want, first.want) || (want == nil) != (first.want == nil)) {
						t.Errorf("a decision is enqueued: %v", news)
					}
				})
			})
		}
	}
}

func TestFenceThatAMemberRejectsHoldsUpNoOther(t *testing.T) {
	bad, good := ofJobs("shops", "once"), ofJobs("tills", "once")
	for name, test := range map[string]struct {
		answer *metav1.Status
		is     func(error) bool
	}{
		"it is invalid there":  {invalid, apierrors.IsInvalid},
		"a webhook is broken":  {broken, func(err error) bool { return errors.Is(err, ErrUnchecked) }},
		"it is forbidden":      {refused, func(err error) bool { return errors.Is(err, guard.ErrForbidden) }},
		"another client wrote": {failure(http.StatusConflict, metav1.StatusReasonConflict), func(err error) bool { return errors.Is(err, ErrUnchecked) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenced(t, bad, good)
				f.answersAbout(test.answer, "shops")
				defer f.runs(f.keep)()
				pass(5 * time.Second)
				if err := f.Unfenced(good, "shop"); err != nil || !f.stores(good) {
					t.Errorf("of the other one is missing %v", err)
				}
				if err := f.Unfenced(bad, "shop"); !test.is(err) || f.stores(bad) {
					t.Errorf("of this one is missing %v", err)
				}
				f.answersAbout(nil)
				pass(11 * time.Second)
				if err := f.Unfenced(bad, "shop"); err != nil || len(f.events) > 0 {
					t.Errorf("in the end is missing %v; events are %q", err, f.events)
				}
			})
		})
	}
}

func TestRejectedFenceIsTriedMoreAndMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenced(t, ofJobs("shops", "once"), ofJobs("tills", "once"))
		f.answersAbout(refused, "shops")
		mute, tried := f.mute, []time.Duration(nil)
		f.mute = func(req *http.Request) *metav1.Status {
			s := mute(req)
			if s != nil {
				tried = append(tried, time.Since(f.start))
			}
			return s
		}
		defer f.runs(f.keep)()
		pass(26 * time.Second)
		want := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second, 15 * time.Second, 25 * time.Second}
		if !slices.Equal(tried, want) {
			t.Errorf("tried at %v, want %v", tried, want)
		}
	})
}

// In between, nothing would be rejected.
func TestAnEarlierFenceGoesWhenTheNextOneIsInForce(t *testing.T) {
	before, after, another := ofJobs("shops", "once"), ofJobs("shops", "twice"), ofJobs("tills", "once")
	for name, test := range map[string]struct {
		wanted []guard.Fence
		open   []string       // not in force
		muted  string         // the policy about which the member answers
		answer *metav1.Status // this
		goes   bool
	}{
		"it is in force":                         {[]guard.Fence{after}, nil, "", nil, true},
		"it is not in force yet":                 {[]guard.Fence{after}, after.Names(), "", nil, false},
		"its wall is not in force yet":           {[]guard.Fence{after}, after.Names()[1:], "", nil, false},
		"it is in force, but another is not":     {[]guard.Fence{another, after}, another.Names(), "", nil, false},
		"it is not in force, but another is":     {[]guard.Fence{after, another}, after.Names(), "", nil, false},
		"it is rejected":                         {[]guard.Fence{after}, nil, "shops", refused, false},
		"it is rejected, another is in force":    {[]guard.Fence{after, another}, nil, "shops", invalid, false},
		"nothing follows it":                     {nil, nil, "", nil, true},
		"nothing follows it, another is refused": {[]guard.Fence{another}, nil, "tills", refused, true},
		"nothing follows it, another is silent":  {[]guard.Fence{another}, nil, "tills", broken, false},
		"it stays, and another is in force":      {[]guard.Fence{before, another}, nil, "", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenced(t, before)
				f.east.loses("leases") // where there is no Lease, the wall is probed
				f.kept()
				f.wanted, f.open = test.wanted, test.open
				f.answersAbout(test.answer, test.muted)
				if test.muted == "" {
					f.mute = nil
				}
				defer f.runs(f.keep)()
				pass(3 * time.Second)
				if stays := f.stores(before); stays == test.goes {
					t.Errorf("it is there: %v", stays)
				}
				f.will(func(*rig) { f.open, f.mute = nil, nil })
				pass(11 * time.Second)
				isWanted := slices.ContainsFunc(test.wanted, func(one guard.Fence) bool { return one.Name() == before.Name() })
				if stays := f.stores(before); stays != isWanted {
					t.Errorf("in the end it is there: %v", stays)
				}
				if len(f.events) > 0 {
					t.Errorf("events are %q", f.events)
				}
			})
		})
	}
}

func TestFencesOfAPolicyStayWhileItIsInvalid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shops, carts, tills := ofJobs("shops", "once"), ofJobs("carts", "once"), ofJobs("tills", "once")
		f := newFenced(t, shops, carts, tills)
		f.kept()
		defer f.runs(f.keep)()
		for _, step := range []struct {
			invalid []string
			stay    []bool // of shops, carts and tills
		}{
			{[]string{"carts", "shops"}, []bool{true, true, false}}, {[]string{"shops"}, []bool{true, false, false}}, {nil, []bool{false, false, false}},
		} {
			f.will(func(r *rig) { r.wanted, r.invalid = nil, step.invalid })
			pass(2 * time.Second)
			for i, one := range []guard.Fence{shops, carts, tills} {
				if stays := f.stores(one); stays != step.stay[i] {
					t.Errorf("while %q are invalid, the fence of %s is there: %v", step.invalid, one.PolicyName(), stays)
				}
			}
		}
	})
}

// What the earlier policy fenced there stays until the fence of the next one rejects.
func TestANamespaceGoesFromOneFenceToTheNext(t *testing.T) {
	for name, test := range map[string]struct {
		leased bool
		open   bool // the next fence is not in force
		answer *metav1.Status
		stays  bool
	}{
		"the next one is in force":                        {true, false, nil, false},
		"the next one is not in force yet":                {true, true, nil, true},
		"the member refuses the next one":                 {true, false, refused, true},
		"the member is silent about the next one":         {true, false, broken, true},
		"without a Lease, the next one is in force":       {false, false, nil, false},
		"without a Lease, the next one is not in force":   {false, true, nil, true},
		"without a Lease, the member refuses the next":    {false, false, refused, true},
		"without a Lease, the member is silent about it ": {false, false, broken, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shops := &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "shops"}}
				shops.Spec.Namespaces.Names = []string{"shop"}
				shops.Spec.Fencing = &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{MatchLabels: map[string]string{"run": "once"}}}
				f := newFenced(t, guard.Fences(us, shops, nil)...)
				if !test.leased {
					f.east.loses("leases")
				}
				f.kept()
				defer f.runs(f.keep)()
				tills, next := ofJobs("tills", "once"), guard.Fences(us, shops, []string{"shop"})[0]
				f.answersAbout(test.answer, "tills")
				f.will(func(r *rig) {
					if test.open {
						f.open = tills.Names()
					}
					r.wanted = []guard.Fence{next, tills}
				})
				// fenced reports whether the earlier fence rejects: by its gate, or by its wall.
				fenced := func() bool {
					gate, _ := f.bound(next.Name())
					wall, _ := f.bound(next.Names()[1])
					return gate == "shop" || wall == "/"
				}
				pass(5 * time.Second)
				if fenced() != test.stays {
					t.Errorf("the earlier fence is there: %v, want %v", fenced(), test.stays)
				}
				f.answersAbout(nil)
				f.will(func(*rig) { f.open = nil })
				pass(11 * time.Second)
				if err := f.Unfenced(tills, "shop"); err != nil || fenced() || len(f.events) > 0 {
					t.Errorf("of the next fence is missing %v; the earlier one is there: %v; events are %q", err, fenced(), f.events)
				}
			})
		})
	}
}

// A far member is fenced in time. A fence that takes long keeps nothing back that is known about others.
func TestManyFencesOfAFarMemberAreInForceInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &v1alpha1.LeadershipPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "many"},
			Spec:       v1alpha1.LeadershipPolicySpec{Fencing: &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}}},
		}
		namespaces := map[string]map[string]string{"shop": nil, stock.Namespace: {v1alpha1.FencingLabel: v1alpha1.FencingAllowed}}
		for i := range 300 {
			name := fmt.Sprintf("many-%d", i)
			namespaces[name], o.Spec.Namespaces.Names = nil, append(o.Spec.Namespaces.Names, name)
		}
		locks := &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "locks"}}
		locks.Spec.Namespaces.Names, locks.Spec.Fencing = []string{"shop"}, &v1alpha1.Fencing{}
		for i := range 16 {
			l := stock
			l.Name = fmt.Sprintf("stock-%d", i)
			locks.Spec.Fencing.LeaderElectionLocks = append(locks.Spec.Fencing.LeaderElectionLocks, l)
		}
		f := newFenced(t, append(guard.Fences(us, o, nil), guard.Fences(us, locks, nil)...)...)
		f.east.namespaces, f.east.latency = namespaces, 120*time.Millisecond
		f.east.slow = func(req *http.Request) time.Duration {
			if strings.Contains(req.URL.Path, "/many-0/") {
				return 3 * time.Second
			}
			return 0
		}
		defer f.runs(f.keep)()
		pass(4 * time.Second)
		for _, one := range f.wanted {
			if err := f.Unfenced(one, ""); (err == nil) != one.IsOfLock() {
				t.Errorf("after 4 s, of %s is missing %v", one.Name(), err)
			}
		}
		pass(16 * time.Second)
		for _, one := range f.wanted {
			if err := f.Unfenced(one, ""); err != nil {
				t.Errorf("in the end, of %s is missing %v", one.Name(), err)
			}
		}
	})
}

func TestFenceThatIsInstalledBySeveralTriesIsNotReportedAsEdited(t *testing.T) {
	for name, first := range map[string]string{"its wall": "wall", "its gate": "gate", "the anchor": guard.AnchorName, "its bindings": "bindings"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenced(t, jobsOf(""))
				f.mute = func(req *http.Request) *metav1.Status {
					if req.Method == http.MethodPost && time.Since(f.start) < keepEvery &&
						strings.Contains(req.URL.Path, "admission") && strings.Contains(req.URL.Path+string(bodyOf(req)), first) {
						return broken
					}
					return nil
				}
				defer f.runs(f.keep)()
				pass(3 * time.Second)
				if err := f.Unfenced(f.wanted[0], "shop"); err != nil || len(f.events) > 0 {
					t.Errorf("missing is %v; events are %q", err, f.events)
				}
			})
		})
	}
}
