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
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/publish"
)

// A refusal may concern one namespace only; the probe asks about the member as a whole.
func TestWhatARequestSaysOfAMember(t *testing.T) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	noRoute := &url.Error{Op: "Get", URL: "https://placeholder/api", Err: errors.New("no route")}
	silence := &url.Error{Op: "Get", URL: "https://placeholder/api", Err: context.DeadlineExceeded}
	answered := lease.Reading{Wall: rigStart.Wall, Boot: rigStart.Boot + time.Second}
	for name, test := range map[string]struct {
		err  error
		want *health.Observation
	}{
		"it was answered":               {nil, &health.Observation{OK: true}},
		"there is no such Lease":        {apierrors.NewNotFound(leases, "shop"), &health.Observation{OK: true}},
		"it is forbidden":               {apierrors.NewForbidden(leases, "shop", errRefused), nil},
		"the credentials are not valid": {apierrors.NewUnauthorized("who"), nil},
		"it is invalid":                 {apierrors.NewInvalid(schema.GroupKind{Kind: "Lease"}, "shop", nil), nil},
		"silence":                       {silence, &health.Observation{Silent: true, Reason: reason.Unreachable, Message: "a request for a Lease got no answer: context deadline exceeded"}},
		"no way to it":                  {noRoute, &health.Observation{Reason: reason.Unreachable, Message: "a request for a Lease got no answer: no route"}},
		"anything else":                 {errors.New("lost"), &health.Observation{Reason: reason.Unreachable, Message: "a request for a Lease got no answer: lost"}},
	} {
		t.Run(name, func(t *testing.T) {
			for write, kind := range map[bool]health.Kind{false: health.Read, true: health.Write} {
				var got *health.Observation
				Report(func(o health.Observation) { got = &o }, write, rigStart, answered, test.err)
				if test.want == nil {
					if got != nil {
						t.Errorf("observed %+v, want nothing", *got)
					}
					continue
				}
				want := *test.want
				want.Kind, want.At, want.Took = kind, rigStart, time.Second
				if got == nil || *got != want {
					t.Errorf("observed %+v, want %+v", got, want)
				}
			}
		})
	}
}

// A fleet is served by one installation, and only that one writes.
func TestWhenTheWorkInAMemberBegins(t *testing.T) {
	for name, test := range map[string]struct {
		by      string
		standby bool
		begins  bool
	}{
		"this installation serves its fleet":    {us, false, true},
		"nobody serves its fleet":               {"", false, true},
		"another installation serves its fleet": {them, false, false},
		"this replica is a standby":             {"", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.by, r.standby = test.by, test.standby
				end := r.runs(r.Run)
				pass(time.Second)
				if begins := r.Publisher() != nil; begins != test.begins {
					t.Errorf("it begins: %v, want %v", begins, test.begins)
				}
				r.will(func(r *rig) { r.by, r.standby = "", false })
				pass(ServeRetry)
				if r.Publisher() == nil {
					t.Error("it does not begin when nothing is in the way any more")
				}
				end()
			})
		})
	}
}

func seen(namespace string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "leasecast", UID: "uid", ResourceVersion: "5",
		Labels: map[string]string{v1alpha1.ManagedLabel: "true"}, Annotations: map[string]string{v1alpha1.HubAnnotation: "hub"},
	}}
}

func TestTheWorkInAMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		if r.Publisher() != nil || !errors.Is(r.Unguarded(), ErrUnchecked) {
			t.Error("something is known before it begins")
		}
		end := r.runs(r.Run)
		p := r.Publisher()
		if p == nil || !p.Initial().Read {
			t.Fatal("the member was not read")
		}
		if !slices.Contains(r.news(), "") {
			t.Error("no decision was asked for when it had been read")
		}
		if err := r.Unguarded(); err != nil {
			t.Errorf("the guard: %v", err)
		}
		informer, err := r.east.informers.FakeInformerFor(t.Context(), &coordinationv1.Lease{})
		if err != nil {
			t.Fatal(err)
		}
		informer.Add(seen("till"))
		if !slices.Contains(r.news(), "till") || len(p.LeasesIn("till")) != 1 {
			t.Error("nobody sees what the cache shows")
		}
		end()
		if !p.Queue.ShuttingDown() {
			t.Error("it goes on after the end")
		}
	})
}

