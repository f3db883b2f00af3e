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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

func TestKeeper_WritesWhereItsHubServesTheFleet(t *testing.T) {
	type row struct {
		change          func(*env)
		guarded, fenced bool
	}
	rows(t, map[string]row{
		"it serves the fleet":            {func(*env) {}, true, true},
		"another installation serves it": {func(r *env) { r.by = them }, false, false},
		"another replica may write":      {func(r *env) { r.standby = true }, false, false},
		"the seal is not known":          {func(r *env) { r.by, r.unsealed = "", true }, false, false},
		"the member takes no part":       {func(r *env) { r.is("east", takesNoPart) }, false, false},
		"the member has moved":           {func(r *env) { r.is("east", moves) }, false, false},
		"no policy has fences":           {func(r *env) { r.wanted = nil }, true, false},
		"the fence of a policy warns":    {func(r *env) { r.wanted = []guard.Fence{warning} }, true, true},
	}, func(t *testing.T, row row) {
		r := newEnv(t, allJobs)
		r.reads()
		row.change(r)
		defer r.runs(r.keep)()
		pass(time.Second)
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

func TestUnguarded_ReturnsWhatTheMemberAnswers(t *testing.T) {
	notHub := failure(http.StatusForbidden, metav1.StatusReasonForbidden)
	notHub.Message = guard.Policies()[0].Policy.Spec.Validations[0].Message
	type row struct {
		look, try   *metav1.Status
		want, later error // at first, and after the guard was in force
	}
	rows(t, map[string]row{
		"the guard rejects the probe":           {nil, nil, nil, nil},
		"the guard accepts the probe":           {nil, accepted, guard.ErrNotEnforced, guard.ErrNotEnforced},
		"the hub may not install it":            {forbidden, nil, guard.ErrForbidden, guard.ErrForbidden},
		"the hub may not publish":               {nil, notHub, guard.ErrForbidden, guard.ErrForbidden},
		"the member does not serve the kind":    {notFound, nil, guard.ErrUnsupported, guard.ErrUnsupported},
		"the member is silent":                  {internal, internal, ErrUnchecked, nil},
		"the member does not answer the probes": {nil, internal, ErrUnchecked, nil},
	}, func(t *testing.T, row row) {
		r := newEnv(t)
		r.look, r.try = row.look, row.try
		end := r.runs(r.keep)
		pass(5 * time.Second)
		if end(); !same(r.Unguarded(), row.want) {
			t.Errorf("the guard: %v, want %v", r.Unguarded(), row.want)
		}
		r = newEnv(t)
		r.kept()
		defer r.runs(r.keep)()
		r.will(func(r *env) { r.look, r.try = row.look, row.try })
		pass(guard.VerifyEvery + guard.IdleEvery)
		if !same(r.Unguarded(), row.later) {
			t.Errorf("later the guard: %v, want %v", r.Unguarded(), row.later)
		}
		if got := slices.Contains(r.enqueued(), ""); got != (row.later != nil) {
			t.Errorf("a decision is enqueued: %v", got)
		}
	})
}

// A member that is in order costs two lists a second while it has fences, and two in ten seconds without any.
func TestKeeper_RequestsToAMemberInOrder(t *testing.T) {
	type row struct {
		wanted         []guard.Fence
		listed, probed []time.Duration
	}
	rows(t, map[string]row{
		"with a fence": {[]guard.Fence{allJobs}, every(guard.LookEvery, 125*time.Second),
			every(guard.VerifyEvery, 120*time.Second)},
		"without a fence": {nil, every(guard.IdleEvery, 120*time.Second), nil},
	}, func(t *testing.T, row row) {
		r := newEnv(t, row.wanted...)
		r.kept()
		r.Keeper.Forget()
		writes := r.east.version
		end := r.runs(r.keep)
		pass(125 * time.Second)
		end()
		// After Forget, everything is written once without effect, so a second snapshot follows.
		listed := slices.DeleteFunc(r.at(lists), func(at time.Duration) bool { return at == keepEvery })
		probed := r.at("gate-" + probes)
		if n := len(listed) - len(row.listed); n < -2 || n > 2 || !slices.Equal(probed, row.probed) {
			t.Errorf("listed at %v, probed at %v, want %v and %v", listed, probed, row.listed, row.probed)
		}
		if r.east.version != writes {
			t.Errorf("%d writes", r.east.version-writes)
		}
	})
}

func TestFence_ThatOthersChangeIsRestoredInASecond(t *testing.T) {
	type row struct {
		change   func(*env)
		reported bool
	}
	gate := "bindings/" + allJobs.Name()
	actions := func(o *unstructured.Unstructured) map[string]any { return o.Object["spec"].(map[string]any) }
	rows(t, map[string]row{
		"its wall is deleted":      {func(r *env) { r.east.loses("wall") }, true},
		"its bindings are deleted": {func(r *env) { r.east.loses("bindings/shops.fleet") }, true},
		"everything is deleted":    {func(r *env) { r.east.loses("shops.fleet") }, true},
		"the anchor is deleted":    {func(r *env) { r.east.loses(guard.AnchorName) }, false},
		"the guard is deleted":     {func(r *env) { r.east.loses(guard.Name) }, false},
		"its gate loses its labels": {func(r *env) {
			r.east.alters("policies/"+allJobs.Name(), func(o *unstructured.Unstructured) { o.SetLabels(nil) })
		}, true},
		"its gate only audits": {func(r *env) {
			r.east.alters(gate, func(o *unstructured.Unstructured) {
				actions(o)["validationActions"] = []any{"Audit"}
				o.SetGeneration(o.GetGeneration() + 1)
			})
		}, true},
	}, func(t *testing.T, row row) {
		r := newEnv(t, allJobs)
		r.kept()
		stored := len(r.east.holds("admission"))
		before, err := r.FencedSince(allJobs, "shop")
		if err != nil || len(r.events) > 0 {
			t.Fatalf("%v; events are %q", err, r.events)
		}
		defer r.runs(r.keep)()
		pass(5 * time.Second)
		row.change(r)
		pass(guard.LookEvery + 2*keepEvery)
		if n := len(r.east.holds("admission")); n != stored || !r.stores(allJobs) {
			t.Errorf("%d of %d objects are stored", n, stored)
		}
		r.east.alters(gate, func(o *unstructured.Unstructured) {
			if is := actions(o)["validationActions"].([]any); is[0] != "Deny" {
				t.Errorf("the gate has the actions %v", is)
			}
		})
		if (len(r.events) == 1) != row.reported || row.reported && !strings.Contains(r.events[0], "restored") {
			t.Errorf("events are %q", r.events)
		}
		if since, err := r.FencedSince(allJobs, "shop"); err != nil || (since > before) != row.reported {
			t.Errorf("it is in force since %v, %v; before that since %v", since, err, before)
		}
	})
}

// Another replica of the hub may have rewritten the fence while this one did not serve the fleet.
func TestFence_ThatChangedWhileOthersServedIsNotReportedAsEdited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEnv(t, allJobs)
		r.kept()
		defer r.runs(r.keep)()
		r.will(func(r *env) { r.standby = true })
		pass(2 * time.Second)
		r.east.alters("policies/"+allJobs.Name(),
			func(o *unstructured.Unstructured) { o.SetGeneration(o.GetGeneration() + 1) })
		r.forget()
		r.will(func(r *env) { r.standby = false })
		pass(guard.LookEvery + 2*keepEvery)
		if len(r.at("PUT", "policies/"+allJobs.Name())) == 0 {
			t.Error("it is not written again")
		}
		if len(r.events) > 0 {
			t.Errorf("events are %q", r.events)
		}
	})
}

