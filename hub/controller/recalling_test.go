package controller

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/tenure"
)

// said20 is what a record says of a term of east.
func said20() v1alpha1.NamespaceLeaderSpec {
	var s v1alpha1.NamespaceLeaderSpec
	store(eastLeads(20), &s)
	return s
}

func ofSpec(s v1alpha1.NamespaceLeaderSpec) *v1alpha1.NamespaceLeader {
	return &v1alpha1.NamespaceLeader{Spec: s}
}

// What this tenure wrote last counts against the edit of anybody who is no hub.
func TestWhoseWordARecordIs(t *testing.T) {
	another := said20()
	another.Leader = "west"
	marked := said20()
	marked.Hub = "this"
	for name, test := range map[string]struct {
		known, found *v1alpha1.NamespaceLeaderSpec
		deposed      bool
		leader       string
		edited       bool
		vanished     bool
		stops        bool
	}{
		"as it was written":                          {new(said20()), new(said20()), false, "east", false, false, false},
		"as it was written, but for this hub's mark": {&marked, new(said20()), false, "east", false, false, false},
		"edited":                                     {new(said20()), &another, false, "east", true, false, false},
		"edited, or written by a later tenure":       {new(said20()), &another, true, "west", false, false, true},
		"deleted":                                    {new(said20()), nil, false, "east", true, true, false},
		"deleted, or by a later tenure":              {new(said20()), nil, true, "", false, false, true},
		"found for the first time":                   {nil, &another, false, "west", false, false, false},
		"found for the first time, elected or not":   {nil, &another, true, "west", false, false, false},
		"as it was written, elected or not any more": {new(said20()), new(said20()), true, "east", false, false, false},
		"there never was one":                        {nil, nil, false, "", false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, _ := onScene(t)
			c.Tenure = tenure.New(fixedClock(musterStart), 6*time.Second) // nothing of an earlier one is left to settle
			c.Elected = func(context.Context) bool { return !test.deposed }
			if test.known != nil {
				c.namespace(shop).known = ofSpec(*test.known)
			}
			v := &view{key: shop}
			if test.found != nil {
				v.object, v.found = ofSpec(*test.found), test.found.DeepCopy()
			}
			c.detectEdit(t.Context(), v, musterStart)
			if v.state.Record.Leader != test.leader || v.edited != test.edited || v.vanished != test.vanished {
				t.Errorf("led by %q, edited %v, vanished %v", v.state.Record.Leader, v.edited, v.vanished)
			}
			if (v.stop != "") != test.stops || v.renews != test.stops {
				t.Errorf("stops %q, standing %v; want %v", v.stop, v.renews, test.stops)
			}
			if known := c.recall(shop).known != nil; known != (test.known != nil || test.found != nil) {
				t.Errorf("it is known: %v", known)
			}
			if test.vanished && (v.object.Name != "shop" || v.object.Spec.Leader != "east") {
				t.Errorf("the record in its place: %+v", v.object)
			}
		})
	}
}

func TestARecordOfAnotherHubIsSeen(t *testing.T) {
	c, _, _ := onScene(t)
	o := ofSpec(said20())
	o.Spec.Hub = "another"
	v := &view{key: shop, object: o, found: o.Spec.DeepCopy()}
	if c.detectEdit(t.Context(), v, musterStart); !v.moved {
		t.Error("it is taken for this hub's")
	}
	if len(c.namespaces) > 0 {
		t.Errorf("an entry for what nobody manages here: %v", c.namespaces)
	}
	// What the other hub makes of it is no edit, whatever this hub knew.
	c.namespace(shop).known = ofSpec(said20())
	o.Spec.Leader, o.Spec.Epoch = "west", 21
	v = &view{key: shop, object: o, found: o.Spec.DeepCopy()}
	if c.detectEdit(t.Context(), v, musterStart); v.edited || v.state.Record.Leader != "west" || c.recall(shop).known != nil {
		t.Errorf("edited %v, led by %s; known: %v", v.edited, v.state.Record.Leader, c.recall(shop).known)
	}
}

// What earlier tenures may still change is not worth noting: a change of theirs would look like an edit.
func TestARecordIsKnownForGoodOnceEarlierTenuresAreOver(t *testing.T) {
	c, _, _ := onScene(t)
	settles := c.Tenure.EarlierEndIn(musterStart, time.Second)
	if settles <= 0 {
		t.Fatal("there is nothing to settle")
	}
	c.namespace(shop).known = ofSpec(said20())
	v, at := &view{key: shop, skew: time.Second}, musterStart
	at.Boot += settles - 1
	if c.remember(v, ofSpec(said20()), at); c.recall(shop).known != nil {
		t.Error("it is known too early")
	}
	at.Boot++
	o := ofSpec(said20())
	o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "leasecast-hub"}}
	if c.remember(v, o, at); c.recall(shop).known == nil {
		t.Fatal("it is not known")
	}
	if known := c.recall(shop).known; len(known.ManagedFields) > 0 {
		t.Errorf("what nothing here needs is kept for each record: %v", known.ManagedFields)
	}
}

