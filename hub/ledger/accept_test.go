package ledger

import (
	"strconv"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// recordOf is a record of east in an epoch, as one object.
func recordOf(epoch int64, uid types.UID) *v1alpha1.NamespaceLeader {
	o := NewRecord(shop)
	o.UID, o.Spec = uid, *specOf(epoch, "this")
	return o
}

// Rule 7: the epoch of a record never falls.
func TestOlderRecordIsRestored(t *testing.T) {
	first, second := types.UID("first"), types.UID("second")
	known := recordOf(20, first)
	next := recordOf(20, first)
	next.Spec.Next = "west"
	nextAgain := next.DeepCopy()
	nextAgain.UID = second
	ahead := recordOf(1e9, first)
	for name, test := range map[string]struct {
		known, found *v1alpha1.NamespaceLeader
		restored     bool
		epoch        int64
		next         string
	}{
		"as it was written":                          {known, recordOf(20, first), false, 20, ""},
		"as an earlier write of this tenure left it": {known, next, false, 20, "west"},
		"as a later tenure wrote it":                 {known, recordOf(21, first), false, 21, ""},
		"deleted":                                    {known, nil, true, 20, ""},
		"created again in an older epoch":            {known, recordOf(19, second), true, 20, ""},
		"created again in the same epoch":            {known, nextAgain, true, 20, ""},
		"created again as it was":                    {known, recordOf(20, second), false, 20, ""},
		"created again in a newer epoch":             {known, recordOf(21, second), false, 21, ""},
		"older, from a backup of etcd":               {known, recordOf(19, first), true, 20, ""},
		"there is none, and there was none":          {nil, nil, false, 0, ""},
		"deleted, of a clock that was ahead":         {ahead, nil, false, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l, api := newTestLedger(t, nil)
			if test.found != nil {
				musttest.Do(t, api.Create(t.Context(), test.found))
			}
			e, _ := l.entry(shop)
			e.known, e.recheck = test.known, true
			e = take(t, l)
			if e.Restored != test.restored || e.Record.Epoch != test.epoch || e.Record.Next != test.next {
				t.Fatalf("restored %v, record %+v", e.Restored, e.Record)
			}
			if take(t, l).Restored != test.restored {
				t.Error("what cannot be restored yet is not read again")
			}
			if written, err := l.Write(t.Context(), e, Change{Record: e.Record}); err != nil || written != test.restored {
				t.Errorf("written %v, %v", written, err)
			}
			if test.epoch > 0 && stored(t, api).Spec.Epoch != test.epoch {
				t.Errorf("stored: %+v", stored(t, api).Spec)
			}
			if take(t, l).Restored {
				t.Error("it is restored again")
			}
		})
	}
}

func TestRecordOfAnotherHubIsReadForEveryDecision(t *testing.T) {
	l, api := newTestLedger(t, specOf(20, "this"))
	take(t, l)
	live := &reading{Reader: api}
	l.Live = live
	edit(t, l, api, func(s *v1alpha1.NamespaceLeaderSpec) { s.Hub, s.Leader, s.Epoch = "another", "west", 19 })
	for i := range 2 {
		e := take(t, l)
		if !e.Moved || e.Restored || e.Record.Leader != "west" || live.n != i+1 {
			t.Errorf("moved %v, restored %v, led by %s after %d reads", e.Moved, e.Restored, e.Record.Leader, live.n)
		}
		musttest.Do(t, l.WriteStatus(t.Context(), e, v1alpha1.NamespaceLeaderStatus{Message: strconv.Itoa(i)}))
	}
	for mark, want := range map[string]bool{"": false, "this": false, v1alpha1.NoHub: true} {
		edit(t, l, api, func(s *v1alpha1.NamespaceLeaderSpec) { s.Hub = mark })
		if e := take(t, l); e.Moved != want {
			t.Errorf("the mark %q: moved %v, want %v", mark, e.Moved, want)
		}
	}
	remove(t, l, api)
	l.entries[shop].known = nil // another hub's record is not remembered
	if e := take(t, l); e.Restored {
		t.Error("another hub's record is restored")
	}
}

// A write without an answer may have been applied. Restoring the known record would take back a grant by which Leases
// are written.
func TestWriteWithoutAnAnswerIsAccepted(t *testing.T) {
	timeout := apierrors.NewTimeoutError("etcdserver: request timed out", 0)
	for name, test := range map[string]struct {
		deleted, refuses bool
		answer           error
		want             int64
		restored         bool
	}{
		"an update that was applied":      {answer: timeout, want: 21},
		"an update that was not applied":  {answer: timeout, refuses: true, want: 20},
		"a creation that was applied":     {deleted: true, answer: timeout, want: 21},
		"a creation that was not applied": {deleted: true, answer: timeout, refuses: true},
		"another client's creation before": {
			deleted: true, answer: apierrors.NewAlreadyExists(records, "shop"), refuses: true, want: 20, restored: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, api := newTestLedger(t, specOf(20, "this"))
			e := take(t, l)
			if test.deleted {
				remove(t, l, api)
				e = take(t, l)
			}
			l.Client = &answering{Client: api, answer: test.answer, refuses: test.refuses}
			if _, err := l.Write(t.Context(), e, Change{Record: eastLeads(21), Persist: true}); err == nil {
				t.Fatal("the write is answered")
			}
			e.Recheck()
			if e = take(t, l); e.Record.Epoch != test.want || e.Restored != test.restored {
				t.Errorf("epoch %d, restored %v; want %d, %v", e.Record.Epoch, e.Restored, test.want, test.restored)
			}
		})
	}
}

// A watch shows versions in order, and may be faster than the answer to a write.
func TestWatchShowsWhetherAnotherClientWrote(t *testing.T) {
	for name, test := range map[string]struct {
		seen  seen
		newer bool
	}{
		"this tenure's of before":          {seen{known: "10", shown: "9"}, false},
		"one, and the record was not read": {seen{shown: "9"}, true},
		"one that is no number":            {seen{known: "9", shown: "v9"}, true},
	} {
		if got := test.seen.isNewer(); got != test.newer {
			t.Errorf("%s: newer %v", name, got)
		}
	}
}