// A hub that may not list fences knows the guard by its names.
func TestGuard_IsWrittenOnceWhereItMayNotBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEnv(t)
		r.answer = func(req *http.Request) *metav1.Status {
			if strings.Contains(req.URL.Path, "admission") && req.URL.Query().Get("labelSelector") != "" {
				return forbidden
			}
			return nil
		}
		defer r.runs(r.keep)()
		pass(5 * time.Second)
		r.forget()
		pass(3 * guard.IdleEvery)
		if writes := append(r.at("PUT", "admission"), r.at("POST", "admission")...); len(writes) > 0 || r.Unguarded() != nil {
			t.Errorf("written again at %v; the guard: %v", writes, r.Unguarded())
		}
	})
}

func TestFencedSince_StartsAgainWhenAProbeWasAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEnv(t, allJobs)
		defer r.runs(r.keep)()
		pass(2 * time.Second)
		first, err := r.FencedSince(allJobs, "shop")
		if err != nil || first < testStart.Boot || first > testStart.Boot+2*time.Second {
			t.Fatalf("in force since %v, %v", first, err)
		}
		pass(2 * guard.VerifyEvery)
		if since, err := r.FencedSince(allJobs, "shop"); err != nil || since != first {
			t.Errorf("then in force since %v, %v, want %v", since, err, first)
		}
		r.enqueued()
		r.will(func(r *env) { r.open = []string{"gate", "wall"} })
		pass(guard.VerifyEvery)
		_, err = r.FencedSince(allJobs, "shop")
		if !errors.Is(err, guard.ErrNotEnforced) || !slices.Contains(r.enqueued(), "") {
			t.Errorf("while a probe is accepted: %v", err)
		}
		r.will(func(r *env) { r.open = nil })
		pass(2 * time.Second)
		since, err := r.FencedSince(allJobs, "shop")
		if err != nil || since <= first || !slices.Contains(r.enqueued(), "") {
			t.Errorf("in the end in force since %v, %v", since, err)
		}
	})
}

