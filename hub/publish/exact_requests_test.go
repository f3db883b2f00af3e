package publish

import (
	"context"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/assign"
)

// asking takes down what is asked of a list.
type asking struct {
	coordinationclient.LeaseInterface
	asked *metav1.ListOptions
}

func (l asking) Leases(string) coordinationclient.LeaseInterface { return l }

func (l asking) List(_ context.Context, o metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	*l.asked = o
	return &coordinationv1.LeaseList{}, nil
}

func TestTheFirstRead(t *testing.T) {
	unstarted(t, map[string]func(*world){
		"tells the member for how long it is waited for": func(w *world) {
			var asked metav1.ListOptions
			w.Client = asking{asked: &asked}
			for _, want := range []int64{1, 2, 4, 8, 15, 15} {
				if w.ReadAll(w.t.Context()); asked.TimeoutSeconds == nil || *asked.TimeoutSeconds != want {
					w.t.Errorf("asked %v, want %d s", asked.TimeoutSeconds, want)
				}
			}
		},
		"says when it was begun": func(w *world) {
			after(100 * second)
			w.member.becomes(nil, func(context.Context, request) error { after(second / 2); return nil })
			if !w.ReadAll(w.t.Context()) || w.Initial().At != 100*second {
				w.t.Errorf("found %+v", w.Initial())
			}
		},
		"is reported, if it succeeds": func(w *world) {
			if !w.ReadAll(w.t.Context()) || !slices.Equal(w.reports, []error{nil}) {
				w.t.Errorf("reported: %v", w.reports)
			}
		},
		"and if it fails": func(w *world) {
			w.member.becomes(reset, nil)
			if w.ReadAll(w.t.Context()) || len(w.reports) != 1 || w.reports[0] == nil {
				w.t.Errorf("reported: %v", w.reports)
			}
		},
		"says nothing of the member if the hub cuts it off": func(w *world) {
			ctx, cancel := context.WithCancel(w.t.Context())
			cancel()
			w.member.becomes(swallow, nil)
			if w.ReadAll(ctx) || len(w.reports) != 0 {
				w.t.Errorf("reported: %v", w.reports)
			}
		},
		"counts if it is answered as the hub stops": func(w *world) {
			ctx, cancel := context.WithCancel(w.t.Context())
			w.member.becomes(nil, func(context.Context, request) error { cancel(); return nil })
			if !w.ReadAll(ctx) || !w.Initial().Read {
				w.t.Error("the answer is lost")
			}
		},
		"begins the time in which readers are not believed": func(w *world) {
			after(100 * second)
			w.register("r", released("a", 20))
			w.ledFor(15 * second)
			w.revoke()
			after(second)
			w.isReleased(false)
			w.stop()
		},
	})
}

func TestRequests(t *testing.T) {
	type report struct{ write bool }
	unstarted(t, map[string]func(*world){
		"are reported as what they are": func(w *world) {
			var got []report
			w.Report = func(write bool, _ lease.Reading, _ error) { got = append(got, report{write}) }
			w.ReadAll(w.t.Context())
			w.listReaders(w.t.Context())
			w.assignFollow("a")
			w.Work(w.t.Context(), keyOf("a"))
			if want := []report{{false}, {false}, {false}, {true}}; !slices.Equal(got, want) {
				w.t.Errorf("reported: %v, want %v", got, want)
			}
		},
		"that are answered as the hub stops are reported, too": func(w *world) {
			ctx, cancel := context.WithCancel(w.t.Context())
			w.member.becomes(nil, func(context.Context, request) error { cancel(); return nil })
			w.Assign(keyOf("a"), assign.Assignment{Role: assign.Follow, Term: term("west", 20)}, testTimings)
			w.seen("a", testKey)
			w.Work(ctx, keyOf("a"))
			if !slices.Equal(w.reports, []error{nil}) {
				w.t.Errorf("reported: %v", w.reports)
			}
		},
		"without a policy have their bound, too": func(w *world) {
			w.member.becomes(swallow, nil)
			began := time.Now()
			if _, err := w.send(w.t.Context(), keyOf("a"), step{action: read}, 0); err == nil || time.Since(began) != listTimeout {
				w.t.Errorf("after %v: %v", time.Since(began), err)
			}
		},
		"that remove a Lease may fail": func(w *world) {
			obj := w.seen("a", testKey)
			w.refuses("delete")
			if _, err := w.send(w.t.Context(), keyOf("a"), step{action: remove, lease: obj}, second); err == nil {
				w.t.Error("it is taken for removed")
			}
		},
		"are none where a step asks for none": func(w *world) {
			if _, err := w.send(w.t.Context(), keyOf("a"), step{}, second); err == nil || len(w.member.requests) > 0 {
				w.t.Errorf("sent %v: %v", w.member.requests, err)
			}
		},
	})
}
