package controller

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/hub/fairqueue"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/tenure"
)

// fakeManager is a manager that keeps what it is given, and refuses one of it.
type fakeManager struct {
	mcmanager.Manager
	local   *fakeLocalManager
	added   []mcmanager.Runnable
	refuses int // the number of what is refused, from 1 on
}

func (m *fakeManager) GetLocalManager() manager.Manager { return m.local }
func (m *fakeManager) GetLogger() logr.Logger           { return logr.Discard() }
func (m *fakeManager) Elected() <-chan struct{}         { return nil }

func (m *fakeManager) Add(r mcmanager.Runnable) error {
	if m.added = append(m.added, r); len(m.added) == m.refuses {
		return errRefused
	}
	return nil
}

type fakeLocalManager struct {
	manager.Manager
	api     client.Client
	cache   cache.Cache
	added   []manager.Runnable
	refuses bool
}

func newFakeLocalManager(api client.Client) *fakeLocalManager {
	return &fakeLocalManager{api: api, cache: &informertest.FakeInformers{}}
}

func (m *fakeLocalManager) GetClient() client.Client                     { return m.api }
func (m *fakeLocalManager) GetAPIReader() client.Reader                  { return m.api }
func (m *fakeLocalManager) GetCache() cache.Cache                        { return m.cache }
func (m *fakeLocalManager) GetLogger() logr.Logger                       { return logr.Discard() }
func (m *fakeLocalManager) GetEventRecorder(string) events.EventRecorder { return silent{} }
func (m *fakeLocalManager) GetControllerOptions() config.Controller {
	return config.Controller{CacheSyncTimeout: time.Minute}
}

func (m *fakeLocalManager) Add(r manager.Runnable) error {
	if m.added = append(m.added, r); m.refuses {
		return errRefused
	}
	return nil
}

// atOnce is how many requests a controller works on concurrently.
func atOnce(r mcmanager.Runnable) int {
	inner := reflect.ValueOf(r).Elem().FieldByName("TypedController")
	return int(inner.Elem().Elem().FieldByName("MaxConcurrentReconciles").Int())
}

func TestWhatAManagerRuns(t *testing.T) {
	for refused := range 8 {
		want := errRefused
		if refused == 0 {
			want = nil
		}
		c := New(Options{Fleet: fleet.New(fleet.Options{}), Tenure: tenure.New(fixedClock(testStart), 6*time.Second),
			Clock: fixedClock(testStart)})
		m := &fakeManager{local: newFakeLocalManager(withTestAPI(t, c)), refuses: refused}
		m.local.refuses = refused == 7
		c.Client, c.Live, c.events = nil, nil, nil
		if err := c.SetupWithManager(m); !errors.Is(err, want) {
			t.Fatalf("with the runnable %d refused: %v, want %v", refused, err, want)
		}
		if want != nil {
			continue
		}
		if c.Client == nil || c.Live == nil || c.events == nil {
			t.Error("it has no clients of the hub's API server")
		}
		if len(m.added) != 6 || m.added[5] != mcmanager.Runnable(c) ||
			!slices.Contains(m.local.added, manager.Runnable(c.hubClock)) {
			t.Fatalf("added are %v and %v", m.added, m.local.added)
		}
		if records, policies := atOnce(m.added[0]), atOnce(m.added[1]); records != 16 || policies != 1 {
			t.Errorf("%d records and %d policies at once: what members are probed with is set by one at a time", records,
				policies)
		}
	}
}

// The priority queue of the manager's defaults may never shut down, and a process may hold several hubs.
func TestOptionsOfAController(t *testing.T) {
	o := controllerOptions(&fakeLocalManager{}, nil, 7)
	if o.MaxConcurrentReconciles != 7 || o.UsePriorityQueue == nil || *o.UsePriorityQueue || o.SkipNameValidation == nil ||
		!*o.SkipNameValidation || o.CacheSyncTimeout != time.Minute {
		t.Errorf("%+v", o)
	}
}

// A decision that fails is made again after a pause, but within seconds of the cure, however often it has failed and
// however many fail.
func TestRequestThatFailsIsTriedAgainWithinSeconds(t *testing.T) {
	for name, test := range map[string]struct {
		requests, failures int
		after, within      time.Duration // of the last failure
	}{
		"one request that has failed 30 times":     {1, 30, time.Second, 5 * time.Second},
		"1,000 requests that have failed once":     {1000, 1, time.Millisecond, time.Second},
		"1,000 requests that have failed 30 times": {1000, 30, time.Second, 5 * time.Second},
	} {
		inBubble(t, name, func(t *testing.T) {
			o := controllerOptions(&fakeLocalManager{}, nil, 1)
			oneLane := func(types.NamespacedName) (fairqueue.Lane, bool) { return fairqueue.Lane{}, true }
			q := fairqueue.New(oneLane)("", o.RateLimiter)
			defer q.ShutDown()
			var failed []mcreconcile.Request
			for i := range test.requests {
				failed = append(failed, requestOf(types.NamespacedName{Namespace: "fleet", Name: fmt.Sprint(i)}))
			}
			var took time.Duration
			for range test.failures {
				for _, r := range failed {
					q.AddRateLimited(r)
				}
				last := time.Now()
				for range failed {
					r, _ := q.Get()
					q.Done(r)
				}
				took = time.Since(last)
			}
			if took < test.after || took > test.within {
				t.Errorf("tried again after %v, want at least %v and at most %v", took, test.after, test.within)
			}
		})
	}
}

// The first lists of a controller enqueue everything.
func TestNothingIsEnqueuedBeforeAControllerHasStarted(t *testing.T) {
	var w queue
	w.add(shop)
	q := newTestQueue(t)
	if err := w.source().Start(t.Context(), q); err != nil || q.Len() != 0 {
		t.Fatalf("%v, %d requests", err, q.Len())
	}
	w.add(shop)
	if got := asked(&w); !slices.Equal(got, []string{"fleet/shop"}) {
		t.Errorf("enqueued are %q", got)
	}
}

// A replica that is stopped before all Clusters are known does nothing.
func TestReplicaThatIsStoppedEarly(t *testing.T) {
	c := New(Options{Fleet: fleet.New(fleet.Options{})})
	if err := c.Engage(t.Context(), "no-member", nil); err == nil || len(c.members.of) > 0 || c.source.synced() {
		t.Errorf("an invalid member: %v, engaged %v, synced %v", err, c.members.of, c.source.synced())
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := c.Start(ctx); err != nil || c.members.running != nil {
		t.Errorf("%v, running %v", err, c.members.running)
	}
}