// restarts replaces the worker by one that knows nothing.
func (r *env) restarts() {
	r.Worker = New(r.Options)
	r.forget()
}

// Every namespace has a gate or a wall at any time. A gate is where there is a Lease, and the wall excludes where the
// gate was seen to reject.
func TestFence_HasAGateOrAWall(t *testing.T) {
	led := func(r *env) { r.has(eastLease(20)) }
	unled := func(r *env) { r.east.loses("/leases/") }
	lost := func(r *env) { r.east.namespaces = nil }
	type row struct {
		before, change func(*env)
		open           []string
		gate, wall     string // what they cover, and exclude; "-": not stored
		err            error
	}
	rows(t, map[string]row{
		"no Lease":                          {unled, nil, nil, "-", "/", nil},
		"a Lease":                           {led, nil, nil, "shop", "/shop", nil},
		"a Lease, the gate does not reject": {led, nil, []string{"gate"}, "shop", "/", nil},
		"no Lease, the wall does not":       {unled, nil, []string{"wall"}, "-", "/", guard.ErrNotEnforced},
		"a new Lease":                       {unled, led, nil, "shop", "/shop", nil},
		"a new Lease, the gate does not":    {unled, led, []string{"gate"}, "shop", "/", nil},
		"a lost Lease":                      {led, unled, nil, "shop", "/shop", nil},
		"a lost namespace":                  {led, lost, nil, "-", "/", guard.ErrNotEnforced},
		"a restarted hub":                   {led, (*env).restarts, nil, "shop", "/shop", nil},
		"a restarted hub, a lost Lease":     {led, func(r *env) { unled(r); r.restarts() }, nil, "shop", "/shop", nil},
	}, func(t *testing.T, row row) {
		r := newEnv(t, allJobs)
		row.before(r)
		if row.change != nil {
			r.kept()
			row.change(r)
		}
		r.open = row.open
		defer r.runs(r.keep)()
		pass(2 * time.Second)
		names := allJobs.Names()
		if gate, wall := r.east.bound(names[0]), r.east.bound(names[1]); gate != row.gate || wall != row.wall {
			t.Errorf("the gate covers %q, the wall excludes %q; want %q and %q", gate, wall, row.gate, row.wall)
		}
		if err := r.Unfenced(allJobs, "shop"); !same(err, row.err) || len(r.events) > 0 {
			t.Errorf("missing: %v, want %v; events are %q", err, row.err, r.events)
		}
	})
}

