package controller

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
)

// plainManager is one with options of its own.
type plainManager struct{ manager.Manager }

func (plainManager) GetLogger() logr.Logger { return logr.Discard() }
func (plainManager) GetControllerOptions() config.Controller {
	return config.Controller{CacheSyncTimeout: time.Minute}
}

// The priority queue of the manager's defaults may never shut down, and a process may hold several hubs.
func TestTheOptionsOfAController(t *testing.T) {
	o := controllerOptions(plainManager{}, nil, 7)
	if o.MaxConcurrentReconciles != 7 || o.UsePriorityQueue == nil || *o.UsePriorityQueue || o.SkipNameValidation == nil ||
		!*o.SkipNameValidation {
		t.Errorf("%+v", o)
	}
	if o.CacheSyncTimeout != time.Minute {
		t.Error("the options of the manager do not count")
	}
}

// Before a controller has started, nothing needs asking for.
func TestDecisionsAreAskedForOnceAControllerHasStarted(t *testing.T) {
	var w queue
	w.add(shop)
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
	defer q.ShutDown()
	if err := w.source().Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	if q.Len() != 0 {
		t.Error("something is asked for that came before")
	}
	w.add(shop)
	if got := asked(&w); !slices.Equal(got, []string{"fleet/shop"}) {
		t.Errorf("asked for %q", got)
	}
}

// What this tenure has read or written needs no decision. A deletion is always another client's: the hub forgets what
// it deletes.
func TestWhichEventsOfARecordAskForADecision(t *testing.T) {
	for name, test := range map[string]struct {
		own  bool
		gone bool
		asks bool
	}{
		"this tenure has written it":    {own: true},
		"another client has written it": {asks: true},
		"another client has deleted it": {own: true, gone: true, asks: true},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, api := onScene(t)
			later := musterStart
			later.Boot += time.Hour
			c.Clock = fixedClock(later)
			entryOf(t, c, shop)
			o := &v1alpha1.NamespaceLeader{}
			if err := api.Get(t.Context(), shop, o); err != nil {
				t.Fatal(err)
			}
			if !test.own {
				o.ResourceVersion = "another"
			}
			q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
			defer q.ShutDown()
			if h := c.sources.recordChanges(); test.gone {
				h.Delete(t.Context(), event.TypedDeleteEvent[*v1alpha1.NamespaceLeader]{Object: o}, q)
			} else {
				h.Create(t.Context(), event.TypedCreateEvent[*v1alpha1.NamespaceLeader]{Object: o}, q)
				h.Update(t.Context(), event.TypedUpdateEvent[*v1alpha1.NamespaceLeader]{ObjectNew: o}, q)
			}
			var want []string
			if test.asks {
				want = []string{"fleet/shop"}
			}
			if got := asked(&queue{q: q}); !slices.Equal(got, want) {
				t.Errorf("asked for %q, want %q", got, want)
			}
			live := &counting{Reader: api}
			if c.Live = live; entryOf(t, c, shop) == nil || (live.n > 0) != test.asks {
				t.Errorf("the record is read %d times", live.n)
			}
		})
	}
}

func TestWhatIsNoMemberIsNotEngaged(t *testing.T) {
	c := New(Options{Fleet: fleet.New(fleet.Options{})})
	if err := c.Engage(t.Context(), "no-member", nil); err == nil || len(c.members.of) > 0 {
		t.Errorf("%v, engaged %v", err, c.members.of)
	}
}

// A replica that is stopped before all Clusters are known does nothing.
func TestAReplicaThatIsStoppedEarly(t *testing.T) {
	c := New(Options{Fleet: fleet.New(fleet.Options{})})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := c.Start(ctx); err != nil || c.members.running != nil {
		t.Errorf("%v, running %v", err, c.members.running)
	}
}
