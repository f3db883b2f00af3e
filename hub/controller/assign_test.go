package controller

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/tenure"
)

// assigned is the Lease of a namespace in east, and whether there is one, after a decision about a view.
func (s *stage) assigned(p *publish.Publisher, r election.Record, change func(*view, *election.Decision)) (lease.Content, bool) {
	s.t.Helper()
	m := measured("east", agrees)
	m.publisher = p
	v, d := shopView(election.Record{}, m), election.Decision{Record: r}
	v.policy = s.policy
	change(v, &d)
	s.c.assign(v, d)
	s.work(p)
	l := s.east.leases[shopCopy.Name]
	if l == nil {
		return lease.Content{}, false
	}
	c, _ := wire.Read(l)
	return c, true
}

func TestWhatALeaseHasToBe(t *testing.T) {
	west := func(s *stage) election.Record {
		r := s.leading(reason.Elected)
		r.Leader = "west"
		return r
	}
	for name, test := range map[string]struct {
		record func(*stage) election.Record
		change func(*view, *election.Decision)
		want   bool
	}{
		"one that takes part follows":                       {west, func(*view, *election.Decision) {}, true},
		"one that takes no part has none":                   {west, func(v *view, _ *election.Decision) { v.members[0].takesPart = false }, false},
		"nor where nothing is left of the record":           {west, func(_ *view, d *election.Decision) { d.Gone = true }, false},
		"nothing is written where the namespace is missing": {west, func(v *view, _ *election.Decision) { v.members[0].namespace = nil }, false},
		"nor where it is going away": {west, func(v *view, _ *election.Decision) {
			v.members[0].namespace = &corev1.Namespace{Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}}
		}, false},
		"but where nothing is known of namespaces": {west, func(v *view, _ *election.Decision) { v.members[0].namespace, v.members[0].isRead = nil, false }, true},
		"one without a publisher is left out":      {west, func(v *view, _ *election.Decision) { v.members[0].publisher = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			if _, is := s.assigned(s.publisher(), test.record(s), test.change); is != test.want {
				t.Errorf("there is a Lease: %v, want %v", is, test.want)
			}
		})
	}
}

// What stands in a cluster whose namespace cannot be seen goes with the namespace, if it goes: nothing is taken away.
func TestALeaseStaysWhereTheNamespaceIsGoingAway(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*view, *election.Decision)
		stays  bool
	}{
		"the namespace is missing":                 {func(v *view, _ *election.Decision) { v.members[0].namespace = nil }, true},
		"the leader takes no part any more":        {func(v *view, _ *election.Decision) { v.members[0].takesPart = false }, true},
		"it is named otherwise now":                {func(_ *view, d *election.Decision) { d.Record.LeaseName = "another" }, false},
		"it is named otherwise, and another hub's": {func(v *view, d *election.Decision) { d.Record.LeaseName, v.moved = "another", true }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.decided(s.publisher(), s.leading(reason.Elected), true)
			if _, is := s.assigned(s.publisher(), s.leading(reason.Elected), test.change); is != test.stays {
				t.Errorf("the Lease is there: %v, want %v", is, test.stays)
			}
		})
	}
}

func TestTheLeadersClusterIsToldFirst(t *testing.T) {
	v := shopView(election.Record{}, measured("a", agrees), measured("east", agrees), measured("z", agrees))
	for i := range v.members {
		v.members[i].publisher = nil
	}
	s := newStage(t)
	s.c.assign(v, election.Decision{Record: s.leading(reason.Elected)})
	var names []string
	for _, m := range v.members {
		names = append(names, m.Name)
	}
	if !slices.Equal(names, []string{"east", "a", "z"}) {
		t.Errorf("order %q", names)
	}
	if v.state.Record.Epoch != 20 {
		t.Errorf("what is decided now is the record, of epoch %d", v.state.Record.Epoch)
	}
}

