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

// What was seen stays while the member is silent. An answer replaces it.
func TestUnfenced_StaysWhileTheMemberIsSilent(t *testing.T) {
	type answer struct {
		status *metav1.Status
		want   error
	}
	answers := map[string]answer{
		"in force": {nil, nil}, "forbidden": {forbidden, guard.ErrForbidden},
		"unsupported": {notFound, guard.ErrUnsupported}, "silent": {internal, ErrUnchecked},
	}
	table := map[string][2]answer{}
	for first, a := range answers {
		for then, b := range answers {
			table[first+", then "+then] = [2]answer{a, b}
		}
	}
	rows(t, table, func(t *testing.T, row [2]answer) {
		r := newEnv(t, allJobs)
		r.look = row[0].status
		defer r.runs(r.keep)()
		pass(3 * time.Second)
		if err := r.Unfenced(allJobs, "shop"); !same(err, row[0].want) {
			t.Errorf("missing: %v, want %v", err, row[0].want)
		}
		r.enqueued()
		r.will(func(r *env) { r.look = row[1].status })
		pass(guard.VerifyEvery + guard.IdleEvery)
		want := row[1].want
		if row[1].status == internal {
			want = row[0].want
		}
		if err := r.Unfenced(allJobs, "shop"); !same(err, want) {
			t.Errorf("then missing: %v, want %v", err, want)
		}
		if got := slices.Contains(r.enqueued(), ""); got == same(row[0].want, want) {
			t.Errorf("a decision is enqueued: %v", got)
		}
	})
}

func TestFence_ThatAMemberRejectsHoldsUpNoOther(t *testing.T) {
	type row struct {
		answer *metav1.Status
		want   error         // nil: another one
		every  time.Duration // between two tries
	}
	rows(t, map[string]row{
		"it is invalid there":   {invalid, nil, 5 * time.Second},
		"it is forbidden":       {forbidden, guard.ErrForbidden, 5 * time.Second},
		"a webhook is broken":   {internal, ErrUnchecked, keepEvery},
		"another client writes": {conflict, ErrUnchecked, keepEvery},
	}, func(t *testing.T, row row) {
		bad, good := jobs("shops", "once"), jobs("tills", "once")
		r := newEnv(t, bad, good)
		r.answers(row.answer, "shops")
		defer r.runs(r.keep)()
		pass(10 * time.Second)
		if err := r.Unfenced(good, "shop"); err != nil || !r.stores(good) {
			t.Errorf("the other one is missing: %v", err)
		}
		if err := r.Unfenced(bad, "shop"); err == nil || !errors.Is(err, row.want) && row.want != nil || r.stores(bad) {
			t.Errorf("missing: %v, want %v", err, row.want)
		}
		tries := r.at("POST", "/validatingadmissionpolicies")
		if got := slices.DeleteFunc(tries, func(at time.Duration) bool { return at%row.every != 0 }); len(got) < 2 ||
			len(got) != len(tries) {
			t.Errorf("tried at %v, want every %v", tries, row.every)
		}
		r.answers(nil)
		pass(11 * time.Second)
		if err := r.Unfenced(bad, "shop"); err != nil || len(r.events) > 0 {
			t.Errorf("in the end missing: %v; events are %q", err, r.events)
		}
	})
}

