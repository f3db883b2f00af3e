package fairqueue

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// asking names a namespace like <recorded or new>-<policy>-<member>-<number>, which is the lane that it waits in.
func asking(name string) mcreconcile.Request {
	return mcreconcile.Request{Request: reconcile.Request{
		NamespacedName: types.NamespacedName{Namespace: "fleet", Name: name},
	}}
}

func laneByName(key types.NamespacedName) (Lane, bool) {
	parts := strings.Split(key.Name, "-")
	return Lane{key.Namespace, parts[1], parts[2]}, parts[0] == "recorded"
}

func many(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%d", prefix, i))
	}
	return names
}

// A flood of one policy and member delays no other one, and nothing starves.
func TestDecisionsAreMadeInTurn(t *testing.T) {
	for name, test := range map[string]struct {
		asked []string
		first []string // in this order
	}{
		"one lane: as they were asked for": {many("new-shops-far", 3), many("new-shops-far", 3)},
		"another policy comes second, though it came last": {
			append(many("new-shops-far", 1000), "new-desks-far-0"), []string{
				"new-shops-far-0", "new-desks-far-0", "new-shops-far-1",
			},
		},
		"so does another member of the same policy": {
			append(many("new-shops-far", 1000), "new-shops-near-0"), []string{
				"new-shops-far-0", "new-shops-near-0", "new-shops-far-1",
			},
		},
		"what has a record comes before what has none": {
			append(many("new-shops-far", 3), "recorded-desks--0"), []string{"recorded-desks--0", "new-shops-far-0"},
		},
		"but every eighth has none": {
			append(many("recorded-shops-far", 1000), "new-desks--0", "new-desks--1", "recorded-desks--0"),
			[]string{
				"recorded-shops-far-0", "recorded-desks--0", "recorded-shops-far-1", "recorded-shops-far-2", "recorded-shops-far-3",
				"recorded-shops-far-4", "recorded-shops-far-5", "new-desks--0", "recorded-shops-far-6",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := New(laneByName)("", workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
			defer q.ShutDown()
			for _, asked := range test.asked {
				q.Add(asking(asked))
			}
			var got []string
			for range test.asked {
				r, _ := q.Get()
				got = append(got, r.Name)
				q.Done(r)
			}
			if !slices.Equal(got[:len(test.first)], test.first) {
				t.Errorf("in this order: %q, want %q", got[:len(test.first)], test.first)
			}
			if slices.Sort(got); len(slices.Compact(got)) != len(test.asked) || q.Len() != 0 {
				t.Errorf("%d of %d were made, and %d wait", len(got), len(test.asked), q.Len())
			}
		})
	}
}
