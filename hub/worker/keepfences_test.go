package worker

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

// Whoever edits a fence is found out in a second, and what a fence does is seen every minute.
func TestHowOftenAFenceIsLookedAt(t *testing.T) {
	broken := failure(http.StatusInternalServerError, metav1.StatusReasonInternalError)
	for name, test := range map[string]struct {
		changed                func(*fenced)
		lasts                  time.Duration
		looked, checked, tried []time.Duration
	}{
		"one that is in force": {
			func(*fenced) {}, 125 * time.Second, every(editedEvery, 125*time.Second), every(guardEvery, 120*time.Second), every(verifyEvery, 120*time.Second),
		},
		"one whose versions are not told": {
			func(f *fenced) {
				f.mute = func(req *http.Request) *metav1.Status {
					if isLook(req) {
						return broken
					}
					return nil
				}
			}, 25 * time.Second, every(editedEvery, 25*time.Second), every(guardEvery, 20*time.Second), every(verifyEvery, 0),
		},
		"one whose versions are not told any more": {
			func(f *fenced) {
				f.mute = func(req *http.Request) *metav1.Status {
					if isLook(req) && time.Since(f.start) > 5*time.Second {
						return broken
					}
					return nil
				}
			}, 25 * time.Second, every(editedEvery, 25*time.Second), every(guardEvery, 20*time.Second), every(verifyEvery, 0),
		},
		"one of a fleet with an invalid policy": {
			func(f *fenced) { f.invalid = []string{"tills"} }, 25 * time.Second,
			every(editedEvery, 25*time.Second), every(guardEvery, 20*time.Second), every(verifyEvery, 0),
		},
		"one that is not in force": {
			func(f *fenced) { f.open = []string{f.wanted[0].Name()} }, 2 * time.Second,
			every(editedEvery, 2*time.Second), every(fenceLook, 2*time.Second), every(fenceLook, 2*time.Second),
		},
		"one of a cluster that does not answer": {
			func(f *fenced) { f.look = broken }, 2 * time.Second, every(editedEvery, 2*time.Second), every(fenceLook, 2*time.Second), nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenced(t, jobsOf(""))
				f.kept()
				test.changed(f)
				end := f.runs(f.keepFences)
				pass(test.lasts)
				end()
				if !slices.Equal(f.looked, test.looked) || !slices.Equal(f.checked, test.checked) || !slices.Equal(f.tried, test.tried) {
					t.Errorf("looked at %v, checked at %v, tried at %v; want %v, %v and %v", f.looked, f.checked, f.tried, test.looked, test.checked, test.tried)
				}
			})
		})
	}
}

func TestAFenceThatAMemberDoesNotTakeKeepsNoOtherOut(t *testing.T) {
	bad, good := ofJobs("shops", "once"), ofJobs("tills", "once")
	for name, test := range map[string]struct {
		answer *metav1.Status
		told   func(error) bool
	}{
		"it is invalid there, which people are shown":   {failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid), apierrors.IsInvalid},
		"a webhook breaks it, which says nothing of it": {failure(http.StatusInternalServerError, metav1.StatusReasonInternalError), func(err error) bool { return errors.Is(err, ErrUnchecked) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenced(t, bad, good)
				f.mute = func(req *http.Request) *metav1.Status {
					if strings.Contains(req.URL.Path, bad.Name()) {
						return test.answer
					}
					return nil
				}
				defer f.runs(f.keepFences)()
				pass(5 * time.Second)
				if err := f.Unfenced(good, "shop"); err != nil || !f.stores(good) {
					t.Errorf("of the other one the worker says %v", err)
				}
				if err := f.Unfenced(bad, "shop"); !test.told(err) {
					t.Errorf("of this one the worker says %v", err)
				}
				if f.stores(bad) {
					t.Error("the member has it")
				}
			})
		})
	}
}

