package publish

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/seal"
)

// followsUnwatched has a follower's Lease written, which is the last thing that a watch shows.
func (w *world) followsUnwatched(namespace string) {
	w.assignFollow(namespace)
	after(second)
	w.Observe(w.member.lease(keyOf(namespace)))
	after(second)
}

// No watch shows the changes in these tests.
func TestReadAgainReplacesAWatch(t *testing.T) {
	bubble(t, map[string]func(*world){
		"an edit is repaired": func(w *world) {
			w.start()
			w.followsUnwatched("a")
			c, _ := w.member.has(keyOf("a"))
			c.Holder = "somebody"
			w.member.put(c, testKey)
			after(20 * second)
			if c, _ := w.member.has(keyOf("a")); c.Holder != "somebody" {
				w.t.Fatal("it is repaired although nobody has looked")
			}
			w.ReadAgain(w.t.Context())
			after(second)
			if c, _ := w.member.has(keyOf("a")); c.Holder == "somebody" {
				w.t.Error("the edit stays")
			}
		},
		"a deleted Lease is created again": func(w *world) {
			w.start()
			w.followsUnwatched("a")
			w.member.delete(keyOf("a"))
			after(20 * second)
			if _, ok := w.member.has(keyOf("a")); ok {
				w.t.Fatal("it is made again although nobody has looked")
			}
			w.ReadAgain(w.t.Context())
			after(second)
			if _, ok := w.member.has(keyOf("a")); !ok {
				w.t.Error("it stays away")
			}
		},
		"a Lease that is in place is not written": func(w *world) {
			w.start()
			w.followsUnwatched("a")
			began := w.member.version
			w.ReadAgain(w.t.Context())
			after(second)
			if w.member.version != began {
				w.t.Error("something was written")
			}
		},
	})
}

func TestMayHaveWritten(t *testing.T) {
	bubble(t, map[string]func(*world){
		"one with a sealed Lease": func(w *world) {
			w.Observe(w.seen("a", testKey))
			if !w.MayHaveWrittenIn("a") || !slices.Equal(w.MayHaveWritten(), []string{"a"}) {
				w.t.Errorf("%q", w.MayHaveWritten())
			}
		},
		"not one whose Lease another client has labelled": func(w *world) {
			w.Observe(w.seen("a", seal.Key("another")))
			if w.MayHaveWrittenIn("a") || len(w.MayHaveWritten()) > 0 {
				w.t.Errorf("%q", w.MayHaveWritten())
			}
		},
		"one whose Lease was not read yet": func(w *world) {
			w.assignFollow("a")
			if !w.MayHaveWrittenIn("a") || w.MayHaveWrittenIn("b") {
				w.t.Errorf("%q", w.MayHaveWritten())
			}
		},
	})
}

func TestSlowReadersAreReported(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(*world)
		want []string
	}{
		"readers that did not release a term, up to a few": {func(w *world) {
			w.logSilent(keyOf("shop"), []string{"pods/a", "pods/b", "pods/c", "pods/d", "pods/e", "pods/f"})
		}, []string{
			"pods/a ReaderSilent", "pods/b ReaderSilent", "pods/c ReaderSilent", "pods/d ReaderSilent", "pods/e ReaderSilent",
		}},
		"too many registrations, shown by a watch": {func(w *world) {
			for i := range maxOfAccount + 1 {
				w.ObserveReader(w.register(fmt.Sprintf("r-%d", i), byAccount("a")))
			}
			w.listReaders(w.t.Context())
		}, []string{"/ TooManyReaders"}},
		"too many registrations, listed twice": {func(w *world) {
			for i := range maxOfAccount + 1 {
				w.register(fmt.Sprintf("r-%d", i), byAccount("a"))
			}
			w.listReaders(w.t.Context())
			w.listReaders(w.t.Context())
		}, []string{"/ TooManyReaders"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				var got []string
				w.TellOfReader = func(name types.NamespacedName, why reason.Reason, _ string) {
					got = append(got, fmt.Sprintf("%s %s", name, why))
				}
				if test.do(w); !slices.Equal(got, test.want) {
					w.t.Errorf("reported: %q, want %q", got, test.want)
				}
			})
		})
	}
}
