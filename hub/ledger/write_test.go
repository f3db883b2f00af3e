package ledger

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/tenure"
)

// Rule 2: a decision that rests on an outdated record is not persisted.
func TestRecordIsWrittenByCompareAndSwap(t *testing.T) {
	l, api := newTestLedger(t, specOf(20, "this"))
	e, o := take(t, l), stored(t, api)
	o.Spec.Leader, o.Spec.Epoch = "west", 21
	musttest.Do(t, api.Update(t.Context(), o))
	written, err := l.Write(t.Context(), e, Change{Record: eastLeads(22), Persist: true})
	if !apierrors.IsConflict(err) || written || stored(t, api).Spec.Epoch != 21 {
		t.Errorf("written %v, error: %v, stored %+v", written, err, stored(t, api).Spec)
	}
}

// An order that has ended is removed, and nothing else of the metadata. An order that was written since stays.
func TestRemovedOrder(t *testing.T) {
	for name, since := range map[string]bool{"the record was not written since": false,
		"another client has written it": true} {
		l, api := newTestLedger(t, specOf(20, "this"))
		annotate := func(to string) {
			o := stored(t, api)
			o.Annotations = map[string]string{v1alpha1.MoveToAnnotation: to, v1alpha1.MoveReasonAnnotation: "words", "a": "b"}
			musttest.Do(t, api.Update(t.Context(), o))
		}
		annotate("west")
		e := take(t, l)
		if since {
			annotate("south")
		}
		if err := l.RemoveOrder(t.Context(), e); apierrors.IsConflict(err) != since || err != nil && !since {
			t.Errorf("%s: %v", name, err)
		}
		want := map[bool]string{
			true: "map[a:b leasecast.dev/move-reason:words leasecast.dev/move-to:south]", false: "map[a:b]",
		}
		if got := fmt.Sprint(stored(t, api).Annotations); got != want[since] {
			t.Errorf("%s: %s", name, got)
		}
		if l.Show(stored(t, api), false) != since {
			t.Errorf("%s: a watch shows another client's write: %t", name, !since)
		}
		if written, err := l.Write(t.Context(), e, Change{Record: eastLeads(22), Persist: true}); written == since {
			t.Errorf("%s: the record is written after that: %t, %v", name, written, err)
		}
	}
}

// A record is written if the decision, its policy or its hub has changed.
func TestRecordIsWrittenOnlyIfItChanges(t *testing.T) {
	// This hub would sort them.
	odd := []v1alpha1.ObservedPriority{{Name: "west", Priority: 5}, {Name: "east", Priority: 9}}
	with := func(change func(*v1alpha1.NamespaceLeaderSpec)) *v1alpha1.NamespaceLeaderSpec {
		s := specOf(20, "this")
		s.ObservedPriorities = odd
		change(s)
		return s
	}
	for name, test := range map[string]struct {
		found   *v1alpha1.NamespaceLeaderSpec
		policy  string
		change  func(*Change)
		written bool
		want    func(v1alpha1.NamespaceLeaderSpec) bool
	}{
		"the same, in another order": {found: with(func(*v1alpha1.NamespaceLeaderSpec) {}), policy: "shops"},
		"no policy claims it":        {found: with(func(s *v1alpha1.NamespaceLeaderSpec) { s.Policy = "gone" })},
		"another hub's": {
			found: with(func(s *v1alpha1.NamespaceLeaderSpec) { s.Hub = "another" }), policy: "shops",
		},
		"decided on as it is": {
			found: specOf(20, "this"), policy: "shops", change: func(c *Change) { c.Persist = true },
		},
		"decided on as it is, read in another time zone": {
			found: with(func(s *v1alpha1.NamespaceLeaderSpec) {
				s.Since, s.ObservedPriorities = ptr.To(metav1.NewMicroTime(start.Wall)), nil
			}),
			policy: "shops", change: func(c *Change) { c.Persist = true },
		},
		"another policy claims it": {
			found: with(func(*v1alpha1.NamespaceLeaderSpec) {}), policy: "new", written: true,
			want: func(s v1alpha1.NamespaceLeaderSpec) bool { return s.Policy == "new" },
		},
		"another hub's that a policy of this one claims": {
			found: with(func(s *v1alpha1.NamespaceLeaderSpec) { s.Hub = "another" }), policy: "new", written: true,
			want: func(s v1alpha1.NamespaceLeaderSpec) bool { return s.Policy == "new" && s.Hub == "another" },
		},
		"without a mark": {
			found: with(func(s *v1alpha1.NamespaceLeaderSpec) { s.Hub = "" }), policy: "shops", written: true,
			want: func(s v1alpha1.NamespaceLeaderSpec) bool { return s.Hub == "this" },
		},
		"decided otherwise": {
			found: with(func(*v1alpha1.NamespaceLeaderSpec) {}), policy: "shops", written: true,
			change: func(c *Change) { c.Record.Next, c.Persist = "west", true },
			want:   func(s v1alpha1.NamespaceLeaderSpec) bool { return s.Next == "west" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, api := newTestLedger(t, test.found)
			e := take(t, l)
			is := Change{Record: e.Record, Policy: test.policy}
			if test.change != nil {
				test.change(&is)
			}
			if written, err := l.Write(t.Context(), e, is); err != nil || written != test.written {
				t.Errorf("written: %v, want %v (%v)", written, test.written, err)
			}
			if test.want != nil && !test.want(stored(t, api).Spec) {
				t.Errorf("stored: %+v", stored(t, api).Spec)
			}
		})
	}
}