// The publisher asks for the right to write before each promise, and tells the member's health what became of requests.
func TestWhatThePublisherOfAMemberIsGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.runs(r.Run)()
		term := eastLease(20).Term
		leads := func(ns string) {
			r.Publisher().Assign(types.NamespacedName{Namespace: ns, Name: "leasecast"}, assign.Assignment{Role: assign.Lead, Term: term, First: true},
				publish.Timings{Renew: 5 * time.Second, Timeout: time.Second, LongestPromise: time.Minute})
			synctest.Wait()
		}
		written := func(ns string) bool { return len(r.east.holds("/namespaces/"+ns+"/leases")) > 0 }
		wrote := func(o health.Observation) bool { return o.Kind == health.Write && o.OK }
		if slices.ContainsFunc(r.observed, wrote) {
			t.Errorf("a write is observed before anything was written: %+v", r.observed)
		}
		if leads("shop"); !written("shop") {
			t.Error("a first Lease was not written")
		}
		if !slices.ContainsFunc(r.observed, wrote) {
			t.Errorf("its health does not know of the write: %+v", r.observed)
		}
		if p := r.Promises.Get(types.NamespacedName{Namespace: "fleet", Name: "shop"}); p.Epoch != 20 {
			t.Errorf("promised: %+v", p)
		}
		r.will(func(r *rig) { r.by = them })
		if leads("till"); written("till") {
			t.Error("a Lease was written for a fleet that another installation serves")
		}
	})
}

// told is a member with a cache that keeps the handler that it is given.
type told struct {
	*memberAPI
	handlers *handlers
}

func (c told) GetCache() cache.Cache { return toldCache{handlers: c.handlers} }

type toldCache struct {
	cache.Cache
	handlers *handlers
}

func (c toldCache) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return c.handlers, nil
}

// handlers is the informer of Leases there.
type handlers struct {
	cache.Informer
	toolscache.ResourceEventHandler // the one that was added
	refuses                         error
}

func (h *handlers) AddEventHandler(added toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	h.ResourceEventHandler = added
	return nil, h.refuses
}

func (h *handlers) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error {
	h.ResourceEventHandler = nil
	return nil
}

// A cache that missed the end of a Lease tells of it by what it saw last.
func TestThePublisherSeesWhatTheCacheShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := newRig(t), &handlers{}
		p := r.reads()
		r.Cluster = told{handlers: h}
		unwatch, err := r.watchLeases(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		known := func(when string, want bool) {
			t.Helper()
			r.writes()
			if known := len(p.LeasesIn("shop")) > 0; known != want {
				t.Errorf("%s: a Lease is known: %v, want %v", when, known, want)
			}
		}
		l := seen("shop")
		known("at first", false)
		h.OnAdd(l, false)
		h.OnAdd("no Lease", false)
		h.OnDelete("no Lease")
		known("it was added", true)
		h.OnDelete(l)
		known("it was deleted", false)
		h.OnUpdate(nil, l)
		known("it was changed", true)
		h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "shop/leasecast", Obj: l})
		known("its end was missed", false)
		if unwatch(); h.ResourceEventHandler != nil {
			t.Error("Leases are still watched")
		}
	})
}

// Without a watch nobody would hear of what happens to Leases.
func TestAMemberWhoseLeasesCannotBeWatchedIsLeftAlone(t *testing.T) {
	for name, cluster := range map[string]func(*rig){
		"the cache shows none":        func(r *rig) { r.east.informers.Error = errRefused },
		"the handler cannot be added": func(r *rig) { r.Cluster = told{r.east, &handlers{refuses: errRefused}} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				cluster(r)
				r.Run(t.Context())
				if r.Publisher() != nil {
					t.Error("it is worked on")
				}
				if held := r.east.holds("/"); len(held) > 0 {
					t.Errorf("written was %q", held)
				}
			})
		})
	}
}

// The cache of a member outlives the work there, which may begin anew.
func TestTheEndOfTheWorkInAMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := newRig(t), &handlers{}
		r.Cluster = told{r.east, h}
		end := r.runs(r.Run)
		pass(time.Second)
		if h.ResourceEventHandler == nil {
			t.Error("Leases are not watched")
		}
		r.east.mu.Lock()
		watched := r.east.watches
		r.east.mu.Unlock()
		if watched == 0 {
			t.Error("readers are not watched")
		}
		if len(r.unselected) > 0 {
			t.Errorf("all Leases are asked for: %q", r.unselected)
		}
		if end(); h.ResourceEventHandler != nil {
			t.Error("Leases are still watched after the end")
		}
	})
}

// There is nothing to end.
func TestTheWorkThatNeverBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := newRig(t), &handlers{}
		r.by, r.Cluster = them, told{r.east, h}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.Run(ctx)
		}()
		pass(time.Second)
		cancel()
		<-ended
		if held := r.east.holds("/"); len(held) > 0 || r.Publisher() != nil || h.ResourceEventHandler != nil {
			t.Errorf("there is %q, and a publisher: %v", held, r.Publisher() != nil)
		}
	})
}

func TestWhatAPublisherTellsOfAReaderIsAnEventOnItsCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.reads().TellOfReader(types.NamespacedName{Namespace: "pods", Name: "reader"}, reason.ReaderSilent, "it did not release a term")
		if want := []string{"ReaderSilent: it did not release a term"}; !slices.Equal(r.events, want) {
			t.Errorf("events %q, want %q", r.events, want)
		}
	})
}
