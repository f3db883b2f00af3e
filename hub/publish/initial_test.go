package publish

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/seal"
)

// What a Publisher reads at the start of a tenure.
func TestInitial(t *testing.T) {
	bubble(t, map[string]func(*world){
		"returns all sealed Leases": func(w *world) {
			w.member.put(contentOf(renewedAt(0, term("east", 20)), func(c *lease.Content) { c.Namespace = "sealed" }), testKey)
			w.member.put(contentOf(renewedAt(0, term("east", 20)), func(c *lease.Content) { c.Namespace = "forged" }),
				seal.Key("another key"))
			if w.Initial().Read {
				w.t.Error("it claims to have been read before it was")
			}
			w.start()
			if got := w.Initial(); !got.Read || len(got.Leases) != 1 || got.Leases[0].Namespace != "sealed" {
				w.t.Errorf("found %+v", got)
			}
			if got := w.Leases(); len(got) != 2 {
				w.t.Errorf("Leases: %v", got)
			}
			if got := w.LeasesIn("forged"); len(got) != 1 || got[0] != keyOf("forged") {
				w.t.Errorf("Leases of one namespace: %v", got)
			}
		},
		"reports another hub before any assignment": func(w *world) {
			w.member.put(contentOf(renewedAt(0, term("east", 20)),
				func(c *lease.Content) { c.Namespace, c.Hub = "a", "another" }), seal.Key("another key"))
			w.start()
			if got := w.SyncStatus(keyOf("a")); got.Problem != reason.OtherHub {
				w.t.Errorf("facts: %+v", got)
			}
		},
		"reports another hub until its Lease is deleted": func(w *world) {
			w.member.put(contentOf(renewedAt(0, term("east", 20)),
				func(c *lease.Content) { c.Namespace, c.Hub = "a", "another" }), seal.Key("another key"))
			w.start()
			w.Assign(keyOf("a"), assign.Assignment{Role: assign.Hold}, testTimings)
			after(time.Minute)
			if _, _, there := w.Find(keyOf("a")); !there || count(w.member.requests, "get") > 0 {
				w.t.Errorf("it is there: %v; requests %v", there, w.member.requests)
			}
			obj, err := w.member.Leases("a").Get(w.t.Context(), "leasecast", metav1.GetOptions{})
			if err == nil {
				err = w.member.Leases("a").Delete(w.t.Context(), "leasecast", metav1.DeleteOptions{
					Preconditions: &metav1.Preconditions{UID: &obj.UID, ResourceVersion: &obj.ResourceVersion},
				})
			}
			if err != nil {
				w.t.Fatal(err)
			}
			w.ObserveGone(keyOf("a"))
			after(0)
			if _, _, there := w.Find(keyOf("a")); there || w.SyncStatus(keyOf("a")).Problem != "" {
				w.t.Errorf("it is still there: %v, facts %+v", there, w.SyncStatus(keyOf("a")))
			}
		},
		"is retried until the member answers": func(w *world) {
			w.member.becomes(reset, nil)
			w.assignFollow("a")
			w.start()
			after(5 * second)
			if w.Initial().Read || count(w.member.requests, "create") > 0 {
				w.t.Error("it went on without an answer")
			}
			w.member.becomes(nil, nil)
			after(second)
			if !w.Initial().Read || count(w.member.requests, "create") != 1 {
				w.t.Error("it did not go on after the answer")
			}
		},
		"is retried soon if the first answer is lost": func(w *world) {
			w.member.becomes(nil, swallow)
			w.start()
			after(second)
			w.member.becomes(nil, nil)
			after(3 * second)
			if !w.Initial().Read {
				w.t.Error("it waits for an answer that will never come")
			}
		},
		"waits for a slow member": func(w *world) {
			w.member.becomes(nil, func(ctx context.Context, _ request) error {
				select {
				case <-time.After(14 * second):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			w.start()
			after(time.Minute)
			if !w.Initial().Read {
				w.t.Error("a member was given too little time to answer")
			}
		},
	})
}