// A leader keeps its lead with a stored fence, while the hub checks whether it rejects.
func TestUnfenced_KnowsAStoredFenceBeforeItIsChecked(t *testing.T) {
	once := jobs("shops", "once")
	type row struct {
		change func(*env)
		stored bool
	}
	rows(t, map[string]row{
		"it is stored":               {func(*env) {}, true},
		"the gate's policy is gone":  {func(r *env) { r.east.loses("policies/" + once.Name()) }, false},
		"the wall's binding is gone": {func(r *env) { r.east.loses("bindings/" + once.Names()[1]) }, false},
		"another version is stored":  {func(r *env) { r.wanted = []guard.Fence{jobs("shops", "twice")} }, false},
	}, func(t *testing.T, row row) {
		r := newEnv(t, once)
		r.kept()
		r.restarts()
		row.change(r)
		r.answers(internal, "shops")
		defer r.runs(r.keep)()
		err := r.Unfenced(r.wanted[0], "shop")
		if stored := errors.Is(err, ErrStored); stored != row.stored || !errors.Is(err, ErrUnchecked) {
			t.Errorf("missing: %v", err)
		}
		if !slices.Contains(r.enqueued(), "") {
			t.Error("no decision is enqueued")
		}
	})
}

// What cannot be read may have changed or not. As if it were empty, everything would be removed.
func TestFences_StayWhileTheirPoliciesOrNamespacesCannotBeRead(t *testing.T) {
	uncached := func(leases bool) func(*env) {
		return func(r *env) {
			r.east.uncached = func(list client.ObjectList) error {
				if _, is := list.(*coordinationv1.LeaseList); is == leases {
					return errRefused
				}
				return nil
			}
		}
	}
	rows(t, map[string]func(*env){
		"the policies": func(r *env) { r.unread = errRefused }, "the namespaces": uncached(false),
		"the Leases": uncached(true),
	}, func(t *testing.T, lose func(*env)) {
		r := newEnv(t, allJobs)
		r.kept()
		writes := r.east.version
		lose(r)
		defer r.runs(r.keep)()
		pass(30 * time.Second)
		if r.east.version != writes || !r.stores(allJobs) || r.Unfenced(allJobs, "shop") != nil {
			t.Errorf("%d writes; stored: %q", r.east.version-writes, r.east.holds("admission"))
		}
	})
}

func TestRemove_LeavesFencesOfOtherHubsAndFleets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEnv(t, allJobs)
		r.kept()
		ours := r.east.holds("shops.fleet")
		for _, p := range ours {
			for mark, change := range map[string]func(labels, annotations map[string]string){
				"them":   func(_, annotations map[string]string) { annotations[v1alpha1.HubAnnotation] = them },
				"branch": func(labels, _ map[string]string) { labels[v1alpha1.FenceLabel] = "branch" },
			} {
				r.east.shows(func(a *memberAPI) {
					o := a.stored[p].DeepCopy()
					labels, annotations := o.GetLabels(), o.GetAnnotations()
					change(labels, annotations)
					o.SetLabels(labels)
					o.SetAnnotations(annotations)
					o.SetName(mark + o.GetName())
					a.put(strings.Replace(p, "shops.", mark+"shops.", 1), o)
				})
			}
		}
		err := r.Remove(t.Context())
		if err != nil || len(r.east.holds("/shops.fleet")) > 0 || len(r.east.holds(guard.Name)) > 0 {
			t.Errorf("%v; stored: %q", err, r.east.holds("admission"))
		}
		if n := len(r.east.holds("themshops")) + len(r.east.holds("branchshops")); n != 2*len(ours) {
			t.Errorf("%d objects of others are left, want %d", n, 2*len(ours))
		}
	})
}
