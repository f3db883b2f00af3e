package controller

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
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
	if o.MaxConcurrentReconciles != 7 || o.UsePriorityQueue == nil || *o.UsePriorityQueue || o.SkipNameValidation == nil || !*o.SkipNameValidation {
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

// What this tenure has read or written needs no decision. A deletion is always somebody else's: it forgets what it deletes.
func TestWhichEventsOfARecordAskForADecision(t *testing.T) {
	type records = handler.TypedEventHandler[*v1alpha1.NamespaceLeader, mcreconcile.Request]
	type requests = workqueue.TypedRateLimitingInterface[mcreconcile.Request]
	created := func(h records, o *v1alpha1.NamespaceLeader, q requests) {
		h.Create(t.Context(), event.TypedCreateEvent[*v1alpha1.NamespaceLeader]{Object: o}, q)
	}
	updated := func(h records, o *v1alpha1.NamespaceLeader, q requests) {
		h.Update(t.Context(), event.TypedUpdateEvent[*v1alpha1.NamespaceLeader]{ObjectOld: &v1alpha1.NamespaceLeader{}, ObjectNew: o}, q)
	}
	deleted := func(h records, o *v1alpha1.NamespaceLeader, q requests) {
		h.Delete(t.Context(), event.TypedDeleteEvent[*v1alpha1.NamespaceLeader]{Object: o}, q)
	}
	const own, foreign = "7", "8"
	for name, test := range map[string]struct {
		shows   func(records, *v1alpha1.NamespaceLeader, requests)
		version string
		asks    bool
	}{
		"this tenure has made it":          {created, own, false},
		"somebody else has made it":        {created, foreign, true},
		"this tenure has written it":       {updated, own, false},
		"somebody else has written it":     {updated, foreign, true},
		"somebody else has deleted it":     {deleted, own, true},
		"it was deleted as nobody knew it": {deleted, foreign, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Options{})
			c.namespace(shop).versions.note(own)
			q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
			defer q.ShutDown()
			test.shows(c.recordEvents(), &v1alpha1.NamespaceLeader{
				ObjectMeta: metav1.ObjectMeta{Namespace: shop.Namespace, Name: shop.Name, ResourceVersion: test.version},
			}, q)
			var want []string
			if test.asks {
				want = []string{"fleet/shop"}
			}
			if got := asked(&queue{q: q}); !slices.Equal(got, want) {
				t.Errorf("asked for %q, want %q", got, want)
			}
			if looks := c.recall(shop).versions.foreign(); looks != test.asks {
				t.Errorf("the record is read again: %v, want %v", looks, test.asks)
			}
		})
	}
}

func TestWhatIsNoMemberIsNotEngaged(t *testing.T) {
	c := New(Options{Fleet: fleet.New(fleet.Options{})})
	if err := c.Engage(t.Context(), "no-member", nil); err == nil || len(c.members) > 0 {
		t.Errorf("%v, engaged %v", err, c.members)
	}
}

// A replica that is stopped before all Clusters are known does nothing.
func TestAReplicaThatIsStoppedEarly(t *testing.T) {
	c := New(Options{Fleet: fleet.New(fleet.Options{})})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := c.Start(ctx); err != nil || c.running != nil {
		t.Errorf("%v, running %v", err, c.running)
	}
}
