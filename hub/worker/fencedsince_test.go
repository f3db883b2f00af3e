package worker

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/leasecast/leasecast/hub/guard"
)

// Whoever waits for what came before a fence counts from here on.
func TestSinceWhenAFenceIsInForce(t *testing.T) {
	const seen, later = 2 * time.Second, 70 * time.Second // of the last probe before, and of a time after the next
	edits := func(f *fenced, actions ...string) {
		f.east.shows(func(a *memberAPI) {
			p := "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/" + f.wanted[0].Name()
			edited := a.stored[p].DeepCopy()
			_ = unstructured.SetNestedStringSlice(edited.Object, actions, "spec", "validationActions")
			a.put(p, edited)
		})
	}
	for name, test := range map[string]struct {
		happens func(*fenced)
		again   bool // it begins again
		err     error
	}{
		"nothing happens": {func(*fenced) {}, false, nil},
		"the member is silent": {func(f *fenced) {
			f.mute = func(*http.Request) *metav1.Status {
				return failure(http.StatusInternalServerError, metav1.StatusReasonInternalError)
			}
		}, false, nil},
		"a probe is let through for a while": {func(f *fenced) {
			f.open = f.wanted[0].Names()
			time.AfterFunc(later-time.Second, func() { f.will(func(*rig) { f.open = nil }) })
		}, true, nil},
		"it is not in force any more":         {func(f *fenced) { f.open = f.wanted[0].Names() }, false, guard.ErrNotEnforced},
		"its policy is deleted":               {func(f *fenced) { f.east.loses("policies/" + f.wanted[0].Name()) }, true, nil},
		"its binding is edited":               {func(f *fenced) { edits(f, "Audit") }, true, nil},
		"its binding is edited, and put back": {func(f *fenced) { edits(f, "Audit"); edits(f, "Deny") }, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenced(t, jobsOf(""))
				one := f.wanted[0]
				defer f.runs(f.keepFences)()
				if _, err := f.FencedSince(one, "shop"); err != nil {
					t.Fatal(err)
				}
				pass(seen)
				first, err := f.FencedSince(one, "shop")
				if err != nil || first <= rigStart.Boot-time.Second || first > rigStart.Boot+seen {
					t.Fatalf("it is in force since %v, %v; now is %v", first, err, f.Clock.Now().Boot)
				}
				f.will(func(*rig) { test.happens(f) })
				pass(later)
				since, err := f.FencedSince(one, "shop")
				if !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
					t.Fatalf("missing is %v, want %v", err, test.err)
				}
				if again := since > first; again != test.again && err == nil {
					t.Errorf("it is in force since %v, before that since %v", since, first)
				}
			})
		})
	}
}
