package ledger

import (
	"context"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

func TestEditByNoHubHasNoEffect(t *testing.T) {
	west := specOf(20, "this")
	west.Leader = "west"
	for name, test := range map[string]struct {
		known, found                *v1alpha1.NamespaceLeaderSpec
		deposed                     bool // another replica is elected
		leader                      string
		edited, vanished, uncertain bool
	}{
		"as it was written":                     {known: specOf(20, "this"), found: specOf(20, "this"), leader: "east"},
		"as it was written, but without a mark": {known: specOf(20, "this"), found: specOf(20, ""), leader: "east"},
		"as it was written, and deposed": {
			known: specOf(20, "this"), found: specOf(20, "this"), deposed: true, leader: "east",
		},
		"edited": {known: specOf(20, "this"), found: west, leader: "east", edited: true},
		"edited, or written by a later tenure": {
			known: specOf(20, "this"), found: west, deposed: true, leader: "west", uncertain: true,
		},
		"deleted":                                {known: specOf(20, "this"), leader: "east", edited: true, vanished: true},
		"deleted, or by a later tenure":          {known: specOf(20, "this"), deposed: true, uncertain: true},
		"found for the first time":               {found: west, leader: "west"},
		"found for the first time, and deposed":  {found: west, deposed: true, leader: "west"},
		"there is none, and there was none then": {},
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := newTestLedger(t, test.found)
			l.Elected = func(context.Context) bool { return !test.deposed }
			if test.known != nil {
				l.entry(shop).known = &v1alpha1.NamespaceLeader{Spec: *test.known}
			}
			e := take(t, l)
			if e.Record.Leader != test.leader || e.Edited != test.edited || e.Vanished != test.vanished {
				t.Errorf("led by %q, edited %v, vanished %v", e.Record.Leader, e.Edited, e.Vanished)
			}
			if e.Deposed != test.uncertain {
				t.Errorf("the replica may be deposed: %v, want %v", e.Deposed, test.uncertain)
			}
			if known := e.known != nil; known != (test.known != nil || test.found != nil) {
				t.Errorf("it is known: %v", known)
			}
			if test.vanished && (e.Object.Name != "shop" || e.Object.Spec.Leader != "east") {
				t.Errorf("the record in its place: %+v", e.Object)
			}
		})
	}
}

func TestRecordOfAnotherHubIsReadForEveryDecision(t *testing.T) {
	l, api := newTestLedger(t, specOf(20, "this"))
	take(t, l)
	live := &reading{Reader: api}
	l.Live = live
	edit(t, l, api, func(s *v1alpha1.NamespaceLeaderSpec) { s.Hub, s.Leader, s.Epoch = "another", "west", 21 })
	for i := range 2 {
		e := take(t, l)
		if !e.Moved || e.Edited || e.Record.Leader != "west" || live.n != i+1 {
			t.Errorf("moved %v, edited %v, led by %s after %d reads", e.Moved, e.Edited, e.Record.Leader, live.n)
		}
		if err := l.WriteStatus(t.Context(), e, v1alpha1.NamespaceLeaderStatus{Message: strconv.Itoa(i)}); err != nil {
			t.Fatal(err)
		}
	}
	for mark, want := range map[string]bool{"": false, "this": false, v1alpha1.NoHub: true} {
		edit(t, l, api, func(s *v1alpha1.NamespaceLeaderSpec) { s.Hub = mark })
		if e := take(t, l); e.Moved != want {
			t.Errorf("the mark %q: moved %v, want %v", mark, e.Moved, want)
		}
	}
}

// A change by an earlier tenure would look like an edit.
func TestRecordIsReadLiveUntilEarlierTenuresHaveEnded(t *testing.T) {
	l, api := newTestLedger(t, specOf(20, "this"))
	settles := l.Tenure.EarlierEndIn(start, time.Second)
	if settles <= 0 {
		t.Fatal("there is nothing to settle")
	}
	o := stored(t, api)
	o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "leasecast-hub"}}
	l.Clock = after(settles - 1)
	if e := take(t, l); e.known != nil {
		t.Error("it is known too early")
	}
	l.Clock = after(settles)
	e := take(t, l)
	if e.known == nil || !e.current {
		t.Fatal("it is not known")
	}
	if l.remember(e, o, l.Clock.Now()); len(e.known.ManagedFields) > 0 {
		t.Errorf("managedFields are kept for each record: %v", e.known.ManagedFields)
	}
}