// What was seen in force stays so while nobody tells otherwise.
func TestSilenceAboutAFenceSaysNothing(t *testing.T) {
	of := ofJobs("shops", "once")
	answers := func(with *metav1.Status) func(*http.Request) *metav1.Status {
		return func(req *http.Request) *metav1.Status {
			if !strings.Contains(req.URL.Path, "admission") {
				return nil
			}
			return with
		}
	}
	for name, test := range map[string]struct {
		answer *metav1.Status
		is     error
	}{
		"one that is in force stays so":              {nil, nil},
		"one that the member refuses stays so":       {failure(http.StatusForbidden, metav1.StatusReasonForbidden), guard.ErrForbidden},
		"one that the member does not know stays so": {failure(http.StatusNotFound, metav1.StatusReasonNotFound), guard.ErrUnsupported},
		"one that nothing is known of stays so":      {failure(http.StatusInternalServerError, metav1.StatusReasonInternalError), ErrUnchecked},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenced(t, of)
				f.mute = answers(test.answer)
				defer f.runs(f.keepFences)()
				expects := func(when string) {
					t.Helper()
					if err := f.Unfenced(of, "shop"); !errors.Is(err, test.is) {
						t.Errorf("%s the worker says %v, want %v", when, err, test.is)
					}
				}
				pass(5 * time.Second)
				expects("at first")
				if news := f.news(); slices.Contains(news, "") == errors.Is(test.is, ErrUnchecked) {
					t.Errorf("at first it asks for decisions: %q", news)
				}
				f.will(func(*rig) {
					f.mute = func(*http.Request) *metav1.Status {
						return failure(http.StatusInternalServerError, metav1.StatusReasonInternalError)
					}
				})
				pass(2 * verifyEvery)
				expects("then")
				if news := f.news(); len(news) > 0 {
					t.Errorf("then it asks for decisions: %q", news)
				}
			})
		})
	}
}

// In between nothing would be refused.
func TestAFenceGoesWhenTheOneThatFollowsItIsInForce(t *testing.T) {
	before, after, another := ofJobs("shops", "once"), ofJobs("shops", "twice"), ofJobs("tills", "once")
	answers := func(of guard.Fence, status *metav1.Status) func(*http.Request) *metav1.Status {
		return func(req *http.Request) *metav1.Status {
			if !strings.Contains(req.URL.Path, of.Name()) {
				return nil
			}
			return status
		}
	}
	forbids := func(of guard.Fence) func(*http.Request) *metav1.Status {
		return answers(of, failure(http.StatusForbidden, metav1.StatusReasonForbidden))
	}
	silences := func(req *http.Request) *metav1.Status {
		if req.URL.Query().Get("dryRun") == "" {
			return nil
		}
		refusal := failure(http.StatusForbidden, metav1.StatusReasonForbidden) // as to anybody who is not the hub
		refusal.Message = guard.Policies()[0].Policy.Spec.Validations[0].Message
		return refusal
	}
	writes := guard.Fences(us, &v1alpha1.LeadershipPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "tills"},
		Spec: v1alpha1.LeadershipPolicySpec{
			Namespaces: v1alpha1.NamespaceSelection{Names: []string{"shop"}},
			Fencing: &v1alpha1.Fencing{Writes: []v1alpha1.WriteFence{{
				ServiceAccounts: []v1alpha1.FencedServiceAccount{{Name: "till"}}, Resources: []v1alpha1.FencedResources{{Names: []string{"configmaps"}}},
			}}},
		},
	}, nil)[0]
	for name, test := range map[string]struct {
		wanted []guard.Fence
		open   []string // what is not in force
		mute   func(*http.Request) *metav1.Status
		goes   bool
	}{
		"whether it is in force nobody tells the hub": {[]guard.Fence{after}, nil, silences, false},
		"it is in force":                         {[]guard.Fence{after}, nil, nil, true},
		"it is not in force yet":                 {[]guard.Fence{after}, after.Names(), nil, false},
		"its wall is not in force yet":           {[]guard.Fence{after}, after.Names()[1:], nil, false},
		"it is in force, but another is not":     {[]guard.Fence{another, after}, another.Names(), nil, false},
		"it is not in force, but another is":     {[]guard.Fence{after, another}, after.Names(), nil, false},
		"it cannot be put in place":              {[]guard.Fence{after}, nil, forbids(after), false},
		"it cannot be put in place, but another": {[]guard.Fence{after, another}, nil, forbids(after), false},
		"nothing follows it":                     {nil, nil, nil, true},
		"nothing follows it, and another list of another policy is forbidden": {[]guard.Fence{writes}, nil, forbids(writes), true},
		"nothing follows it, and that of another policy is forbidden":         {[]guard.Fence{another}, nil, forbids(another), true},
		"nothing follows it, and of another policy nobody tells the hub":      {[]guard.Fence{another}, nil, answers(another, failure(http.StatusInternalServerError, metav1.StatusReasonInternalError)), false},
		"it stays, and another is in force, too":                              {[]guard.Fence{before, another}, nil, nil, false},
		"another that comes later is not in force":                            {[]guard.Fence{after, another}, another.Names(), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenced(t, before)
				f.east.loses("leases") // where there is no Lease the wall is asked, and last of all
				f.kept()
				f.wanted, f.open, f.mute = test.wanted, test.open, test.mute
				defer f.runs(f.keepFences)()
				pass(3 * time.Second)
				if stays := f.stores(before); stays == test.goes {
					t.Errorf("it is there: %v", stays)
				}
				if len(f.events) > 0 {
					t.Errorf("events are %q", f.events)
				}
				f.will(func(*rig) { f.open, f.mute = nil, nil })
				pass(guardEvery + fenceLook)
				if stays := f.stores(before); stays != slices.ContainsFunc(test.wanted, func(one guard.Fence) bool { return one.Name() == before.Name() }) {
					t.Errorf("in the end it is there: %v", stays)
				}
				if len(f.events) > 0 {
					t.Errorf("in the end events are %q", f.events)
				}
			})
		})
	}
}

