package publish

import (
	"testing"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/assign"
)

func TestForget(t *testing.T) {
	bubble(t, map[string]func(*world){
		"a Lease: only once it is removed": func(w *world) {
			w.start()
			w.assignFollow("a")
			w.assignFollow("b")
			after(0)
			w.Forget("a")
			if len(w.syncers) != 2 {
				w.t.Error("a Lease that stands was forgotten")
			}
			w.member.becomes(slow, nil)
			w.Assign(keyOf("a"), assign.Assignment{Role: assign.Absent}, testTimings)
			after(0)
			w.Forget("a")
			if len(w.syncers) != 2 {
				w.t.Error("a Lease was forgotten before it was removed")
			}
			after(second)
			w.Forget("a")
			if w.syncers.find(keyOf("a")) != nil || len(w.syncers) != 1 {
				w.t.Errorf("%d syncers are left", len(w.syncers))
			}
		},
		"a Lease found at the start: dropped from Initial": func(w *world) {
			for _, ns := range []string{"a", "b"} {
				w.member.put(contentOf(renewedAt(0, term("east", 20)), func(c *lease.Content) { c.Namespace = ns }), testKey)
			}
			w.start()
			found := w.Initial().Leases
			w.Forget("a")
			if left := w.Initial(); !left.Read || len(left.Leases) != 1 || left.Leases[0].Namespace != "b" {
				w.t.Errorf("%+v is left", left)
			}
			if len(found) != 2 || found[0].Namespace == found[1].Namespace {
				w.t.Errorf("what was asked for before has changed: %+v", found)
			}
		},
		"no Lease, held: forgotten once that is known": func(w *world) {
			w.start()
			w.Assign(keyOf("a"), assign.Assignment{Role: assign.Hold, Term: term("east", 20)}, testTimings)
			if len(w.syncers) != 0 {
				w.t.Error("there is a syncer for what is not there")
			}
			w.assignFollow("a") // it finds out that there is nothing
			after(0)
			w.Assign(keyOf("a"), assign.Assignment{Role: assign.Absent}, testTimings)
			after(0)
			w.Assign(keyOf("a"), assign.Assignment{Role: assign.Hold, Term: term("east", 30)}, testTimings)
			w.Forget("a")
			if len(w.syncers) != 0 {
				w.t.Errorf("%d syncers are left", len(w.syncers))
			}
		},
	})
}