func TestWhatPeopleAreToldOfAChange(t *testing.T) {
	leads := election.Record{State: election.Leading, Reason: reason.Elected, Leader: "east", Epoch: 20}
	with := func(change func(*election.Record)) election.Record {
		r := leads
		change(&r)
		return r
	}
	for name, test := range map[string]struct {
		was, now election.Record
		want     string
	}{
		"nothing":         {leads, leads, ""},
		"another reason":  {leads, with(func(r *election.Record) { r.Reason = reason.Resumed }), ""},
		"another leader":  {with(func(r *election.Record) { r.Leader = "west" }), leads, "Normal Elected: east leads in epoch 20"},
		"another epoch":   {with(func(r *election.Record) { r.Epoch = 19 }), leads, "Normal Elected: east leads in epoch 20"},
		"nobody leads":    {leads, election.Record{State: election.Vacant, Reason: reason.NoCandidate, Epoch: 20}, "Warning NoCandidate: no cluster is eligible; see candidates for the reasons"},
		"one is replaced": {leads, with(func(r *election.Record) { r.State, r.Reason = election.Draining, reason.Unreachable }), "Warning Unreachable: east is being replaced (Unreachable); next is nobody yet, not before 00:00:00.000Z"},
		"one is replaced as planned, by whoever is prepared": {leads, with(func(r *election.Record) { r.State, r.Reason = election.Draining, reason.PriorityChanged }), ""},
		"nobody leads, after a plan":                         {leads, election.Record{State: election.Vacant, Reason: reason.PriorityChanged, Epoch: 20}, "Warning PriorityChanged: no cluster is eligible; see candidates for the reasons"},
		"the policy is gone":                                 {leads, election.Record{State: election.Retired, Reason: reason.PolicyGone, Epoch: 20}, "Normal PolicyGone: no policy claims the namespace; the record stays until everything promised has passed"},
	} {
		t.Run(name, func(t *testing.T) {
			s, told := newStage(t), &said{}
			s.c.events = told
			v := shopView(test.was)
			v.object = &v1alpha1.NamespaceLeader{}
			s.c.changed(t.Context(), v, election.Decision{Record: test.now}, false)
			if s.c.tell(v); len(told.events) > 1 {
				t.Errorf("told more than once: %q", told.events)
			}
			s.c.tell(v)
			if got := strings.TrimPrefix(strings.Join(told.events, "|"), "*v1alpha1.NamespaceLeader "); got != test.want {
				t.Errorf("told %q, want %q", got, test.want)
			}
			if s := s.c.recall(shop); s.granted+s.adopted > 0 {
				t.Errorf("a grant is noted: %+v", s)
			}
		})
	}
}

func TestWhatIsNotedOfAGrant(t *testing.T) {
	for why, test := range map[reason.Reason]struct{ granted, adopted int64 }{reason.Elected: {20, 0}, reason.Adopted: {0, 20}} {
		s := newStage(t)
		s.c.events = silent{}
		s.c.changed(t.Context(), shopView(election.Record{}), election.Decision{Record: s.leading(why)}, true)
		if s.c.namespace(shop).granted != test.granted || s.c.namespace(shop).adopted != test.adopted {
			t.Errorf("%s: granted %v, adopted %v", why, s.c.recall(shop).granted, s.c.recall(shop).adopted)
		}
	}
}

// The right to write is asked for last: what was decided may have taken long.
func TestARecordIsNotWrittenWithoutTheRight(t *testing.T) {
	c, _, api := onScene(t)
	v, err := c.gather(t.Context(), shop)
	if err != nil {
		t.Fatal(err)
	}
	w := &writes{Client: api}
	c.client = w
	c.Tenure = tenure.New(fixedClock(musterStart), 6*time.Second)
	r := v.state.Record
	r.State, r.Since = election.Draining, musterStart.Wall
	if err := c.persist(t.Context(), v, election.Decision{Record: r, Persist: true}); err == nil || w.records > 0 {
		t.Errorf("error %v, %d writes", err, w.records)
	}
}