// In between, nothing would be rejected.
func TestFence_OfAnEarlierVersionGoesWhenTheNextOneIsInForce(t *testing.T) {
	before, after, another := jobs("shops", "once"), jobs("shops", "twice"), jobs("tills", "once")
	type row struct {
		wanted []guard.Fence
		open   []string       // not in force
		muted  string         // the policy about which the member answers
		answer *metav1.Status // this
		goes   bool
	}
	rows(t, map[string]row{
		"it is in force":                       {[]guard.Fence{after}, nil, "", nil, true},
		"it is not in force yet":               {[]guard.Fence{after}, after.Names(), "", nil, false},
		"its wall is not in force yet":         {[]guard.Fence{after}, after.Names()[1:], "", nil, false},
		"it is in force, another is not":       {[]guard.Fence{another, after}, another.Names(), "", nil, false},
		"it is not in force, another is":       {[]guard.Fence{after, another}, after.Names(), "", nil, false},
		"it is rejected":                       {[]guard.Fence{after}, nil, "shops", forbidden, false},
		"it is rejected, another is in force":  {[]guard.Fence{after, another}, nil, "shops", invalid, false},
		"nothing follows":                      {nil, nil, "", nil, true},
		"nothing follows, another is rejected": {[]guard.Fence{another}, nil, "tills", forbidden, true},
		"nothing follows, another is silent":   {[]guard.Fence{another}, nil, "tills", internal, false},
		"it stays, another is in force":        {[]guard.Fence{before, another}, nil, "", nil, false},
	}, func(t *testing.T, row row) {
		r := newEnv(t, before)
		r.east.loses("/leases/") // where there is no Lease, the wall is probed
		r.kept()
		r.wanted, r.open = row.wanted, row.open
		if row.muted != "" {
			r.answers(row.answer, row.muted)
		}
		defer r.runs(r.keep)()
		pass(3 * time.Second)
		if stays := r.stores(before); stays == row.goes {
			t.Errorf("the earlier one is stored: %v", stays)
		}
		r.will(func(r *env) { r.open, r.answer = nil, nil })
		pass(11 * time.Second)
		isWanted := slices.ContainsFunc(row.wanted, func(f guard.Fence) bool { return f.Name() == before.Name() })
		if stays := r.stores(before); stays != isWanted || len(r.events) > 0 {
			t.Errorf("in the end the earlier one is stored: %v; events are %q", stays, r.events)
		}
	})
}

func TestFences_OfAPolicyStayWhileItIsInvalid(t *testing.T) {
	type row struct {
		invalid []string
		stay    []bool // of carts, shops and tills
	}
	rows(t, map[string]row{
		"two are invalid": {[]string{"shops", "carts"}, []bool{true, true, false}},
		"one is invalid":  {[]string{"shops"}, []bool{false, true, false}},
		"all are gone":    {nil, []bool{false, false, false}},
	}, func(t *testing.T, row row) {
		r := newEnv(t, jobs("carts", "once"), jobs("shops", "once"), jobs("tills", "once"))
		r.kept()
		wanted := r.wanted
		r.wanted, r.broken = nil, row.invalid
		defer r.runs(r.keep)()
		pass(2 * time.Second)
		for i, f := range wanted {
			if stays := r.stores(f); stays != row.stay[i] {
				t.Errorf("the fence of %s is stored: %v", f.PolicyName(), stays)
			}
		}
	})
}

// What the earlier policy fenced stays fenced until the fence of the next one rejects.
func TestNamespace_GoesFromOneFenceToTheNext(t *testing.T) {
	type row struct {
		leased bool
		open   bool // the next fence is not in force
		answer *metav1.Status
		stays  bool
	}
	rows(t, map[string]row{
		"the next one is in force":                      {true, false, nil, false},
		"the next one is not in force yet":              {true, true, nil, true},
		"the member rejects the next one":               {true, false, forbidden, true},
		"the member is silent about the next one":       {true, false, internal, true},
		"no Lease, the next one is in force":            {false, false, nil, false},
		"no Lease, the next one is not in force yet":    {false, true, nil, true},
		"no Lease, the member rejects the next one":     {false, false, forbidden, true},
		"no Lease, the member is silent about the next": {false, false, internal, true},
	}, func(t *testing.T, row row) {
		shops := &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "shops"}}
		shops.Spec.Namespaces.Names = []string{"shop"}
		shops.Spec.Fencing = &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}}
		tills, lost := jobs("tills", "once"), guard.Fences(us, shops, []string{"shop"})[0]
		r := newEnv(t, guard.Fences(us, shops, nil)...)
		if !row.leased {
			r.east.loses("/leases/")
		}
		r.kept()
		defer r.runs(r.keep)()
		r.answers(row.answer, "tills")
		r.will(func(r *env) {
			if r.wanted = []guard.Fence{lost, tills}; row.open {
				r.open = tills.Names()
			}
		})
		fenced := func() bool { return r.east.bound(lost.Name()) == "shop" || r.east.bound(lost.Names()[1]) == "/" }
		pass(5 * time.Second)
		if fenced() != row.stays {
			t.Errorf("the earlier fence rejects: %v, want %v", fenced(), row.stays)
		}
		r.answers(nil)
		r.will(func(r *env) { r.open = nil })
		pass(11 * time.Second)
		if err := r.Unfenced(tills, "shop"); err != nil || fenced() || len(r.events) > 0 {
			t.Errorf("the next fence is missing: %v; the earlier one rejects: %v; events are %q", err, fenced(), r.events)
		}
	})
}

