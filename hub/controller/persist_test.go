package controller

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/tenure"
)

// A record is written if the decision, its policy or its hub has changed.
func TestWhichRecordIsWritten(t *testing.T) {
	odd := []v1alpha1.ObservedPriority{{Name: "west", Priority: 5}, {Name: "east", Priority: 9}} // this hub would sort them
	sorted := []v1alpha1.ObservedPriority{odd[1], odd[0]}
	for name, test := range map[string]struct {
		found   func(*v1alpha1.NamespaceLeaderSpec)
		change  func(*view, *election.Decision)
		written bool
		want    func(*v1alpha1.NamespaceLeaderSpec) // where it is written
	}{
		"not one that says the same in another order": {found: func(s *v1alpha1.NamespaceLeaderSpec) { s.ObservedPriorities = odd }},
		"nor one that no policy claims": {
			found:  func(s *v1alpha1.NamespaceLeaderSpec) { s.ObservedPriorities, s.Policy = odd, "gone" },
			change: func(v *view, _ *election.Decision) { v.policy = nil },
		},
		"nor one of another hub": {
			found:  func(s *v1alpha1.NamespaceLeaderSpec) { s.ObservedPriorities, s.Hub = odd, "another" },
			change: func(v *view, _ *election.Decision) { v.moved = true },
		},
		"nor one that is decided on as it is": {change: func(_ *view, d *election.Decision) { d.Persist = true }},
		"one that another policy claims": {
			found:   func(s *v1alpha1.NamespaceLeaderSpec) { s.Policy = "old" },
			written: true,
			want:    func(s *v1alpha1.NamespaceLeaderSpec) { s.Policy = "shops" },
		},
		"one of another hub that a policy of this one claims": {
			found:   func(s *v1alpha1.NamespaceLeaderSpec) { s.Policy, s.Hub = "old", "another" },
			change:  func(v *view, _ *election.Decision) { v.moved = true },
			written: true,
			want:    func(s *v1alpha1.NamespaceLeaderSpec) { s.Policy = "shops" },
		},
		"one without the mark of this hub": {
			found:   func(s *v1alpha1.NamespaceLeaderSpec) { s.Hub = "" },
			written: true,
			want:    func(s *v1alpha1.NamespaceLeaderSpec) { s.Hub = "this" },
		},
		"one that somebody has edited": {
			found: func(s *v1alpha1.NamespaceLeaderSpec) { s.Leader = "west" },
			change: func(v *view, d *election.Decision) {
				v.edited, v.object.Spec.Leader, d.Record.Leader = true, "east", "east"
			},
			written: true,
			want:    func(s *v1alpha1.NamespaceLeaderSpec) { s.Leader = "east" },
		},
		"one that is decided otherwise": {
			change:  func(_ *view, d *election.Decision) { d.Record.Next, d.Persist = "west", true },
			written: true,
			want:    func(s *v1alpha1.NamespaceLeaderSpec) { s.Next = "west" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, api := onScene(t)
			w := &writes{Client: api}
			c.client = w
			restated(t, api, func(o *v1alpha1.NamespaceLeader) {
				o.Spec = said20()
				o.Spec.Hub, o.Spec.Policy, o.Spec.ObservedPriorities = "this", "shops", sorted
				if test.found != nil {
					test.found(&o.Spec)
				}
			})
			v := shopView(election.Record{})
			v.object = stored(t, api)
			v.found = v.object.Spec.DeepCopy()
			v.state.Record = recordOf(v.found)
			d, want := election.Decision{Record: v.state.Record}, v.found.DeepCopy()
			if test.change != nil {
				test.change(v, &d)
			}
			if test.want != nil {
				test.want(want)
			}
			if err := c.persist(t.Context(), v, d); err != nil || (w.records == 1) != test.written {
				t.Errorf("%v, %d writes, want one: %v", err, w.records, test.written)
			}
			is := stored(t, api).Spec
			if is.Hub != want.Hub || is.Policy != want.Policy || is.Leader != want.Leader || is.Next != want.Next {
				t.Errorf("stored: %+v, want %+v", is, *want)
			}
		})
	}
}

// stored is the record of shop as the API server holds it.
func stored(t *testing.T, api client.Client) *v1alpha1.NamespaceLeader {
	t.Helper()
	o := &v1alpha1.NamespaceLeader{}
	if err := api.Get(t.Context(), shop, o); err != nil {
		t.Fatal(err)
	}
	return o
}

