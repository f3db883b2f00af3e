package controller

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/publish"
)

// works has a warden work in east until the returned function is called.
func (w *warden) works() (end func()) {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	engaged, disengage := context.WithCancel(w.t.Context())
	w.Controller.mu.Lock()
	w.running = ctx
	w.Controller.mu.Unlock()
	if err := w.Engage(engaged, eastKey.ClusterName(), w.east); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
	return func() {
		disengage()
		w.wg.Wait()
		stop()
	}
}

// published is the publisher of east, or nil.
func (w *warden) published() *publish.Publisher {
	synctest.Wait()
	p, _ := w.attachmentOf(eastKey)
	return p
}

// Nothing is written into a cluster of which the hub does not know for certain who it is.
func TestWhenTheWorkInAMemberBegins(t *testing.T) {
	for name, test := range map[string]struct {
		reached bool
		before  func(*clusterv1.Cluster)
		by      string
		begins  bool
	}{
		"it is pinned":                          {true, func(*clusterv1.Cluster) {}, "", true},
		"it is pinned, and was not reached":     {false, func(*clusterv1.Cluster) {}, "", false},
		"it was reached, and is not pinned":     {true, func(c *clusterv1.Cluster) { c.Annotations = nil }, "", false},
		"it moves to another hub":               {false, moves, "", true},
		"it moves, and nobody knows who it is":  {false, func(c *clusterv1.Cluster) { moves(c); delete(c.Annotations, v1alpha1.ClusterUIDAnnotation) }, "", false},
		"another installation serves its fleet": {true, func(*clusterv1.Cluster) {}, besideMark, false},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			if test.reached {
				objects = append(objects, reached(t, "east"))
			}
			synctest.Test(t, func(t *testing.T) {
				w := newWarden(t, objects...)
				w.by = test.by
				w.changes("east", test.before)
				end := w.works()
				pass(time.Second)
				if begins := w.published() != nil; begins != test.begins {
					t.Errorf("it begins: %v, want %v", begins, test.begins)
				}
				if test.by == besideMark {
					w.will(func(w *warden) { w.by = "" })
					pass(guardRetry)
					if w.published() == nil {
						t.Error("it does not begin when the other one has gone")
					}
				}
				end()
			})
		})
	}
}

func TestTheWorkInAMember(t *testing.T) {
	kubeconfig := reached(t, "east")
	synctest.Test(t, func(t *testing.T) {
		w := newWarden(t, kubeconfig)
		end := w.works()
		p := w.published()
		if p == nil || !p.Initial().Read {
			t.Fatal("the member was not read")
		}
		if !slices.Contains(asked(&w.records), "fleet/shop") {
			t.Error("no decision was asked for when it had been read")
		}
		if err := w.guardOf(); err != nil {
			t.Errorf("the guard: %v", err)
		}
		informer, err := w.east.informers.FakeInformerFor(t.Context(), &coordinationv1.Lease{})
		if err != nil {
			t.Fatal(err)
		}
		seen := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: "till", Name: "leasecast", UID: "uid", ResourceVersion: "5", Labels: map[string]string{v1alpha1.ManagedLabel: "true"},
		}}
		informer.Add(seen)
		synctest.Wait()
		if len(p.LeasesIn("till")) != 1 || !slices.Contains(asked(&w.records), "fleet/till") {
			t.Error("nobody sees what the cache shows")
		}
		end()
		if w.published() != nil {
			t.Error("it goes on after the member was disengaged")
		}
	})
}

// guardOf is what is known of the guard of east.
func (w *warden) guardOf() error {
	synctest.Wait()
	_, err := w.attachmentOf(eastKey)
	return err
}