// What cannot be read may have changed or not. As if it were empty, all would be taken out.
func TestFencesStayAsTheyAreWhileWhatTheyDependOnCannotBeRead(t *testing.T) {
	uncached := func(of client.ObjectList) func(*fenced) {
		return func(f *fenced) {
			f.east.shows(func(a *memberAPI) {
				a.uncached = func(list client.ObjectList) error {
					if _, leases := list.(*coordinationv1.LeaseList); leases == (of != nil) {
						return errRefused
					}
					return nil
				}
			})
		}
	}
	for name, lost := range map[string]func(*fenced){
		"the policies":   func(f *fenced) { f.unread = errRefused },
		"the namespaces": uncached(nil),
		"the Leases":     uncached(&coordinationv1.LeaseList{}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenced(t, jobsOf(""))
				lost(f)
				end := f.runs(f.keepFences)
				pass(3 * time.Second)
				if end(); len(f.east.holds("admission")) > 0 {
					t.Errorf("there are %q", f.east.holds("admission"))
				}
			})
			synctest.Test(t, func(t *testing.T) {
				f := newFenced(t, jobsOf(""))
				f.kept()
				there := f.east.version
				lost(f)
				end := f.runs(f.keepFences)
				pass(30 * time.Second)
				if end(); f.east.version != there || !f.stores(f.wanted[0]) {
					t.Errorf("%d writes; there are %q", f.east.version-there, f.east.holds("admission"))
				}
			})
		})
	}
}

// Who takes fences out of a member that leaves has to wait for the end of that.
func TestAWorkerTellsWhetherItMayPutFencesInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenced(t, jobsOf(""))
		wrote := 0
		f.mute = func(req *http.Request) *metav1.Status {
			if req.Method == http.MethodPost {
				wrote++
				if !f.isFencing() {
					t.Errorf("it does not, while it creates %s", req.URL.Path)
				}
			}
			return nil
		}
		defer f.runs(f.keepFences)()
		pass(3*time.Second + fenceLook/2)
		if wrote == 0 || f.isFencing() {
			t.Errorf("%d writes; it tells so between two turns: %v", wrote, f.isFencing())
		}
	})
}

// The first try ended half-way. Nobody has edited what the second one completes.
func TestAFenceThatIsPutInPlaceBySeveralTriesIsNotSaidToBeEdited(t *testing.T) {
	for name, first := range map[string]string{"its wall": "wall", "its gate": "gate", "the anchor": guard.AnchorName, "its bindings": "bindings"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenced(t, jobsOf(""))
				f.mute = func(req *http.Request) *metav1.Status {
					if req.Method == http.MethodPost && time.Since(f.start) < fenceLook && strings.Contains(req.URL.Path, "admission") {
						body, err := io.ReadAll(req.Body)
						if err != nil {
							t.Error(err)
						}
						req.Body = io.NopCloser(bytes.NewReader(body))
						if strings.Contains(req.URL.Path+string(body), first) {
							return failure(http.StatusInternalServerError, metav1.StatusReasonInternalError)
						}
					}
					return nil
				}
				defer f.runs(f.keepFences)()
				pass(3 * time.Second)
				if err := f.Unfenced(f.wanted[0], "shop"); err != nil || len(f.events) > 0 {
					t.Errorf("missing is %v; events are %q", err, f.events)
				}
			})
		})
	}
}

