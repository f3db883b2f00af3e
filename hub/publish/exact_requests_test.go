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

func TestReadAll(t *testing.T) {
	bubble(t, map[string]func(*world){
		"asks for an answer within 1, 2, 4, 8 and 15 s": func(w *world) {
			var asked metav1.ListOptions
			w.Client = asking{asked: &asked}
			for _, want := range []int64{1, 2, 4, 8, 15, 15} {
				if w.ReadAll(w.t.Context()); asked.TimeoutSeconds == nil || *asked.TimeoutSeconds != want {
					w.t.Errorf("asked %v, want %d s", asked.TimeoutSeconds, want)
				}
			}
		},
		"records when it was sent": func(w *world) {
			after(100 * second)
			w.member.becomes(nil, func(context.Context, request) error { after(second / 2); return nil })
			if !w.ReadAll(w.t.Context()) || w.Initial().At != 100*second {
				w.t.Errorf("found %+v", w.Initial())
			}
		},
		"reports a success": func(w *world) {
			if !w.ReadAll(w.t.Context()) || !slices.Equal(w.reports, []error{nil}) {
				w.t.Errorf("reported: %v", w.reports)
			}
		},
		"reports a failure": func(w *world) {
			w.member.becomes(reset, nil)
			if w.ReadAll(w.t.Context()) || len(w.reports) != 1 || w.reports[0] == nil {
				w.t.Errorf("reported: %v", w.reports)
			}
		},
		"reports nothing if the hub stops": func(w *world) {
			ctx, cancel := context.WithCancel(w.t.Context())
			cancel()
			w.member.becomes(swallow, nil)
			if w.ReadAll(ctx) || len(w.reports) != 0 {
				w.t.Errorf("reported: %v", w.reports)
			}
		},
		"counts if it is answered while the hub stops": func(w *world) {
			ctx, cancel := context.WithCancel(w.t.Context())
			w.member.becomes(nil, func(context.Context, request) error { cancel(); return nil })
			if !w.ReadAll(ctx) || !w.Initial().Read {
				w.t.Error("the answer is lost")
			}
		},
	})
}

func TestRequests(t *testing.T) {
	type report struct{ write bool }
	bubble(t, map[string]func(*world){
		"reads and writes are reported as such": func(w *world) {
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
		"an answer while the hub stops is reported": func(w *world) {
			ctx, cancel := context.WithCancel(w.t.Context())
			w.member.becomes(nil, func(context.Context, request) error { cancel(); return nil })
			w.Assign(keyOf("a"), assign.Assignment{Role: assign.Follow, Term: term("west", 20)}, testTimings)
			w.seen("a", testKey)
			w.Work(ctx, keyOf("a"))
			if !slices.Equal(w.reports, []error{nil}) {
				w.t.Errorf("reported: %v", w.reports)
			}
		},
		"a request without a policy is bounded": func(w *world) {
			w.member.becomes(swallow, nil)
			began := time.Now()
			if _, err := w.send(w.t.Context(), keyOf("a"), step{action: read}, 0); err == nil ||
				time.Since(began) != listTimeout {
				w.t.Errorf("after %v: %v", time.Since(began), err)
			}
		},
	})
}