// Rule 6: no record depends on a D that the seal does not hold. Where people have to put the seal right, the error tells that.
func TestNoRecordIsWrittenBeforeTheSealHoldsItsDuration(t *testing.T) {
	for name, test := range map[string]struct {
		refusal   error
		forPeople bool
	}{
		"people have to let the hub write it": {apierrors.NewForbidden(corev1.Resource("secrets"), seal.SecretName, errRefused), true},
		"it may be written later":             {apierrors.NewTimeoutError("etcdserver: request timed out", 0), false},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, api := onScene(t)
			w := &writes{Client: api}
			c.client, c.Seals = w, seal.NewStore(api, refusing{api, test.refusal})
			v, err := c.gather(t.Context(), shop)
			if err != nil {
				t.Fatal(err)
			}
			r := v.state.Record
			r.Epoch, r.Duration = 21, 2*time.Minute
			err = c.persist(t.Context(), v, election.Decision{Record: r, Persist: true})
			if err == nil || errors.Is(err, errSeal) != test.forPeople || w.records > 0 {
				t.Errorf("%v, for people: %v; %d writes", err, errors.Is(err, errSeal), w.records)
			}
		})
	}
}

// Rule 2: also where the record says nothing new, as beside a seal that was restored from a backup.
func TestTheSealHoldsWhatTheRecordSaidBefore(t *testing.T) {
	c, _, api := onScene(t)
	restated(t, api, func(o *v1alpha1.NamespaceLeader) {
		o.Spec = said20()
		o.Spec.Hub, o.Spec.Policy, o.Spec.LeaseDurationSeconds, o.Spec.StopTimeSeconds = "this", "shops", 77, 99
	})
	w := &writes{Client: api}
	c.client = w
	v, err := c.gather(t.Context(), shop)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.persist(t.Context(), v, election.Decision{Record: v.state.Record}); err != nil || w.records > 0 {
		t.Fatalf("%v, and %d writes of the record", err, w.records)
	}
	s, err := seal.NewStore(api, api).Find(t.Context(), "fleet")
	if b := s.Of("shops"); err != nil || b.Duration != 77*time.Second || b.Stop != 99*time.Second {
		t.Errorf("the seal holds %v of the policy (%v); the record has D 77 s and a stop time of 99 s", b, err)
	}
}

// Where somebody else was faster, this hub's write can never be carried out. What is found next counts as an edit.
func TestARecordThatSomebodyElseMadeIsAnEdit(t *testing.T) {
	c, _, api := onScene(t)
	c.Tenure = tenure.New(fixedClock(musterStart), 6*time.Second) // nothing of an earlier one is left to settle
	c.namespace(shop).known = ofSpec(said20())
	v := &view{key: shop}
	if c.detectEdit(t.Context(), v, musterStart); !v.vanished {
		t.Fatal("the record is not missed")
	}
	if err := c.write(t.Context(), v, v.object); !apierrors.IsAlreadyExists(err) {
		t.Fatalf("error: %v", err)
	}
	restated(t, api, func(o *v1alpha1.NamespaceLeader) { o.Spec.Leader, o.Spec.Epoch = "west", 30 })
	v = &view{key: shop, object: stored(t, api)}
	v.found = v.object.Spec.DeepCopy()
	if c.detectEdit(t.Context(), v, musterStart); !v.edited || v.state.Record.Leader != "east" || v.state.Record.Epoch != 20 {
		t.Errorf("an edit: %v; %s leads in epoch %d", v.edited, v.state.Record.Leader, v.state.Record.Epoch)
	}
}

// A write that is answered replaces what earlier ones could have replaced. So who writes what they say later is no hub.
func TestAWriteWithoutAnAnswerCannotComeTrueAfterOneWithAnAnswer(t *testing.T) {
	c, _, api := onScene(t)
	c.Tenure = tenure.New(fixedClock(musterStart), 6*time.Second) // nothing of an earlier one is left to settle
	sends := func(epoch int64) error {
		v := &view{key: shop, object: stored(t, api)}
		v.found = v.object.Spec.DeepCopy()
		c.detectEdit(t.Context(), v, musterStart)
		v.object.Spec.Epoch = epoch
		return c.write(t.Context(), v, v.object)
	}
	c.client = answering{api, apierrors.NewTimeoutError("etcdserver: request timed out", 0), false}
	if sends(21) == nil {
		t.Fatal("a write without an answer succeeds")
	}
	c.client = api
	if err := sends(22); err != nil {
		t.Fatal(err)
	}
	restated(t, api, func(o *v1alpha1.NamespaceLeader) { o.Spec.Epoch = 21 })
	v := &view{key: shop, object: stored(t, api)}
	v.found = v.object.Spec.DeepCopy()
	if c.detectEdit(t.Context(), v, musterStart); !v.edited || v.state.Record.Epoch != 22 {
		t.Errorf("an edit: %v, epoch %d; want one, and epoch 22", v.edited, v.state.Record.Epoch)
	}
}