func TestARecordIsWrittenOnlyIfItSaysSomethingNew(t *testing.T) {
	c, _, api := onScene(t)
	w := &writes{Client: api}
	c.client = w
	for i := range 2 {
		v, err := c.gather(t.Context(), shop)
		if err != nil {
			t.Fatal(err)
		}
		d := election.Decision{Record: v.state.Record}
		status := v.statusOf(d, nil, nil)
		if err := c.persist(t.Context(), v, d); err != nil || w.records != 1 { // the mark of the hub is new
			t.Errorf("time %d: %v, %d writes, want 1", i+1, err, w.records)
		}
		v.object.Generation = 3
		c.namespace(shop).written = 0 // long ago
		if _, err := c.explain(t.Context(), v, status); err != nil || w.n != 1 {
			t.Errorf("time %d: %v, %d writes of the status, want 1", i+1, err, w.n)
		}
		o := &v1alpha1.NamespaceLeader{}
		if err := api.Get(t.Context(), shop, o); err != nil || o.Status.ObservedGeneration != 3 || o.Status.Conditions[0].ObservedGeneration != 3 {
			t.Errorf("time %d: %v, the status does not speak of generation 3: %+v", i+1, err, o.Status)
		}
	}
	gone := &view{key: types.NamespacedName{Namespace: "fleet", Name: "till"}}
	if err := c.persist(t.Context(), gone, election.Decision{}); err != nil || w.records != 1 {
		t.Errorf("a namespace that nobody manages: %v, %d writes", err, w.records)
	}
	if err := c.persist(t.Context(), gone, election.Decision{Persist: true, Record: election.Record{State: election.Vacant, Epoch: 5}}); err != nil {
		t.Fatal(err)
	}
	o := &v1alpha1.NamespaceLeader{}
	if err := api.Get(t.Context(), gone.key, o); err != nil || o.Spec.Epoch != 5 {
		t.Fatalf("a new record: %+v, %v", o, err)
	}
	if _, move := o.Labels[v1alpha1.MoveLabel]; !move || o.Labels[v1alpha1.ManagedByLabel] != v1alpha1.ManagedByValue || o.Spec.Hub != "this" {
		t.Errorf("its marks: %v, %v", o.Labels, o.Spec.Hub)
	}
}

// A change is explained when it is done, or when it takes long.
func TestWhenAChangeIsExplained(t *testing.T) {
	for name, test := range map[string]struct {
		state election.RecordState
		why   reason.Reason
		ready bool
		after time.Duration // since the record was written
		other time.Duration // since any record was written; 0: as after
		wait  time.Duration // 0: it is explained now
	}{
		"the new leader has its Lease":        {election.Leading, reason.Elected, true, statusWaits, 0, 0},
		"it has it, as a better cluster":      {election.Leading, reason.PriorityChanged, true, statusWaits, 0, 0},
		"it has it just now":                  {election.Leading, reason.Elected, true, 0, 0, statusWaits},
		"its Lease is not written yet":        {election.Leading, reason.Elected, false, time.Second, 0, changeTakes - time.Second},
		"its Lease takes long":                {election.Leading, reason.Elected, false, changeTakes, 0, 0},
		"it takes long, and others change":    {election.Leading, reason.Elected, false, changeTakes, 1, statusWaits - 1},
		"the old leader's term has not ended": {election.Draining, reason.PriorityChanged, false, 0, 0, changeTakes},
		"the old leader's term takes long":    {election.Draining, reason.PriorityChanged, false, changeTakes, 0, 0},
		"nobody leads":                        {election.Vacant, reason.NoCandidate, false, statusWaits, 0, 0},
		"the old leader is lost":              {election.Draining, reason.Unreachable, false, statusWaits, 0, 0},
		"nobody leads since just now":         {election.Vacant, reason.NoCandidate, false, 0, 0, statusWaits},
		"other records are being written":     {election.Leading, reason.Elected, true, 2 * statusWaits, 1, statusWaits - 1},
		"others are being written for long":   {election.Leading, reason.Elected, true, statusLatest - 1, 1, 1},
		"and it has waited long enough":       {election.Leading, reason.Elected, true, statusLatest, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, api := onScene(t)
			w := &writes{Client: api}
			c.client = w
			v, err := c.gather(t.Context(), shop)
			if err != nil {
				t.Fatal(err)
			}
			v.object.Spec.State, v.object.Spec.Reason = v1alpha1.RecordState(test.state), test.why
			s := c.namespace(shop)
			told := &said{}
			c.events = told
			s.written, s.changes = c.Clock.Now().Boot-test.after, []v1alpha1.Change{{Epoch: 21}}
			s.untold = []pendingEvent{{corev1.EventTypeNormal, reason.Elected, "east leads"}}
			c.written = c.Clock.Now().Boot - cmp.Or(test.other, test.after)
			status := v1alpha1.NamespaceLeaderStatus{Message: "new"}
			if test.ready {
				status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Elected"}}
			}
			wait, err := c.explain(t.Context(), v, status)
			if explained := w.n == 1; err != nil || wait != test.wait || explained != (test.wait == 0) {
				t.Errorf("%v, %d writes, again in %v; want %v", err, w.n, wait, test.wait)
			}
			if told := len(s.changes) == 0; told != (test.wait == 0) {
				t.Errorf("changes that the status does not tell of: %v", s.changes)
			}
			if (len(told.events) == 1) != (test.wait == 0) {
				t.Errorf("events: %q", told.events)
			}
		})
	}
}

