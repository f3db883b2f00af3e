package publish

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/seal"
)

// followsUnwatched has a follower's Lease written, which is the last thing that a watch shows.
func (w *world) followsUnwatched(namespace string) {
	w.assignFollow(namespace)
	after(second)
	w.member.mu.Lock()
	shown := w.member.leases[keyOf(namespace)].DeepCopy()
	w.member.mu.Unlock()
	w.Observe(shown)
	after(second)
}

// No watch shows what is changed in these tests.
func TestReadingAgainStandsInForAWatch(t *testing.T) {
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
			w.stop()
		},
		"what was deleted is made again": func(w *world) {
			w.start()
			w.followsUnwatched("a")
			w.member.mu.Lock()
			delete(w.member.leases, keyOf("a"))
			w.member.mu.Unlock()
			after(20 * second)
			if _, ok := w.member.has(keyOf("a")); ok {
				w.t.Fatal("it is made again although nobody has looked")
			}
			w.ReadAgain(w.t.Context())
			after(second)
			if _, ok := w.member.has(keyOf("a")); !ok {
				w.t.Error("it stays away")
			}
			w.stop()
		},
		"what is as it should be is not written": func(w *world) {
			w.start()
			w.followsUnwatched("a")
			began := w.member.version
			w.ReadAgain(w.t.Context())
			after(second)
			if w.member.version != began {
				w.t.Error("something was written")
			}
			w.stop()
		},
	})
}

func TestWhichNamespacesMayHaveOurLeases(t *testing.T) {
	unstarted(t, map[string]func(*world){
		"one whose Lease is sealed": func(w *world) {
			w.Observe(w.seen("a", testKey))
			if !w.MayHaveWrittenIn("a") || !slices.Equal(w.MayHaveWritten(), []string{"a"}) {
				w.t.Errorf("%q", w.MayHaveWritten())
			}
		},
		"none whose Lease somebody else has labelled": func(w *world) {
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

func TestWhoMakesHandoversSlowIsTold(t *testing.T) {
	var told []string
	tell := func(name types.NamespacedName, why reason.Reason, _ string) {
		told = append(told, fmt.Sprintf("%s %s", name, why))
	}
	unstarted(t, map[string]func(*world){
		"each reader that did not release a term, up to a few": func(w *world) {
			told, w.TellOfReader = nil, tell
			w.logSilent(keyOf("shop"), []string{"pods/a", "pods/b", "pods/c", "pods/d", "pods/e", "pods/f"})
			if len(told) != mostTold || told[0] != "pods/a ReaderSilent" {
				w.t.Errorf("told of %q", told)
			}
		},
		"that there are too many, also if a watch has shown it": func(w *world) {
			told, w.TellOfReader = nil, tell
			for i := range maxOfAccount + 1 {
				w.ObserveReader(w.register(fmt.Sprintf("r-%d", i), byAccount("a")))
			}
			w.listReaders(w.t.Context())
			if len(told) != 1 || !strings.HasSuffix(told[0], " TooManyReaders") {
				w.t.Errorf("told of %q", told)
			}
		},
		"that there are too many, once": func(w *world) {
			told, w.TellOfReader = nil, tell
			for i := range maxOfAccount + 1 {
				w.register(fmt.Sprintf("r-%d", i), byAccount("a"))
			}
			w.listReaders(w.t.Context())
			w.listReaders(w.t.Context())
			if len(told) != 1 || !strings.HasSuffix(told[0], " TooManyReaders") {
				w.t.Errorf("told of %q", told)
			}
		},
	})
}
