package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
)

// What a watch shows is this tenure's write if this tenure has read or written that version, in this order.
func TestWhoseWriteAWatchShows(t *testing.T) {
	for name, test := range map[string]struct {
		steps   string // +v: read or written; v: shown by the watch; "-" is a deletion
		foreign bool
	}{
		"nothing yet":   {"", false},
		"this tenure's": {"+1 1", false},
		"its last one, and those between are skipped": {"+1 +2 +3 1 3", false},
		"it once more, after the watch began anew":    {"+1 +2 2 2", false},
		"somebody else's":                             {"+1 1 2", true},
		"this tenure's, before the answer came":       {"+1 1 2 +2", false},
		"somebody else's, and this tenure's after it": {"+1 1 2 3 +3", true},
		"a deletion": {"+1 1 -", true},
		"an old one of this tenure, by a restored hub": {"+1 +2 1 2 1", true},
		"the same, before the answer to the last came": {"+1 +2 2 1 +3", true},
		"one that was forgotten":                       {"+1" + strings.Repeat(" +2", mostVersions) + " 1", true},
	} {
		t.Run(name, func(t *testing.T) {
			var v versions
			for step := range strings.FieldsSeq(test.steps) {
				if version, written := strings.CutPrefix(step, "+"); written {
					v.note(version)
				} else {
					v.show(strings.TrimSuffix(step, "-"))
				}
			}
			if got := v.foreign(); got != test.foreign {
				t.Errorf("somebody else wrote: %v", got)
			}
			if v.foreign() {
				t.Error("it is told twice")
			}
		})
	}
	var v versions
	for i := range 10 * mostVersions {
		v.note(fmt.Sprint("known", i))
		v.show(fmt.Sprint("other", i))
	}
	if len(v.known) != mostVersions || len(v.others) != mostVersions {
		t.Errorf("remembered: %d and %d versions", len(v.known), len(v.others))
	}
}

// counting counts the live reads of a record.
type counting struct {
	client.Reader
	n int
}

func (c *counting) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, ok := o.(*v1alpha1.NamespaceLeader); ok {
		c.n++
	}
	return c.Reader.Get(ctx, key, o, opts...)
}

// A record is read live once. After that it is what this tenure wrote last, until somebody else writes it.
func TestARecordIsReadLiveOnceAndAfterSomebodyElseWroteIt(t *testing.T) {
	c, s, api := onScene(t)
	c.Tenure = succeeding(t, musterStart, 6*time.Second, -time.Hour)
	live := &counting{Reader: api}
	c.live = live
	look := func(why string, reads int) *view {
		t.Helper()
		live.n = 0
		v, err := c.gather(t.Context(), shop)
		if err != nil {
			t.Fatal(err)
		}
		if live.n != reads {
			t.Errorf("%s: %d live reads, want %d", why, live.n, reads)
		}
		return v
	}
	look("while an earlier tenure may write", 1)
	look("still", 1)
	later := musterStart
	later.Boot += time.Hour
	c.Clock = fixedClock(later)
	look("once", 1)
	v := look("and not again", 0)

	r := v.state.Record
	r.Next = "west"
	if err := c.persist(t.Context(), v, election.Decision{Record: r, Persist: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.explain(t.Context(), v, v1alpha1.NamespaceLeaderStatus{Message: "new"}); err != nil {
		t.Fatal(err)
	}
	o := &v1alpha1.NamespaceLeader{}
	if err := api.Get(t.Context(), shop, o); err != nil {
		t.Fatal(err)
	}
	if c.recordShown(shop, o.ResourceVersion) {
		t.Error("its own write is news")
	}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
	defer q.ShutDown()
	if c.recordEvents().Update(t.Context(), event.TypedUpdateEvent[*v1alpha1.NamespaceLeader]{ObjectNew: o}, q); q.Len() > 0 {
		t.Error("its own write asks for a decision")
	}
	if v := look("what this tenure wrote itself", 0); v.found.Next != "west" || v.object.ResourceVersion != o.ResourceVersion {
		t.Errorf("it is version %s, next %q", v.object.ResourceVersion, v.found.Next)
	}

	restated(t, api, func(o *v1alpha1.NamespaceLeader) { o.Spec.Next = "nobody" })
	look("before the watch shows it", 0)
	if !c.recordShown(shop, "elsewhere") {
		t.Error("somebody else's write is no news")
	}
	o.ResourceVersion = "after that"
	if c.recordEvents().Update(t.Context(), event.TypedUpdateEvent[*v1alpha1.NamespaceLeader]{ObjectNew: o}, q); q.Len() != 1 {
		t.Error("somebody else's write asks for no decision")
	}
	if v := look("after it", 1); !v.edited {
		t.Error("it passes for this tenure's")
	}
	// A write that meets somebody else's, before the watch has shown that one, has the record read again.
	c.client = api
	if _, err := c.reconcileNamespace(t.Context(), aboutShop); err != nil {
		t.Fatal(err)
	}
	look("what was put right", 0)
	s.shown[0].Priority = 5
	c.client = &writes{Client: api, answer: apierrors.NewConflict(recordResource, "shop", errRefused)}
	if _, err := c.reconcileNamespace(t.Context(), aboutShop); err != nil {
		t.Fatal(err)
	}
	c.client = api
	look("after a conflict", 1)
	look("once", 0)
	c.client = &writes{Client: api, answer: errRefused}
	if _, err := c.reconcileNamespace(t.Context(), aboutShop); err == nil {
		t.Fatal("a write that fails is no error")
	}
	look("after a failure", 1)
}