// Of two installations on one management cluster, one explains a record: the one that it belongs to.
func TestWhoExplainsARecord(t *testing.T) {
	for hub, want := range map[string]int{"": 1, "uid/here": 1, "uid/there": 0, "another/there": 1, "uid": 1, v1alpha1.NoHub: 1} {
		c, _, api := onScene(t)
		c.HubID = "uid/here"
		w := &writes{Client: api}
		c.client = w
		v, err := c.gather(t.Context(), shop)
		if err != nil {
			t.Fatal(err)
		}
		v.object.Spec.Hub = hub
		if _, err := c.explain(t.Context(), v, v.statusOf(election.Decision{Record: v.state.Record}, nil, nil)); err != nil || w.n != want {
			t.Errorf("the record of %q: %v, %d writes of the status, want %d", hub, err, w.n, want)
		}
	}
}

// Rule 6: a seal that does not know of a D or an ε would let a later tenure wait too short.
func TestNothingIsGrantedUnderWhatTheSealDoesNotKnow(t *testing.T) {
	c, _, api := onScene(t)
	v, err := c.gather(t.Context(), shop)
	if err != nil {
		t.Fatal(err)
	}
	w := &writes{Client: api}
	c.client = w
	v.policy.election.Timings.Skew = 20 * time.Second
	r := v.state.Record
	r.Epoch, r.Duration = 21, 2*time.Minute
	if err := c.persist(t.Context(), v, election.Decision{Record: r}); err != nil {
		t.Fatal(err)
	}
	if s, err := c.Seals.Find(t.Context(), "fleet"); err != nil || s.Largest().Duration != 2*time.Minute || s.Largest().Skew != 20*time.Second {
		t.Errorf("the seal says %+v, %v", s, err)
	}
	if c.namespace(shop).granted != 21 {
		t.Errorf("granted: %v", c.recall(shop).granted)
	}
	broken := failing{Client: api, get: errors.New("refused")}
	c.Seals, w.records = seal.NewStore(broken, broken), 0
	v, err = c.gather(t.Context(), shop)
	if err == nil {
		t.Fatalf("gathered without a seal: %+v", v)
	}
	v = shopView(r)
	if err := c.persist(t.Context(), v, election.Decision{Record: r, Persist: true}); err == nil || w.records > 0 {
		t.Errorf("granted without a seal: %v, %d writes", err, w.records)
	}
}

