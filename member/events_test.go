package member

import (
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Each event comes in a watch from version 10 on, in which this cluster leads by a Lease of version 10.
func TestWhatAWatchSays(t *testing.T) {
	lease := func(version, holder string) func(*testing.T, *handClock) runtime.Object {
		return func(t *testing.T, c *handClock) runtime.Object { return versioned(t, c, version, holder, 8) }
	}
	object := func(o runtime.Object) func(*testing.T, *handClock) runtime.Object {
		return func(*testing.T, *handClock) runtime.Object { return o }
	}
	for name, tc := range map[string]struct {
		kind    watch.EventType
		object  func(*testing.T, *handClock) runtime.Object
		leads   bool
		version uint64
		trouble bool // the watch is over
	}{
		"another cluster leads":             {watch.Modified, lease("11", "them"), false, 11, false},
		"another leads, in a new Lease":     {watch.Added, lease("11", "them"), false, 11, false},
		"this one leads on":                 {watch.Modified, lease("11", "us"), true, 11, false},
		"the Lease is gone":                 {watch.Deleted, lease("11", "us"), false, 11, false},
		"far later":                         {watch.Deleted, lease("1000", "us"), false, 1000, false},
		"what the list shows":               {watch.Modified, lease("10", "them"), true, 10, false},
		"what was before it":                {watch.Deleted, lease("9", "them"), true, 10, false},
		"something without a version":       {watch.Deleted, lease("", "us"), false, 10, false},
		"something with a version of zero":  {watch.Deleted, lease("0", "us"), false, 10, false},
		"an error":                          {watch.Error, object(&metav1.Status{Reason: metav1.StatusReasonExpired}), true, 10, true},
		"something else":                    {watch.Modified, object(&metav1.Status{}), true, 10, true},
		"a bookmark, which nobody asks for": {watch.Bookmark, lease("11", "them"), true, 11, true},
	} {
		t.Run(name, func(t *testing.T) {
			turning(t, func(t *testing.T, w *watched, _ *scripted, c *handClock) {
				w.member.terms.Observe(versioned(t, c, "10", "us", 7))
				if err := w.turn(t.Context()); err != nil {
					t.Fatal(err)
				}
				w.member.terms.Observe(versioned(t, c, "10", "us", 7))
				err := w.take(watch.Event{Type: tc.kind, Object: tc.object(t, c)}, true)
				if (err != nil) != tc.trouble || (w.stream == nil) != tc.trouble || errors.Is(err, errDue) {
					t.Errorf("err = %v, the watch is over = %v, want %v", err, w.stream == nil, tc.trouble)
				}
				if _, leads := w.member.terms.Term("shop"); leads != tc.leads || w.version != tc.version {
					t.Errorf("leads = %v, goes on from %d; want %v from %d", leads, w.version, tc.leads, tc.version)
				}
			})
		})
	}
}

func TestATermShorterThanAnyBeforeHasTheNextTurnComeAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		lasts time.Duration
		none  bool // it does not say
		cut   bool // no connection can be made
		due   bool
	}{
		"longer":                         {lasts: time.Hour},
		"as long":                        {lasts: longestPinged},
		"shorter":                        {lasts: 3 * time.Second, due: true},
		"shorter, and no way to ping so": {lasts: 3 * time.Second, cut: true, due: true},
		"it does not say":                {none: true},
	} {
		t.Run(name, func(t *testing.T) {
			turning(t, func(t *testing.T, w *watched, _ *scripted, c *handClock) {
				if err := w.turn(t.Context()); err != nil {
					t.Fatal(err)
				}
				l := c.leaseOf(t, "shop", "us", 7, tc.lasts+time.Second)
				*l.Spec.LeaseDurationSeconds = int32(tc.lasts / time.Second)
				if tc.none {
					l.Spec.LeaseDurationSeconds = nil
				}
				if tc.cut {
					w.member.link.cut(t)
				}
				err := w.take(watch.Event{Type: watch.Added, Object: l}, true)
				if errors.Is(err, errDue) != tc.due || err != nil != tc.due {
					t.Errorf("err = %v, want the next turn: %v", err, tc.due)
				}
			})
		})
	}
}

func TestAnyEventIsASignOfLife(t *testing.T) {
	turning(t, func(t *testing.T, w *watched, _ *scripted, c *handClock) {
		if err := w.turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.alarm.ring(c.Now().Boot+1, c.Now().Boot+1)
		c.Advance(time.Second)
		if !w.alarm.unheard() {
			t.Fatal("something was heard already")
		}
		if err := w.take(watch.Event{Type: watch.Added, Object: &coordinationv1.Lease{}}, true); err != nil || w.alarm.unheard() {
			t.Errorf("err = %v, unheard = %v", err, w.alarm.unheard())
		}
	})
}