// A write without an answer may be carried out, until one that was sent later has been: each names the version that it
// replaces.
func TestWhatIsAnEditAfterWritesWithoutAnAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		steps  string // epochs of records: 21 is found; 21? was sent, and nobody answered
		edited bool   // the last one
		want   int64
	}{
		"it comes true at once":                            {"20 21? 21", false, 21},
		"it comes true late":                               {"20 21? 20 21", false, 21},
		"the next one comes true late, after it was found": {"20 21? 21 22? 21 22", false, 22},
		"it comes true after the next one has":             {"20 21? 20 22? 20 22 21", true, 22},
		"or after the next one has at once":                {"20 21? 20 22? 22 21", true, 22},
		"what is found first, whoever wrote it":            {"20 21? 25", false, 25},
		"what somebody else writes after that":             {"20 21? 20 25", true, 20},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, _ := onScene(t)
			c.Tenure = tenure.New(fixedClock(musterStart), 6*time.Second) // nothing of an earlier one is left to settle
			var v *view
			for step := range strings.FieldsSeq(test.steps) {
				epoch, sent := strings.CutSuffix(step, "?")
				s := said20()
				var err error
				if s.Epoch, err = strconv.ParseInt(epoch, 10, 64); err != nil {
					t.Fatal(err)
				}
				if sent {
					c.mayComeTrue(shop, &s)
					continue
				}
				v = &view{key: shop, object: ofSpec(s), found: s.DeepCopy()}
				c.detectEdit(t.Context(), v, musterStart)
			}
			if v.edited != test.edited || v.state.Record.Epoch != test.want {
				t.Errorf("an edit: %v, epoch %d; want %v, %d", v.edited, v.state.Record.Epoch, test.edited, test.want)
			}
		})
	}
}

// A record is the same before and after it was stored.
func TestARecordIsStoredAndReadAsItWas(t *testing.T) {
	at := musterStart.Wall.Add(123456 * time.Microsecond)
	want := election.Record{
		Leader: "east", Epoch: 20, Revoked: 19, State: election.Draining, Reason: reason.Unreachable, Since: at, AcquireTime: at.Add(1e9),
		Duration: 15 * time.Second, LeaseName: "leasecast", NotBefore: at.Add(2e9), Next: "west", Observed: map[string]int32{"east": 9},
	}
	s := v1alpha1.NamespaceLeaderSpec{ObservedPriorities: []v1alpha1.ObservedPriority{{Name: "east", Priority: 8}, {Name: "west", Priority: 7}}}
	odd := want
	odd.Since, odd.AcquireTime = at.Add(789), want.AcquireTime.Add(789)
	store(odd, &s)
	got := recordOf(&s)
	if len(got.Observed) != 1 || got.Observed["east"] != 9 {
		t.Errorf("counted: %v", got.Observed)
	}
	if !got.Since.Equal(want.Since) || !got.AcquireTime.Equal(want.AcquireTime) || !got.NotBefore.Equal(want.NotBefore) {
		t.Errorf("times %v, %v, %v; a record takes microseconds", got.Since, got.AcquireTime, got.NotBefore)
	}
	for _, r := range []*election.Record{&got, &want} {
		r.Since, r.AcquireTime, r.NotBefore, r.Observed = time.Time{}, time.Time{}, time.Time{}, nil
	}
	if got.Leader != want.Leader || got.Epoch != want.Epoch || got.Revoked != want.Revoked || got.State != want.State || got.Reason != want.Reason ||
		got.Duration != want.Duration || got.LeaseName != want.LeaseName || got.Next != want.Next {
		t.Errorf("%+v, want %+v", got, want)
	}
	store(election.Record{}, &s)
	if s.Since != nil || s.AcquireTime != nil || s.NotBefore != nil {
		t.Errorf("times that are none: %+v", s)
	}
}

// A record that another hub changes is read live for every decision, also after this hub has explained it.
func TestARecordOfAnotherHubIsReadForEveryDecision(t *testing.T) {
	c, _, api := onScene(t)
	c.Tenure = succeeding(t, musterStart, 6*time.Second, -time.Hour)
	later := musterStart
	later.Boot += time.Hour
	c.Clock = fixedClock(later)
	live := &counting{Reader: api}
	c.live = live
	restated(t, api, func(o *v1alpha1.NamespaceLeader) { o.Spec.Hub = "another" })
	for i := range 2 {
		live.n = 0
		v, err := c.gather(t.Context(), shop)
		if err != nil {
			t.Fatal(err)
		}
		if !v.moved || live.n != 1 {
			t.Errorf("look %d: another hub's: %v, live reads: %d", i+1, v.moved, live.n)
		}
		if _, err := c.explain(t.Context(), v, v1alpha1.NamespaceLeaderStatus{Message: "new"}); err != nil {
			t.Fatal(err)
		}
	}
}