func TestNewRecordHasTheMarksOfMovesAndOfThisHub(t *testing.T) {
	l, api := newTestLedger(t, nil)
	e := take(t, l)
	if written, err := l.Write(t.Context(), e, Change{Record: e.Record}); err != nil || written {
		t.Fatalf("a namespace that nobody manages: written %v, %v", written, err)
	}
	vacant := election.Record{State: election.Vacant, Epoch: 5}
	if written, err := l.Write(t.Context(), e, Change{Record: vacant, Persist: true}); err != nil || !written {
		t.Fatalf("written %v, %v", written, err)
	}
	o := stored(t, api)
	if _, move := o.Labels[v1alpha1.MoveLabel]; !move || o.Labels[v1alpha1.ManagedByLabel] != v1alpha1.ManagedByValue {
		t.Errorf("labels %v", o.Labels)
	}
	if o.Spec.Epoch != 5 || o.Spec.Hub != "this" || e.Object.ResourceVersion != o.ResourceVersion {
		t.Errorf("stored: %+v", o)
	}
}

// clusterctl move copies records with their annotations. A copy is known by the UID of another record.
// A log has who was the hub of a record before.
func TestRecordThatThisHubWritesHasItsOwnUID(t *testing.T) {
	for name, test := range map[string]struct {
		hub       string
		takesOver bool
		want      string
	}{
		"a record of this hub":                       {"this", false, "own"},
		"another hub's record, which is taken over":  {"other", true, "own"},
		"another hub's record, which stays as it is": {"other", false, "copied"},
	} {
		t.Run(name, func(t *testing.T) {
			l, api := newTestLedger(t, specOf(20, test.hub))
			o := stored(t, api)
			o.UID, o.Annotations = "own", map[string]string{v1alpha1.RecordAnnotation: "copied"}
			musttest.Do(t, api.Update(t.Context(), o))
			e := take(t, l)
			change := Change{Record: eastLeads(21), Persist: true, TakesOver: test.takesOver}
			logged := ""
			ctx := log.IntoContext(t.Context(), funcr.New(func(_, line string) { logged += line }, funcr.Options{}))
			if written, err := l.Write(ctx, e, change); err != nil || !written {
				t.Fatalf("written %v, %v", written, err)
			}
			if strings.Contains(logged, `"from"="other"`) != test.takesOver {
				t.Errorf("logged: %q", logged)
			}
			if got := stored(t, api).Annotations[v1alpha1.RecordAnnotation]; got != test.want {
				t.Errorf("the annotation is %q, want %q", got, test.want)
			}
		})
	}
}

// The right to write is checked last: the decision may have taken long.
func TestNothingIsWrittenWithoutTheRight(t *testing.T) {
	l, api := newTestLedger(t, specOf(20, "this"))
	e := take(t, l)
	before := stored(t, api).ResourceVersion
	l.Tenure = tenure.New(fixedClock(start), 6*time.Second)
	if _, err := l.Write(t.Context(), e, Change{Record: eastLeads(21), Persist: true}); err == nil {
		t.Error("the record is written")
	}
	if err := l.WriteStatus(t.Context(), e, v1alpha1.NamespaceLeaderStatus{Message: "new"}); err == nil {
		t.Error("the status is written")
	}
	if is := stored(t, api).ResourceVersion; is != before {
		t.Errorf("version %s, was %s", is, before)
	}
}

