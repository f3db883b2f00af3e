package worker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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

// The hub may be older than the policy, or somebody has mistyped. Nobody has asked to take the fence out.
func TestTheFenceOfAPolicyStaysWhileThatIsInvalid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shops, carts, tills := ofJobs("shops", "once"), ofJobs("carts", "once"), ofJobs("tills", "once")
		f := newFenced(t, shops, carts, tills)
		f.kept()
		defer f.runs(f.keepFences)()
		f.will(func(r *rig) { r.wanted, r.invalid = nil, []string{carts.PolicyName(), shops.PolicyName()} })
		pass(2*guardEvery + 2*fenceLook) // and no check is due
		if !f.stores(shops) || !f.stores(carts) || f.stores(tills) {
			t.Errorf("there are %q", f.east.holds("admission"))
		}
		f.will(func(r *rig) { r.invalid = []string{shops.PolicyName()} }) // the other one is deleted
		pass(fenceLook)
		if !f.stores(shops) || f.stores(carts) {
			t.Errorf("then there are %q", f.east.holds("admission"))
		}
		f.will(func(r *rig) { r.invalid = nil }) // it is deleted
		pass(fenceLook)
		if f.stores(shops) {
			t.Errorf("in the end there are %q", f.east.holds("admission"))
		}
	})
}

// Nobody writes the Lease again where a namespace goes away, or where its policy does not manage it any more. Without the
// Lease an API server would refuse everybody there.
func TestAnEarlierFenceAsksNoLeaseThatNobodyWrites(t *testing.T) {
	refuses := func(of guard.Fence) func(*http.Request) *metav1.Status {
		return func(req *http.Request) *metav1.Status {
			if !strings.Contains(req.URL.Path, of.Name()) {
				return nil
			}
			return failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
		}
	}
	for name, test := range map[string]struct {
		change func(*fenced)
		later  func(*fenced)
		gated  bool
	}{
		"its policy is invalid": {func(f *fenced) { f.wanted, f.invalid = nil, []string{"shops"} }, nil, true},
		"its policy is invalid, and the namespace goes": {func(f *fenced) {
			f.wanted, f.invalid = nil, []string{"shops"}
			f.east.namespaces = map[string]map[string]string{"bank": nil}
		}, nil, false},
		"its policy is invalid, and the namespace goes later": {
			func(f *fenced) { f.wanted, f.invalid = nil, []string{"shops"} },
			func(f *fenced) { f.east.namespaces = map[string]map[string]string{"bank": nil} }, false,
		},
		"another is refused": {func(f *fenced) {
			f.wanted = []guard.Fence{ofJobs("shops", "twice")}
			f.mute = refuses(f.wanted[0])
		}, nil, true},
		"another is refused, and the namespace has no Lease any more": {func(f *fenced) {
			f.wanted = []guard.Fence{ofJobs("shops", "twice")}
			f.mute = refuses(f.wanted[0])
			f.east.loses("leases")
		}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				earlier := ofJobs("shops", "once")
				f := newFenced(t, earlier)
				f.kept()
				defer f.runs(f.keepFences)()
				f.will(func(*rig) { test.change(f) })
				pass(2 * fenceLook)
				if test.later != nil {
					f.will(func(*rig) { test.later(f) })
					pass(2 * fenceLook)
				}
				if gated := len(f.east.holds("bindings/"+earlier.Name())) == 1; gated != test.gated || !f.stores(earlier) {
					t.Errorf("it is gated: %v, there are %q", gated, f.east.holds("admission"))
				}
			})
		})
	}
}

// A far member with many namespaces is fenced, too, and keeps no other policy from that.
func TestTheFenceOfManyNamespacesIsInForceInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &v1alpha1.LeadershipPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "many"},
			Spec:       v1alpha1.LeadershipPolicySpec{Fencing: &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}}},
		}
		namespaces := map[string]map[string]string{"shop": nil}
		for i := range 300 {
			name := fmt.Sprintf("many-%d", i)
			namespaces[name], o.Spec.Namespaces.Names = nil, append(o.Spec.Namespaces.Names, name)
		}
		many, one := guard.Fences(us, o, nil)[0], ofJobs("tills", "once")
		f := newFenced(t, many, one)
		f.east.namespaces, f.east.latency = namespaces, 200*time.Millisecond
		defer f.runs(f.keepFences)()
		pass(30 * time.Second)
		if err := errors.Join(f.Unfenced(many, ""), f.Unfenced(one, "")); err != nil {
			t.Error(err)
		}
	})
}

// Turns without a refusal do not count as tries, however many there were because another fence was not in force yet.
func TestAFirstRefusalIsTriedAgainInASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, good := ofJobs("shops", "once"), ofJobs("tills", "once")
		f := newFenced(t, good)
		f.east.loses("leases") // its gate would be another change of what is stored
		f.open = good.Names()
		defer f.runs(f.keepFences)()
		pass(5*time.Second + fenceLook/2)
		f.answersAbout(failure(http.StatusForbidden, metav1.StatusReasonForbidden), "shops")
		f.will(func(r *rig) { r.wanted, f.open, f.checked, r.start = []guard.Fence{bad, good}, nil, nil, time.Now() })
		pass(5 * time.Second)
		next := fenceLook / 2
		if want := []time.Duration{next, next + refusedRetry, next + 3*refusedRetry}; !slices.Equal(f.checked, want) {
			t.Errorf("checked at %v, want %v", f.checked, want)
		}
	})
}

// It costs a member two requests every ten seconds, and the fences of others nothing.
func TestAFenceThatIsRefusedIsTriedMoreAndMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, good := ofJobs("shops", "once"), ofJobs("tills", "once")
		f := newFenced(t, bad, good)
		var tried []time.Duration
		f.mute = func(req *http.Request) *metav1.Status {
			if req.Method != http.MethodPost || !strings.Contains(req.URL.Path, "admission") {
				return nil
			}
			body, err := io.ReadAll(req.Body)
			if err != nil {
				t.Error(err)
			}
			req.Body = io.NopCloser(bytes.NewReader(body))
			if !strings.Contains(string(body), bad.Name()) {
				return nil
			}
			tried = append(tried, time.Since(f.start))
			return failure(http.StatusForbidden, metav1.StatusReasonForbidden)
		}
		defer f.runs(f.keepFences)()
		pass(26 * time.Second)
		want := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second, 15 * time.Second, 25 * time.Second}
		if !slices.Equal(tried, want) {
			t.Errorf("tried at %v, want %v", tried, want)
		}
		if looked := every(verifyEvery, 26*time.Second); !slices.Equal(f.tried, looked) {
			t.Errorf("the other one was tried at %v, want %v", f.tried, looked)
		}
		f.will(func(*rig) { f.east.loses(good.Names()[1]) })
		pass(editedEvery + fenceLook)
		if !f.stores(good) || len(f.events) != 1 {
			t.Errorf("the other one was edited: it is back: %v; events are %q", f.stores(good), f.events)
		}
	})
}