// inPlace is a status that tells of a leader which has its Lease.
func inPlace() v1alpha1.NamespaceLeaderStatus {
	return v1alpha1.NamespaceLeaderStatus{Message: "new", Conditions: []metav1.Condition{
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: string(reason.Elected)},
	}}
}

// What many namespaces lead by is written before statuses are: the last write of any record counts.
func TestAStatusWaitsForTheWritesOfRecords(t *testing.T) {
	c, _, _ := onScene(t)
	clock := clocktest.NewHand(musterStart)
	c.Clock = clock
	v, err := c.gather(t.Context(), shop)
	if err != nil {
		t.Fatal(err)
	}
	r := v.state.Record
	r.Epoch = 21
	if err := c.persist(t.Context(), v, election.Decision{Record: r, Persist: true}); err != nil {
		t.Fatal(err)
	}
	if got := c.recall(shop).changes; len(got) != 1 || got[0].Epoch != 21 {
		t.Errorf("changes that the status has to tell of: %+v", got)
	}
	waits := func(why string, want time.Duration) {
		t.Helper()
		if wait, err := c.explain(t.Context(), v, inPlace()); err != nil || wait != want {
			t.Errorf("%s: again in %v, %v; want %v", why, wait, err, want)
		}
	}
	waits("the record was just written", statusWaits)
	clock.Advance(statusWaits - 1)
	waits("it was written long ago, but for an instant", 1)
	till := &view{key: types.NamespacedName{Namespace: "fleet", Name: "till"}}
	vacant := election.Decision{Record: election.Record{State: election.Vacant, Epoch: 5}, Persist: true}
	if err := c.persist(t.Context(), till, vacant); err != nil {
		t.Fatal(err)
	}
	waits("another one was just written", statusWaits)
	clock.Advance(statusWaits)
	waits("all were written long ago", 0)
}

// Machines start their clocks at 0, which is no time at which a record was written.
func TestARecordThatThisTenureHasNotWrittenIsExplainedAtOnce(t *testing.T) {
	c, _, api := onScene(t)
	w := &writes{Client: api}
	c.client = w
	v, err := c.gather(t.Context(), shop)
	if err != nil {
		t.Fatal(err)
	}
	c.Clock = fixedClock{Wall: musterStart.Wall, Boot: time.Millisecond}
	if wait, err := c.explain(t.Context(), v, inPlace()); err != nil || wait != 0 || w.n != 1 {
		t.Errorf("again in %v, %v, %d writes", wait, err, w.n)
	}
}

// The right to write is asked for last: another replica may explain the record by now.
func TestAStatusIsNotWrittenWithoutTheRight(t *testing.T) {
	c, _, api := onScene(t)
	w := &writes{Client: api}
	c.client = w
	v, err := c.gather(t.Context(), shop)
	if err != nil {
		t.Fatal(err)
	}
	c.Tenure = tenure.New(fixedClock(musterStart), 6*time.Second)
	if _, err := c.explain(t.Context(), v, inPlace()); err == nil || w.n > 0 {
		t.Errorf("error %v, %d writes of the status", err, w.n)
	}
}

// A status is a new version of its record. This tenure goes on with that one, which is no news to it.
func TestAStatusThatThisTenureWroteIsNoNews(t *testing.T) {
	c, _, api := onScene(t)
	later := lease.Reading{Wall: musterStart.Wall, Boot: musterStart.Boot + time.Hour}
	c.Clock = fixedClock(later)
	v, err := c.gather(t.Context(), shop)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.explain(t.Context(), v, inPlace()); err != nil {
		t.Fatal(err)
	}
	version := stored(t, api).ResourceVersion
	if version == "" || c.recordShown(shop, version) {
		t.Errorf("version %q is news", version)
	}
	if v, err = c.gather(t.Context(), shop); err != nil || v.object.ResourceVersion != version {
		t.Errorf("the next decision rests on version %q, want %q (%v)", v.object.ResourceVersion, version, err)
	}
}