// An administrator allows what is fenced outside the policy's namespaces, and revokes that.
func TestFence_ElsewhereFollowsTheLabel(t *testing.T) {
	type row struct {
		label   string
		allowed bool
	}
	rows(t, map[string]row{
		"no label": {"", false}, "another label": {"no", false}, "the label": {v1alpha1.FencingAllowed, true},
	}, func(t *testing.T, row row) {
		lock := stock
		lock.Namespace = "ci"
		r := newEnv(t, fences("shops", v1alpha1.Fencing{
			Schedules: &metav1.LabelSelector{}, LeaderElectionLocks: []v1alpha1.LockFence{lock},
			Writes: []v1alpha1.WriteFence{{
				ServiceAccounts: []v1alpha1.FencedServiceAccount{{Namespace: "ci", Name: "deployer"}},
				Resources:       []v1alpha1.FencedResources{{Names: []string{"configmaps"}}},
			}},
		})...)
		label := func(value string) {
			r.east.shows(func(a *memberAPI) {
				a.namespaces = map[string]map[string]string{"shop": nil, "ci": {v1alpha1.FencingLabel: value}}
			})
		}
		label("")
		defer r.runs(r.keep)()
		for _, value := range []string{row.label, v1alpha1.FencingAllowed, row.label} {
			label(value)
			pass(3 * time.Second)
			for _, f := range r.wanted {
				want, err := f.Schedules() != nil || value == v1alpha1.FencingAllowed, r.Unfenced(f, "shop")
				if (err == nil) != want || !want && !slices.Equal(guard.DeniedIn(err), []string{"ci"}) {
					t.Errorf("with the label %q %s is missing: %v", value, f.Name(), err)
				}
				if stored := len(r.east.holds("bindings/"+f.Name())) == 1; stored != want {
					t.Errorf("with the label %q %s is stored: %v", value, f.Name(), stored)
				}
			}
		}
		if len(r.events) > 0 {
			t.Errorf("events are %q", r.events)
		}
	})
}

// A fence that takes long holds up no other.
func TestFences_OfAFarMemberAreInForceInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		many := &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "many"}}
		many.Spec.Fencing = &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}}
		allowed := map[string]string{v1alpha1.FencingLabel: v1alpha1.FencingAllowed}
		namespaces := map[string]map[string]string{"shop": nil, stock.Namespace: allowed}
		for i := range 300 {
			name := fmt.Sprintf("many-%d", i)
			namespaces[name], many.Spec.Namespaces.Names = nil, append(many.Spec.Namespaces.Names, name)
		}
		var locks v1alpha1.Fencing
		for i := range 16 {
			l := stock
			l.Name = fmt.Sprintf("stock-%d", i)
			locks.LeaderElectionLocks = append(locks.LeaderElectionLocks, l)
		}
		r := newEnv(t, append(guard.Fences(us, many, nil), fences("locks", locks)...)...)
		r.east.namespaces = namespaces
		r.east.takes = func(req *http.Request) time.Duration {
			if strings.Contains(req.URL.Path, "/many-0/") {
				return 3120 * time.Millisecond
			}
			return 120 * time.Millisecond
		}
		defer r.runs(r.keep)()
		pass(4 * time.Second)
		for _, f := range r.wanted {
			_, isLock := f.Lock()
			if err := r.Unfenced(f, ""); (err == nil) != isLock {
				t.Errorf("after 4 s, %s is missing: %v", f.Name(), err)
			}
		}
		pass(16 * time.Second)
		for _, f := range r.wanted {
			if err := r.Unfenced(f, ""); err != nil {
				t.Errorf("in the end, %s is missing: %v", f.Name(), err)
			}
		}
	})
}

func TestFence_ThatIsInstalledBySeveralTriesIsNotReportedAsEdited(t *testing.T) {
	rows(t, map[string]string{
		"its wall": "wall", "its gate": "gate", "the anchor": guard.AnchorName, "its bindings": "bindings",
	}, func(t *testing.T, first string) {
		r := newEnv(t, allJobs)
		r.answer = func(req *http.Request) *metav1.Status {
			if req.Method == http.MethodPost && time.Since(r.start) < keepEvery &&
				strings.Contains(req.URL.Path, "admission") && strings.Contains(req.URL.Path+string(bodyOf(req)), first) {
				return internal
			}
			return nil
		}
		defer r.runs(r.keep)()
		pass(3 * time.Second)
		if err := r.Unfenced(allJobs, "shop"); err != nil || len(r.events) > 0 {
			t.Errorf("missing: %v; events are %q", err, r.events)
		}
	})
}