// The gate is there, and the wall is about to let its namespace go, when the member falls silent. That is the hub's change.
func TestAFenceThatGetsItsGateDuringASilenceIsNotSaidToBeEdited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenced(t, ofTeams())
		f.east.loses("leases")
		f.kept()
		defer f.runs(f.keepFences)()
		f.will(func(*rig) {
			f.has(eastLease(20))
			f.mute = func(req *http.Request) *metav1.Status {
				if req.URL.Query().Get("dryRun") == "" {
					return nil
				}
				return failure(http.StatusInternalServerError, metav1.StatusReasonInternalError)
			}
		})
		pass(time.Second)
		f.will(func(*rig) { f.mute = nil })
		pass(3 * time.Second)
		if gates := f.east.holds("bindings/" + f.wanted[0].Name()); len(gates) != 1 || f.Unfenced(f.wanted[0], "") != nil {
			t.Fatalf("it has no gate: %q", gates)
		}
		if len(f.events) > 0 {
			t.Errorf("events are %q", f.events)
		}
	})
}

// Nobody waits for the next check, which comes after ten seconds.
func TestAChangeOfWhatIsFencedCountsAtTheNextLook(t *testing.T) {
	another, tills := ofJobs("shops", "once"), ofJobs("tills", "once")
	has := func(name string) func(*fenced) {
		return func(f *fenced) {
			f.east.namespaces = map[string]map[string]string{"shop": nil, name: {corev1.LabelMetadataName: name}}
		}
	}
	for name, test := range map[string]struct {
		change  func(*fenced)
		there   string // a part of a path
		ignored bool
	}{
		"another fence is wanted":          {func(f *fenced) { f.wanted = []guard.Fence{f.wanted[0], tills} }, "bindings/tills.fleet", false},
		"the fence is another":             {func(f *fenced) { f.wanted = []guard.Fence{another} }, "bindings/" + another.Names()[1], false},
		"there is a new namespace":         {has("bank"), "", false},
		"but not one that no fence covers": {has("none"), "", true},
		"a namespace has its Lease":        {func(f *fenced) { f.has(eastLease(20)) }, "bindings/shops.fleet.schedules.gate", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenced(t, ofTeams())
				f.east.loses("leases")
				f.kept()
				defer f.runs(f.keepFences)()
				pass(5*time.Second + fenceLook/2)
				f.looked, f.checked, f.start = nil, nil, time.Now()
				f.will(func(*rig) { test.change(f) })
				pass(fenceLook)
				if checked := len(f.checked) == 1; checked == test.ignored || len(f.checked) > 1 {
					t.Errorf("checked at %v", f.checked)
				}
				if test.there != "" && len(f.east.holds(test.there)) != 1 {
					t.Errorf("there are %q", f.east.holds("admission"))
				}
				if len(f.events) > 0 {
					t.Errorf("it is said to be somebody's edit: %q", f.events)
				}
			})
		})
	}
}

// What is decided depends on where a fence is in force, and not on when that was looked at.
func TestDecisionsAreAskedForWhenAFenceBeginsOrCeasesToBeInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenced(t, jobsOf(""))
		defer f.runs(f.keepFences)()
		expects := func(when string, want bool) {
			t.Helper()
			if news := f.news(); slices.Contains(news, "") != want {
				t.Errorf("%s: asked for decisions: %v, want %v", when, news, want)
			}
		}
		expects("it is in force", true)
		pass(2 * time.Minute)
		expects("it still is", false)
		f.will(func(*rig) { f.open = f.wanted[0].Names() })
		pass(verifyEvery)
		expects("it is not in force any more", true)
		pass(2 * time.Second)
		expects("it still is not", false)
		f.will(func(*rig) { f.open = nil })
		pass(time.Second)
		expects("it is in force again", true)
	})
}

// Those of another hub, and of another fleet, are not its matter.
func TestAMemberThatLeavesLosesTheFencesOfItsHubAndFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenced(t, jobsOf(""))
		f.kept()
		policy := func(fleetName string) *v1alpha1.LeadershipPolicy {
			return &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: fleetName, Name: "other"}, Spec: v1alpha1.LeadershipPolicySpec{
				Namespaces: v1alpha1.NamespaceSelection{Names: []string{"shop"}}, Fencing: &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}},
			}}
		}
		others := []guard.Fence{guard.Fences(them, policy("fleet"), nil)[0], guard.Fences(us, policy("branch"), nil)[0]}
		for _, other := range others {
			if _, err := other.Keep(t.Context(), f.Client, map[string]bool{"shop": true}, nil, false); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.unfence(t.Context()); err != nil || len(f.east.holds("shops.fleet")) > 0 {
			t.Errorf("%v; there are %q", err, f.east.holds("shops.fleet"))
		}
		if !f.stores(others[0]) || !f.stores(others[1]) {
			t.Errorf("of others there are %q", f.east.holds("other"))
		}
	})
}