func TestGrantIsRememberedOnceItIsWritten(t *testing.T) {
	for name, test := range map[string]struct {
		epoch            int64
		state            election.RecordState
		why              reason.Reason
		granted, adopted int64
	}{
		"a new term":               {21, election.Leading, reason.Elected, 21, 0},
		"an adopted term":          {20, election.Leading, reason.Adopted, 0, 20},
		"a term that resumes":      {20, election.Leading, reason.Resumed, 0, 0},
		"an adopted one that ends": {20, election.Ending, reason.Adopted, 0, 0},
	} {
		l, _ := newTestLedger(t, specOf(20, "this"))
		e := take(t, l)
		r := eastLeads(test.epoch)
		r.State, r.Reason = test.state, test.why
		persist(t, l, e, Change{Record: r, Persist: true})
		if e.Granted != test.granted || e.Adopted != test.adopted {
			t.Errorf("%s: granted %d, adopted %d; want %d, %d", name, e.Granted, e.Adopted, test.granted, test.adopted)
		}
	}
}

// A record is read live once. After that it is what this tenure wrote last, until another client writes it.
func TestRecordIsReadLiveOnce(t *testing.T) {
	l, api := newTestLedger(t, specOf(20, "this"))
	live := &reading{Reader: api}
	l.Live = live
	reads := func(why string, want int) *Entry {
		t.Helper()
		live.n = 0
		e := take(t, l)
		if live.n != want {
			t.Errorf("%s: %d live reads, want %d", why, live.n, want)
		}
		return e
	}
	reads("once", 1)
	e := reads("and not again", 0)
	is := Change{Record: eastLeads(21), Persist: true, Message: "an upgrade"}
	persist(t, l, e, is)
	if len(e.Changes) != 1 || e.Changes[0].Epoch != 21 || e.Changes[0].Message != "an upgrade" {
		t.Errorf("changes for the status: %+v", e.Changes)
	}
	musttest.Do(t, l.WriteStatus(t.Context(), e, v1alpha1.NamespaceLeaderStatus{Message: "new"}))
	if o := stored(t, api); l.Show(o, false) || len(e.Changes) > 0 {
		t.Error("its own write is a change")
	}
	if e := reads("what this tenure wrote itself", 0); e.Found.Epoch != 21 || e.Object.Status.Message != "new" {
		t.Errorf("it is %+v", e.Object)
	}
	o := stored(t, api)
	if o.Labels["team"] = "shop"; api.Update(t.Context(), o) != nil {
		t.Fatal("it is not labelled")
	}
	reads("before the watch shows another client's write", 0)
	if !l.Show(o, false) {
		t.Error("another client's write is no change")
	}
	e = reads("after that", 1)
	reads("and not again", 0)
	e.Recheck()
	live.answer = apierrors.NewTimeoutError("etcdserver: request timed out", 0)
	if _, err := l.Take(t.Context(), shop); !apierrors.IsTimeout(err) {
		t.Errorf("the record cannot be read: %v", err)
	}
	live.answer = nil
	reads("after a failed write, once a read succeeds", 1)
	reads("and not again", 0)
}

// Rule 6: an earlier tenure was at work when it last changed a record. A record from after the end that the election's
// Lease shows proves that Lease wrong, as by a clock that was far behind. What this tenure wrote proves nothing.
func TestARecordShowsThatTheElectionsLeaseIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		hub       string
		before    time.Duration // the start
		inherited time.Duration // after the start
	}{
		"before the end of the earlier tenure": {"this", time.Hour, 6*time.Second - time.Hour},
		"after it":                             {"this", time.Minute, 6 * time.Second},
		"after it, by another hub":             {"other", time.Minute, 6*time.Second - time.Hour},
		"after the start, by a wrong clock":    {"this", -time.Hour, 6*time.Second - time.Hour},
	} {
		spec := specOf(20, test.hub)
		spec.Since = ptr.To(metav1.NewMicroTime(start.Wall.Add(-test.before)))
		l, _ := newTestLedger(t, spec)
		e := take(t, l)
		if _, is := l.Tenure.Started(); !is.Equal(start.Wall.Add(test.inherited)) {
			t.Errorf("%s: inherited %v after the start, want %v", name, is.Sub(start.Wall), test.inherited)
		}
		own := eastLeads(21)
		own.Since = start.Wall
		persist(t, l, e, Change{Record: own, Persist: true})
		e.Recheck()
		take(t, l)
		if _, is := l.Tenure.Started(); !is.Equal(start.Wall.Add(test.inherited)) {
			t.Errorf("%s: after a write of this tenure inherited %v after the start", name, is.Sub(start.Wall))
		}
	}
}

