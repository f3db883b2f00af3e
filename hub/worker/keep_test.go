package worker

import (
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

func TestKeeper_WritesWhereItsHubServesTheFleet(t *testing.T) {
	type row struct {
		change          func(*env)
		guarded, fenced bool
	}
	rows(t, map[string]row{
		"it serves the fleet":               {func(*env) {}, true, true},
		"no installation serves it yet":     {func(r *env) { r.by = "" }, true, true},
		"another replica may write":         {func(r *env) { r.standby = true }, false, false},
		"the seal is not known":             {func(r *env) { r.by, r.unsealed = "", true }, false, false},
		"the member takes no part":          {func(r *env) { r.is("east", takesNoPart) }, false, false},
		"the member has moved":              {func(r *env) { r.is("east", moves) }, false, false},
		"no policy fences, the cache fails": {func(r *env) { r.wanted = nil; r.unlisted(true, errRefused) }, true, false},
		"the fence of a policy warns":       {func(r *env) { r.wanted = []guard.Fence{warning} }, true, true},
	}, func(t *testing.T, row row) {
		r := newEnv(t, allJobs)
		r.reads()
		row.change(r)
		r.enqueued()
		defer r.runs(r.keep)()
		pass(time.Second)
		if decided := slices.Contains(r.enqueued(), ""); decided != row.guarded {
			t.Errorf("a decision is enqueued: %v, want %v: the guard is in force", decided, row.guarded)
		}
		if got := len(r.east.holds(guard.Name)) == 2; got != row.guarded || (r.Unguarded() == nil) != row.guarded {
			t.Errorf("the guard is stored: %v; it is missing because %v", got, r.Unguarded())
		}
		if got := len(r.east.holds("wall")) > 0; got != row.fenced {
			t.Errorf("a fence is stored: %v, want %v", got, row.fenced)
		}
	})
}

// Another replica is elected in the middle of a turn. From then on nothing is written to the member.
func TestWorker_WritesNothingOnceItsHubMayNotWrite(t *testing.T) {
	type row struct {
		wanted []guard.Fence // and in force
		change func(*env)
		first  string // the write during which the right is lost
	}
	once := []guard.Fence{jobs("shops", "once")}
	const policy, binding = "POST /validatingadmissionpolicies", "POST /validatingadmissionpolicybindings"
	rows(t, map[string]row{
		"the guard is installed":   {nil, func(r *env) { r.east.loses(guard.Name) }, policy},
		"its binding is installed": {nil, func(r *env) { r.east.loses(guard.Name) }, binding},
		"a fence is restored":      {once, func(r *env) { r.east.loses("policies/shops.fleet") }, policy},
		"a fence is replaced": {once, func(r *env) { r.wanted = []guard.Fence{jobs("shops", "twice")} },
			"DELETE /validatingadmissionpolicybindings"},
		"CronJobs are woken": {[]guard.Fence{allJobs}, func(r *env) { r.cronJobs("bill", "till") }, "PATCH /cronjobs"},
	}, func(t *testing.T, row row) {
		r := newEnv(t, row.wanted...)
		r.kept()
		row.change(r)
		method, resource, _ := strings.Cut(row.first, " ")
		lost, after := false, []string(nil)
		r.answer = func(req *http.Request) *metav1.Status {
			if req.Method == http.MethodGet || probeOf(req) != "" || strings.Contains(req.URL.Path, "/leases") {
				return nil // the publisher asks for the right to write Leases by itself
			}
			if lost {
				after = append(after, req.Method+" "+req.URL.Path)
			}
			if req.Method == method && strings.Contains(req.URL.Path, resource) {
				lost, r.standby = true, true
			}
			return nil
		}
		defer r.runs(r.Run)()
		pass(time.Minute)
		if !lost || len(after) > 0 {
			t.Errorf("the right is lost: %v; afterwards it wrote %q", lost, after)
		}
	})
}

// Another replica of the hub may have rewritten a fence while this one did not serve the fleet.
func TestFence_ThatOthersChangeIsReportedWhileTheHubServes(t *testing.T) {
	rows(t, map[string]bool{"it serves": true, "another replica has served": false}, func(t *testing.T, serves bool) {
		r := newEnv(t, allJobs)
		r.kept()
		defer r.runs(r.keep)()
		pass(2 * time.Second)
		r.will(func(r *env) { r.standby = !serves })
		pass(2 * time.Second)
		r.east.loses("wall")
		r.will(func(r *env) { r.standby = false })
		pass(guard.LookEvery + 2*keepEvery)
		if !r.stores(allJobs) || (len(r.events) == 1) != serves {
			t.Errorf("it is restored: %v; events are %q", r.stores(allJobs), r.events)
		}
	})
}

// What is invalid or cannot be read may have changed or not. As if it were empty, everything would be removed.
func TestFences_StayWhileTheirPolicyIsInvalidOrNotRead(t *testing.T) {
	rows(t, map[string]func(*env){
		"the policies cannot be read":   func(r *env) { r.unread = errRefused },
		"the namespaces cannot be read": func(r *env) { r.unlisted(false, errRefused) },
		"the Leases cannot be read":     func(r *env) { r.unlisted(true, errRefused) },
		"their policy is invalid":       func(r *env) { r.wanted, r.invalid = nil, []string{"shops"} },
	}, func(t *testing.T, lose func(*env)) {
		r := newEnv(t, allJobs)
		r.kept()
		writes := r.east.version
		lose(r)
		defer r.runs(r.keep)()
		pass(30 * time.Second)
		inForce := r.invalid != nil || r.Unfenced(allJobs, "shop") == nil // only the fences of valid policies are known
		if r.east.version != writes || !r.stores(allJobs) || !inForce {
			t.Errorf("%d writes; stored: %q", r.east.version-writes, r.east.holds("admission"))
		}
	})
}

// A fence that takes long holds up no other.
func TestFences_OfAFarMemberAreInForceInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		many := &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "many"}}
		many.Spec.Fencing = &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}}
		namespaces := map[string]map[string]string{"shop": nil}
		for i := range 300 {
			name := fmt.Sprintf("many-%d", i)
			namespaces[name], many.Spec.Namespaces.Names = nil, append(many.Spec.Namespaces.Names, name)
		}
		wanted := guard.Fences(us, many, nil)
		for i := range 16 {
			wanted = append(wanted, jobs(fmt.Sprintf("jobs-%d", i), "once"))
		}
		r := newEnv(t, wanted...)
		r.east.namespaces = namespaces
		r.east.takes = func(req *http.Request) time.Duration {
			if strings.Contains(req.URL.Path, "/many-0/") {
				return 3120 * time.Millisecond
			}
			return 120 * time.Millisecond
		}
		defer r.runs(r.keep)()
		pass(4 * time.Second)
		for i, f := range wanted {
			if err := r.Unfenced(f, ""); (err == nil) != (i > 0) {
				t.Errorf("after 4 s, %s is missing: %v", f.Name(), err)
			}
		}
		pass(16 * time.Second)
		if err := r.Unfenced(wanted[0], ""); err != nil {
			t.Errorf("in the end, the slow one is missing: %v", err)
		}
	})
}