func TestARecordOfWhichNothingIsLeftIsDeleted(t *testing.T) {
	c, _, api := onScene(t)
	v, err := c.gather(t.Context(), shop)
	if err != nil {
		t.Fatal(err)
	}
	c.namespace(shop).granted = 1
	stale := *v
	stale.object = v.object.DeepCopy()
	stale.object.ResourceVersion = "1"
	if err := c.finish(t.Context(), &stale); !apierrors.IsConflict(err) || c.recall(shop).granted != 1 {
		t.Errorf("one that somebody has written since: %v", err)
	}
	if err := c.finish(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	if err := api.Get(t.Context(), shop, &v1alpha1.NamespaceLeader{}); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
	if len(c.namespaces) > 0 {
		t.Errorf("it is still known: %+v", c.recall(shop))
	}
	if err := c.finish(t.Context(), v); err != nil {
		t.Errorf("one that is gone already: %v", err)
	}
}

// explains answers writes of a status.
type explains struct {
	client.Client
	answer error
}

func (e *explains) Status() client.SubResourceWriter {
	return &statusWrites{e.Client.Status(), &writes{answer: e.answer}}
}

func TestWhenANamespaceIsDecidedOnAgain(t *testing.T) {
	for name, test := range map[string]struct {
		breaks func(*Controller, *scene, client.Client)
		want   time.Duration
		fails  bool
	}{
		"the tenure does not hold": {func(c *Controller, _ *scene, _ client.Client) {
			c.Tenure = tenure.New(fixedClock(musterStart), time.Second)
		}, notYet, false},
		"the Clusters are not known": {func(_ *Controller, s *scene, _ client.Client) { s.unsynced = true }, notYet, false},
		"somebody else wrote": {func(c *Controller, _ *scene, api client.Client) {
			c.client = &writes{Client: api, answer: apierrors.NewConflict(recordResource, "shop", errRefused)}
		}, time.Millisecond, false},
		"somebody else made it": {func(c *Controller, _ *scene, api client.Client) {
			c.client = &writes{Client: api, answer: apierrors.NewAlreadyExists(recordResource, "shop")}
		}, time.Millisecond, false},
		"the write fails":                  {func(c *Controller, _ *scene, api client.Client) { c.client = &writes{Client: api, answer: errRefused} }, 0, true},
		"nothing can be read":              {func(c *Controller, _ *scene, api client.Client) { c.live = failing{Client: api, get: errRefused} }, 0, true},
		"a health changes before all else": {func(_ *Controller, s *scene, _ client.Client) { s.verdict.Next = time.Millisecond }, time.Millisecond, false},
		"a health changes after all else":  {func(_ *Controller, s *scene, _ client.Client) { s.verdict.Next = time.Hour }, rightAway, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, s, api := onScene(t)
			s.shown[0].Priority, s.verdict.Answering = 5, true
			test.breaks(c, s, api)
			got, err := c.reconcileNamespace(t.Context(), mcreconcile.Request{Request: reconcile.Request{NamespacedName: shop}})
			if (err != nil) != test.fails || got.RequeueAfter != test.want {
				t.Errorf("again in %v, %v; want %v, an error: %v", got.RequeueAfter, err, test.want, test.fails)
			}
		})
	}
}

// A status that could not be written is no reason to do nothing, and what somebody else has written is looked at.
func TestARecordThatSomebodyElseExplains(t *testing.T) {
	for name, test := range map[string]struct {
		answer error
		fails  bool
	}{
		"somebody else explained it":                  {apierrors.NewConflict(recordResource, "shop", errRefused), true},
		"somebody deleted it before it was explained": {apierrors.NewNotFound(recordResource, "shop"), false},
		"it cannot be explained":                      {errRefused, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, api := onScene(t)
			c.client = &explains{Client: api, answer: test.answer}
			v, err := c.gather(t.Context(), shop)
			if err != nil {
				t.Fatal(err)
			}
			s := c.namespace(shop)
			s.current = true
			wait, err := c.explain(t.Context(), v, v1alpha1.NamespaceLeaderStatus{Message: "new"})
			if (err != nil) != test.fails || wait != 0 || !errors.Is(test.answer, errRefused) && apierrors.IsConflict(err) != test.fails {
				t.Errorf("again in %v, %v; an error: %v", wait, err, test.fails)
			}
			if !test.fails && s.current {
				t.Error("the record is not looked at")
			}
		})
	}
}
