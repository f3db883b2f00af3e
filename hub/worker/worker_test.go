package worker

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/publish"
)

// A rejection may concern one namespace only. The probe covers the member as a whole.
func TestReport_ObservesWhatARequestShows(t *testing.T) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	failed := func(err error) error { return &url.Error{Op: "Get", URL: "https://placeholder/api", Err: err} }
	silence := func(silent bool, why string) *health.Observation {
		message := "a request for a Lease got no answer: " + why
		return &health.Observation{Silent: silent, Reason: reason.Unreachable, Message: message}
	}
	for name, test := range map[string]struct {
		err  error
		want *health.Observation
	}{
		"an answer":            {nil, &health.Observation{OK: true}},
		"no such Lease":        {apierrors.NewNotFound(leases, "shop"), &health.Observation{OK: true}},
		"a webhook that fails": {apierrors.NewInternalError(errors.New("failed calling webhook")), nil},
		"silence":              {failed(context.DeadlineExceeded), silence(true, "context deadline exceeded")},
		"no route":             {failed(errors.New("no route")), silence(false, "no route")},
		"another error":        {errors.New("lost"), silence(false, "lost")},
	} {
		t.Run(name, func(t *testing.T) {
			answered := lease.Reading{Wall: testStart.Wall, Boot: testStart.Boot + time.Second}
			for write, kind := range map[bool]health.Kind{false: health.Read, true: health.Write} {
				var got []health.Observation
				Report(func(o health.Observation) { got = append(got, o) }, write, testStart, answered, test.err)
				var want []health.Observation
				if test.want != nil {
					o := *test.want
					o.Kind, o.At, o.Took = kind, testStart, time.Second
					want = append(want, o)
				}
				if !slices.Equal(got, want) {
					t.Errorf("observed %+v, want %+v", got, want)
				}
			}
		})
	}
}

// One installation serves a fleet, and only that one writes.
func TestRun_BeginsWhereItsHubServesTheFleet(t *testing.T) {
	type row struct {
		by     string
		begins bool
	}
	rows(t, map[string]row{
		"no installation serves the fleet":      {"", true},
		"another installation serves the fleet": {them, false},
	}, func(t *testing.T, row row) {
		r := newEnv(t)
		r.by = row.by
		end := r.runs(r.Run)
		pass(time.Second)
		if begins := r.Publisher() != nil; begins != row.begins || (len(r.east.holds("/")) > 0) != begins {
			t.Errorf("it begins: %v, want %v; stored: %q", begins, row.begins, r.east.holds("/"))
		}
		r.will(func(r *env) { r.by = "" })
		pass(ServeRetry)
		if r.Publisher() == nil {
			t.Error("it does not begin later")
		}
		if end(); !r.Publisher().Queue.ShuttingDown() {
			t.Error("it goes on after the end")
		}
		r = newEnv(t)
		r.by = them
		r.runs(r.Run)() // ends, although it never began
	})
}

func managedLease(namespace string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "leasecast", UID: "uid", ResourceVersion: "5",
		Labels:      map[string]string{v1alpha1.ManagedLabel: "true"},
		Annotations: map[string]string{v1alpha1.HubAnnotation: "hub"},
	}}
}

func TestRun_ReadsTheMemberAndWatchesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEnv(t)
		if r.Publisher() != nil || !errors.Is(r.Unguarded(), guard.ErrUnchecked) || r.Readers("shop") != 0 {
			t.Error("something is known before it begins")
		}
		defer r.runs(r.Run)()
		if p := r.Publisher(); p == nil || !p.Initial().Read || !slices.Contains(r.enqueued(), "") || r.Unguarded() != nil {
			t.Fatalf("it has not read the member; the guard: %v", r.Unguarded())
		}
		informer := musttest.Get(r.east.informers.FakeInformerFor(t.Context(), &coordinationv1.Lease{}))(t)
		informer.Add(managedLease("till"))
		if !slices.Contains(r.enqueued(), "till") || len(r.Publisher().LeasesIn("till")) != 1 {
			t.Error("it misses what the cache shows")
		}
	})
}

// The publisher asks for the right to write before each promise, and reports requests to the member's health.
func TestPublisher_WritesForItsHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEnv(t)
		defer r.runs(r.Run)()
		leads := func(ns string) (written bool) {
			r.Publisher().Assign(types.NamespacedName{Namespace: ns, Name: "leasecast"},
				assign.Assignment{Role: assign.Lead, Term: eastLease(20).Term, First: true},
				publish.Timings{Renew: 5 * time.Second, Timeout: time.Second, LongestPromise: time.Minute})
			synctest.Wait()
			return len(r.east.holds("/namespaces/"+ns+"/leases")) > 0
		}
		wrote := func() bool {
			return slices.ContainsFunc(r.observed, func(o health.Observation) bool { return o.Kind == health.Write && o.OK })
		}
		if wrote() || !leads("shop") || !wrote() {
			t.Errorf("observed %+v", r.observed)
		}
		if p := r.Promises.Get(types.NamespacedName{Namespace: "fleet", Name: "shop"}); p.Epoch != 20 {
			t.Errorf("promised: %+v", p)
		}
		r.will(func(r *env) { r.by = them })
		if leads("till") {
			t.Error("a Lease was written for a fleet that another installation serves")
		}
		r.Publisher().TellOfReader(types.NamespacedName{Namespace: "pods", Name: "reader"}, reason.ReaderSilent, "no release")
		if want := []string{"ReaderSilent: no release"}; !slices.Equal(r.events, want) {
			t.Errorf("events are %q, want %q", r.events, want)
		}
	})
}

func TestWatchLeases_PassesEventsToThePublisher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := newEnv(t), managedLease("shop")
		p := r.reads()
		h := leaseEvents(p)
		for _, step := range []struct {
			what  string
			event func()
			known bool
		}{
			{"other objects", func() { h.OnAdd("no Lease", false); h.OnDelete("no Lease") }, false},
			{"an addition", func() { h.OnAdd(l, false) }, true},
			{"a deletion", func() { h.OnDelete(l) }, false},
			{"a change", func() { h.OnUpdate(nil, l) }, true},
			{"a missed deletion", func() { h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "shop/leasecast", Obj: l}) },
				false},
		} {
			step.event()
			if r.writes(); len(p.LeasesIn("shop")) > 0 != step.known {
				t.Errorf("after %s, the Lease is known: %v", step.what, !step.known)
			}
		}
	})
}

func TestRun_LeavesAMemberWhoseLeasesCannotBeWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEnv(t)
		r.east.informers.Error = errRefused
		r.Run(t.Context())
		if held := r.east.holds("/"); len(held) > 0 || r.Publisher() != nil {
			t.Errorf("it works there; stored: %q", held)
		}
	})
}