// Whoever may write records may fill their metadata, which the hub does not change. Of a large one it remembers little.
func TestMetadataOfARecordStaysWhereItIs(t *testing.T) {
	for name, size := range map[string]int{"usual": 20, "large": largeMetadata} {
		t.Run(name, func(t *testing.T) {
			l, api := newTestLedger(t, specOf(20, "this"))
			o := stored(t, api)
			o.Labels = map[string]string{"team": strings.Repeat("x", size)}
			o.Annotations = map[string]string{v1alpha1.FrozenUntilAnnotation: "2026", "example.com/by": "people"}
			o.Finalizers, o.OwnerReferences = []string{"example.com/keep"}, []metav1.OwnerReference{{Name: "owner", UID: "1"}}
			o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
			musttest.Do(t, api.Update(t.Context(), o))
			for _, epoch := range []int64{21, 22} {
				e := take(t, l)
				persist(t, l, e, Change{Record: eastLeads(epoch), Persist: true})
				known, large := e.known.ObjectMeta, size > 20
				others := len(known.Labels) + len(known.Finalizers) + len(known.OwnerReferences)
				if known.Annotations[v1alpha1.FrozenUntilAnnotation] != "2026" || known.Size() > 1<<10 ||
					e.Large != large || len(known.ManagedFields) > 0 || (others == 0) != large {
					t.Errorf("the hub remembers %d bytes, large: %v, annotations %q", known.Size(), e.Large, known.Annotations)
				}
				is := stored(t, api)
				if is.Spec.Epoch != epoch || is.Annotations["example.com/by"] != "people" ||
					!equality.Semantic.DeepEqual([]any{is.Labels, is.Finalizers, is.OwnerReferences},
						[]any{o.Labels, o.Finalizers, o.OwnerReferences}) {
					t.Errorf("stored: epoch %d, finalizers %q, owners %v", is.Spec.Epoch, is.Finalizers, is.OwnerReferences)
				}
			}
		})
	}
}

// A watch shows what other clients do, and has it decided on again.
func TestStatusOfARecordThatOthersHaveChangedHasItReadAgain(t *testing.T) {
	for name, change := range map[string]func(client.Client, *v1alpha1.NamespaceLeader) error{
		"it is gone":    func(api client.Client, o *v1alpha1.NamespaceLeader) error { return api.Delete(t.Context(), o) },
		"it is written": func(api client.Client, o *v1alpha1.NamespaceLeader) error { return api.Update(t.Context(), o) },
	} {
		l, api := newTestLedger(t, specOf(20, "this"))
		e := take(t, l)
		musttest.Do(t, change(api, stored(t, api)))
		if err := l.WriteStatus(t.Context(), e, v1alpha1.NamespaceLeaderStatus{Message: "new"}); err != nil || !e.recheck {
			t.Errorf("%s: %v; the record is read again: %v", name, err, e.recheck)
		}
	}
}

// A controller that reads the list of decisions fails where there is none, as an older hub left it.
func TestAListOfDecisionsIsWrittenWhereThereIsNone(t *testing.T) {
	l, api := newTestLedger(t, specOf(20, "this"))
	write := func(decisions []v1alpha1.ClusterDecision) (version string) {
		status := v1alpha1.NamespaceLeaderStatus{Message: "nobody leads", Decisions: decisions}
		musttest.Do(t, l.WriteStatus(t.Context(), take(t, l), status))
		return stored(t, api).ResourceVersion
	}
	older := write(nil)
	if is := write([]v1alpha1.ClusterDecision{}); is == older {
		t.Error("there is no list still")
	} else if write([]v1alpha1.ClusterDecision{}) != is {
		t.Error("it is written again")
	}
}