// The publisher asks for the right to stamp before each stamp, and tells the member's health what became of requests.
func TestWhatThePublisherOfAMemberIsGiven(t *testing.T) {
	kubeconfig := reached(t, "east")
	synctest.Test(t, func(t *testing.T) {
		w := newWarden(t, kubeconfig)
		defer w.works()()
		p := w.published()
		term := lease.Term{Holder: eastKey.Identity(), Epoch: 20, AcquireTime: musterStart.Wall, Duration: 15 * time.Second}
		leads := func(ns string) {
			p.Assign(types.NamespacedName{Namespace: ns, Name: "leasecast"}, lease.Assignment{Role: lease.Lead, Term: term, First: true},
				publish.Timings{Renew: 5 * time.Second, Timeout: time.Second, LongestPromise: time.Minute})
			synctest.Wait()
		}
		written := func(ns string) bool { return len(w.east.holds("/namespaces/"+ns+"/leases")) > 0 }
		th := health.Thresholds{UnreachableAfter: time.Second, RecoverAfter: time.Second}
		if v := w.member("east").Health(th); v.State != health.Unknown {
			t.Errorf("its health is known before anything was written: %+v", v)
		}
		if leads("shop"); !written("shop") {
			t.Error("a first copy was not written")
		}
		if v := w.member("east").Health(th); v.State == health.Unknown {
			t.Errorf("its health does not know of the requests: %+v", v)
		}
		w.will(func(w *warden) { w.by = besideMark })
		if leads("till"); written("till") {
			t.Error("a copy was written for a fleet that another installation serves")
		}
	})
}

// told is a cluster whose cache keeps the handler that it is given.
type told struct {
	cluster.Cluster
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

// A cache that missed the end of a copy tells of it by what it saw last.
func TestAnEndThatTheCacheMissed(t *testing.T) {
	for name, wrap := range map[string]func(*coordinationv1.Lease) any{
		"an end that was seen": func(l *coordinationv1.Lease) any { return l },
		"an end that was missed": func(l *coordinationv1.Lease) any {
			return toolscache.DeletedFinalStateUnknown{Key: "shop/leasecast", Obj: l}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, h := newStage(t), &handlers{}
			p := s.publisher()
			if _, err := watchCopies(t.Context(), engagement{cluster: told{handlers: h}}, p); err != nil {
				t.Fatal(err)
			}
			l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "leasecast", UID: "uid", ResourceVersion: "5", Labels: map[string]string{v1alpha1.ManagedLabel: "true"},
			}}
			h.OnAdd(l, false)
			h.OnAdd("no Lease", false)
			h.OnDelete("no Lease")
			if s.work(p); len(p.LeasesIn("shop")) != 1 {
				t.Fatal("the copy is not known")
			}
			h.OnDelete(wrap(l))
			if s.work(p); len(p.LeasesIn("shop")) != 0 {
				t.Error("nobody sees that it is gone")
			}
		})
	}
}

// Without a watch nobody would hear of what happens to copies.
func TestAMemberWhoseCopiesCannotBeWatchedIsLeftAlone(t *testing.T) {
	if _, err := watchCopies(t.Context(), engagement{cluster: told{handlers: &handlers{refuses: errRefused}}}, nil); err == nil {
		t.Error("a handler that was not added is no error")
	}
	kubeconfig := reached(t, "east")
	synctest.Test(t, func(t *testing.T) {
		w := newWarden(t, kubeconfig)
		w.east.informers.Error = errRefused
		end := w.works()
		if w.published() != nil || len(w.attached) > 0 {
			t.Errorf("it is worked on: %+v", w.attached)
		}
		if held := w.east.holds("/"); len(held) > 0 {
			t.Errorf("written was %q", held)
		}
		end()
	})
}

// The cache of a member outlives the work there, which may begin anew.
func TestTheEndOfTheWorkInAMember(t *testing.T) {
	kubeconfig := reached(t, "east")
	synctest.Test(t, func(t *testing.T) {
		w, h := newWarden(t, kubeconfig), &handlers{}
		ctx, cancel := context.WithCancel(t.Context())
		w.Controller.mu.Lock()
		w.running = ctx
		w.Controller.mu.Unlock()
		if err := w.Engage(ctx, eastKey.ClusterName(), both{w.east, h}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if h.ResourceEventHandler == nil {
			t.Error("copies are not watched")
		}
		w.east.mu.Lock()
		watched := w.east.watches
		w.east.mu.Unlock()
		if watched == 0 {
			t.Error("readers are not watched")
		}
		if len(w.unselected) > 0 {
			t.Errorf("all Leases are asked for: %q", w.unselected)
		}
		cancel()
		w.wg.Wait()
		if h.ResourceEventHandler != nil {
			t.Error("copies are still watched after the end")
		}
	})
}

// both is a member's API server with a cache of its own.
type both struct {
	*memberAPI
	handlers *handlers
}

func (b both) GetCache() cache.Cache { return toldCache{handlers: b.handlers} }