// A write without an answer may be applied, until one that was sent later has been: each names the version that it
// replaces.
func TestUnansweredWriteIsNoEdit(t *testing.T) {
	for name, test := range map[string]struct {
		steps  string // epochs of records: 21 is found; 21? was sent, and nobody answered
		edited bool   // the last one
		want   int64
	}{
		"it is applied at once":                           {"20 21? 21", false, 21},
		"it is applied late":                              {"20 21? 20 21", false, 21},
		"the next one is applied late, after it is found": {"20 21? 21 22? 21 22", false, 22},
		"it is found after the next one was":              {"20 21? 20 22? 20 22 21", true, 22},
		"it is found after the next one was, at once":     {"20 21? 20 22? 22 21", true, 22},
		"what is found first counts, whoever wrote it":    {"20 21? 25", false, 25},
		"what another client writes after that":           {"20 21? 20 25", true, 20},
	} {
		t.Run(name, func(t *testing.T) {
			l, api := newTestLedger(t, specOf(20, "this"))
			var e *Entry
			for step := range strings.FieldsSeq(test.steps) {
				text, sent := strings.CutSuffix(step, "?")
				epoch, err := strconv.ParseInt(text, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				if sent {
					l.entry(shop).noteUnanswered(specOf(epoch, "this"))
					continue
				}
				edit(t, l, api, func(s *v1alpha1.NamespaceLeaderSpec) { *s = *specOf(epoch, "this") })
				e = take(t, l)
			}
			if e.Edited != test.edited || e.Record.Epoch != test.want {
				t.Errorf("an edit: %v, epoch %d; want %v, %d", e.Edited, e.Record.Epoch, test.edited, test.want)
			}
		})
	}
	e := &Entry{}
	for range 2 * maxUnanswered {
		e.noteUnanswered(specOf(20, "this"))
	}
	if n := len(e.unanswered); n != maxUnanswered {
		t.Errorf("%d unanswered writes are remembered, want %d", n, maxUnanswered)
	}
}

// Restoring the known record would take back a grant by which Leases are written.
func TestWriteThatMayHaveBeenAppliedIsNoEdit(t *testing.T) {
	timeout := apierrors.NewTimeoutError("etcdserver: request timed out", 0)
	for name, test := range map[string]struct {
		answer  error
		refuses bool // to apply it
		edited  bool // what is found next counts as another client's
		want    int64
	}{
		"an answer":                          {nil, false, false, 21},
		"no answer, and it was applied":      {timeout, false, false, 21},
		"no answer, and it was not applied":  {timeout, true, false, 20},
		"a conflict with a client, no hub":   {apierrors.NewConflict(records, "shop", errRefused), false, true, 20},
		"it was deleted by a client, no hub": {apierrors.NewNotFound(records, "shop"), true, true, 20},
	} {
		t.Run(name, func(t *testing.T) {
			l, api := newTestLedger(t, specOf(20, "this"))
			e := take(t, l)
			l.Client = &answering{Client: api, answer: test.answer, refuses: test.refuses}
			_, err := l.Write(t.Context(), e, Change{Record: eastLeads(21), Persist: true})
			if (err == nil) != (test.answer == nil) {
				t.Fatalf("error: %v", err)
			}
			e.Recheck()
			if apierrors.IsNotFound(test.answer) {
				if err := api.Delete(t.Context(), stored(t, api)); err != nil {
					t.Fatal(err)
				}
			}
			if e = take(t, l); e.Edited != test.edited || e.Record.Epoch != test.want {
				t.Errorf("an edit: %v, epoch %d; want %v, %d", e.Edited, e.Record.Epoch, test.edited, test.want)
			}
		})
	}
}

// Another client was faster, so this hub's write can never be applied. What is found next counts as an edit.
func TestRecordThatAnotherClientCreatedIsAnEdit(t *testing.T) {
	l, api := newTestLedger(t, specOf(20, "this"))
	take(t, l)
	if err := api.Delete(t.Context(), stored(t, api)); err != nil {
		t.Fatal(err)
	}
	l.Show(NewRecord(shop), "")
	e := take(t, l)
	if !e.Vanished {
		t.Fatal("the record is not missed")
	}
	theirs := NewRecord(shop)
	theirs.Spec = *specOf(30, "this")
	if err := api.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Write(t.Context(), e, Change{Record: e.Record}); !apierrors.IsAlreadyExists(err) {
		t.Fatalf("error: %v", err)
	}
	e.Recheck()
	if e = take(t, l); !e.Edited || e.Record.Epoch != 20 {
		t.Errorf("an edit: %v; epoch %d", e.Edited, e.Record.Epoch)
	}
}

// A record that no hub can have written is as good as lost. The epoch must not fall all the same.
func TestAbsurdRecordIsLost(t *testing.T) {
	floor := lease.EpochFloor(start.Wall.Add(time.Hour))
	for name, test := range map[string]struct {
		epoch  int64
		d      int32
		absurd bool
		want   int64
	}{
		"one as a hub writes it":             {floor, 15, false, floor},
		"one with the longest D of a policy": {floor, 3600, false, floor},
		"one with a longer D":                {floor, 3601, true, floor},
		"one with an epoch of later years":   {math.MaxInt64, 15, true, 0},
		"one with both":                      {math.MaxInt64, 3601, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := specOf(test.epoch, "this")
			s.LeaseDurationSeconds = test.d
			l, _ := newTestLedger(t, s)
			e := take(t, l)
			r, is := e.Record, []bool{e.Absurd, e.Edited, e.Record.Lost(), e.Record.Leader == ""}
			for _, is := range is {
				if is != test.absurd {
					t.Errorf("absurd %v, edited %v, record %+v; want %v", e.Absurd, e.Edited, r, test.absurd)
				}
			}
			if r.Epoch != test.want {
				t.Errorf("epoch %d, want %d", r.Epoch, test.want)
			}
		})
	}
}