func TestStatusNamesItsGeneration(t *testing.T) {
	l, api := newTestLedger(t, specOf(20, "this"))
	e := take(t, l)
	e.Object = e.Object.DeepCopy()
	e.Object.Generation = 3
	s := v1alpha1.NamespaceLeaderStatus{Conditions: []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Elected"}}}
	musttest.Do(t, l.WriteStatus(t.Context(), e, s))
	if s := stored(t, api).Status; s.ObservedGeneration != 3 || s.Conditions[0].ObservedGeneration != 3 {
		t.Errorf("%+v", s)
	}
}

// A status waits until the records of other namespaces are written.
func TestStatusWaitsForTheWritesOfRecords(t *testing.T) {
	for name, test := range map[string]struct {
		own, other, want time.Duration // since the record, and since any record was written
	}{
		"written long ago":                       {statusWaits, statusWaits, 0},
		"written just now":                       {0, 0, statusWaits},
		"other records are written":              {2 * statusWaits, 1, statusWaits - 1},
		"others are written for long":            {statusLatest - 1, 1, 1},
		"others are written, and it waited long": {statusLatest, 1, 0},
	} {
		l := New(&Options{Clock: fixedClock(start)})
		e := &Entry{written: start.Boot - test.own}
		l.written = start.Boot - test.other
		if got := l.StatusDueIn(e); got != test.want {
			t.Errorf("%s: due in %v, want %v", name, got, test.want)
		}
	}
	l, _ := newTestLedger(t, nil)
	e := take(t, l)
	persist(t, l, e, Change{Record: eastLeads(20), Persist: true})
	if got := l.StatusDueIn(e); got != statusWaits {
		t.Errorf("a new record: due in %v", got)
	}
	// Machines start their clocks at 0, which is no time at which a record was written.
	if got := New(&Options{Clock: fixedClock{Boot: time.Millisecond}}).StatusDueIn(&Entry{}); got != 0 {
		t.Errorf("a record that this tenure has not written: due in %v", got)
	}
}

func TestRecordIsDeletedByCompareAndSwap(t *testing.T) {
	l, api := newTestLedger(t, specOf(20, "this"))
	e := take(t, l)
	edit(t, l, api, func(s *v1alpha1.NamespaceLeaderSpec) { s.Epoch = 21 })
	if deleted, err := l.Delete(t.Context(), e); !apierrors.IsConflict(err) || deleted {
		t.Errorf("written since: deleted %v, %v", deleted, err)
	}
	e = take(t, l)
	if deleted, err := l.Delete(t.Context(), e); err != nil || !deleted {
		t.Errorf("deleted %v, %v", deleted, err)
	}
	l.Drop(e)
	if e := take(t, l); e.Found != nil || e.Restored {
		t.Errorf("it is missed: %+v", e.Taken)
	}
	if deleted, err := l.Delete(t.Context(), take(t, l)); err != nil || deleted {
		t.Errorf("there is none: deleted %v, %v", deleted, err)
	}
}

// Most namespaces of a member are unowned.
func TestNothingIsKeptOfNamespacesWithoutARecord(t *testing.T) {
	l, _ := newTestLedger(t, nil)
	for name, test := range map[string]struct {
		change func(*Entry)
		kept   bool
	}{
		"unowned":           {func(*Entry) {}, false},
		"claimed":           {func(e *Entry) { l.SetClaim(e, Claim{Owner: "shops"}) }, true},
		"it had a record":   {func(e *Entry) { l.SetClaim(e, Claim{}); e.Highest = 20 }, true},
		"with a record":     {func(e *Entry) { e.Highest, e.Object = 0, NewRecord(shop) }, true},
		"all of it is gone": {func(*Entry) {}, false},
	} {
		e := &Entry{Taken: Taken{Key: shop}}
		l.entries[shop] = e
		test.change(e)
		l.Return(e)
		if _, kept := l.entries[shop]; kept != test.kept {
			t.Errorf("%s: kept %v, want %v", name, kept, test.kept)
		}
		if e.Object != nil {
			t.Errorf("%s: a second copy of the record is kept between decisions", name)
		}
	}
}
