package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/explain"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/tenure"
)

// assigned is the Lease of a namespace in east, and whether there is one, after a decision about a view.
func (s *stage) assigned(
	p *publish.Publisher, r election.Record, change func(*decide.Snapshot, *election.Decision),
) (lease.Content, bool) {
	s.t.Helper()
	m := measured("east", agrees)
	m.Publisher = p
	v, d := shopView(election.Record{}, m), election.Decision{Record: r}
	v.Policy, v.Entry = s.policy, s.entry
	change(v, &d)
	lookAtLeases(v)
	s.c.assign(v, planOf(d))
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
		change func(*decide.Snapshot, *election.Decision)
		want   bool
	}{
		"one that takes part follows": {west, func(*decide.Snapshot, *election.Decision) {}, true},
		"one that takes no part has none": {
			west, func(v *decide.Snapshot, _ *election.Decision) { v.Members[0].TakesPart = false }, false,
		},
		"nor where nothing is left of the record": {
			west, func(_ *decide.Snapshot, d *election.Decision) { d.Gone = true }, false,
		},
		"nothing is written where the namespace is missing": {
			west, func(v *decide.Snapshot, _ *election.Decision) { v.Members[0].Namespace = nil }, false,
		},
		"nor where it is going away": {west, func(v *decide.Snapshot, _ *election.Decision) {
			v.Members[0].Namespace = &corev1.Namespace{Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}}
		}, false},
		"but where nothing is known of namespaces": {west, func(v *decide.Snapshot, _ *election.Decision) {
			v.Members[0].Namespace, v.Members[0].IsRead = nil, false
		}, true},
		"one without a publisher is left out": {
			west, func(v *decide.Snapshot, _ *election.Decision) { v.Members[0].Publisher = nil }, false,
		},
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
		change func(*decide.Snapshot, *election.Decision)
		stays  bool
	}{
		"the namespace is missing": {
			func(v *decide.Snapshot, _ *election.Decision) { v.Members[0].Namespace = nil }, true,
		},
		"the leader takes no part any more": {
			func(v *decide.Snapshot, _ *election.Decision) { v.Members[0].TakesPart = false }, true,
		},
		"it is named otherwise now": {
			func(_ *decide.Snapshot, d *election.Decision) { d.Record.LeaseName = "another" }, false,
		},
		"it is named otherwise, and another hub's": {
			func(v *decide.Snapshot, d *election.Decision) { d.Record.LeaseName, v.Moved = "another", true }, true,
		},
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
	var names []string
	for _, a := range v.Assignments(planOf(election.Decision{Record: newStage(t).leading(reason.Elected)}), false) {
		names = append(names, a.Member.Name)
	}
	if !slices.Equal(names, []string{"east", "a", "z"}) {
		t.Errorf("order %q", names)
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
		"nothing":        {leads, leads, ""},
		"another reason": {leads, with(func(r *election.Record) { r.Reason = reason.Resumed }), ""},
		"another leader": {
			with(func(r *election.Record) { r.Leader = "west" }), leads, "Normal Elected: east leads in epoch 20",
		},
		"another epoch": {with(func(r *election.Record) { r.Epoch = 19 }), leads, "Normal Elected: east leads in epoch 20"},
		"nobody leads": {
			leads, election.Record{State: election.Vacant, Reason: reason.NoCandidate, Epoch: 20},
			"Warning NoCandidate: no cluster is eligible; see candidates for the reasons",
		},
		"one is replaced": {
			leads, with(func(r *election.Record) { r.State, r.Reason = election.Draining, reason.Unreachable }),
			"Warning Unreachable: east is being replaced (Unreachable); next is nobody yet, not before 00:00:00.000Z",
		},
		"one is replaced as planned, by whoever is prepared": {
			leads, with(func(r *election.Record) { r.State, r.Reason = election.Draining, reason.PriorityChanged }), "",
		},
		"nobody leads, after a plan": {
			leads, election.Record{State: election.Vacant, Reason: reason.PriorityChanged, Epoch: 20},
			"Warning PriorityChanged: no cluster is eligible; see candidates for the reasons",
		},
		"the policy is gone": {
			leads, election.Record{State: election.Retired, Reason: reason.PolicyGone, Epoch: 20},
			"Normal PolicyGone: no policy claims the namespace; the record stays until everything promised has passed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, told := newStage(t), &said{}
			s.c.events = told
			v := shopView(test.was)
			v.Object = &v1alpha1.NamespaceLeader{}
			s.c.changed(t.Context(), v, planOf(election.Decision{Record: test.now}))
			if s.c.recordEvents(v); len(told.events) > 1 {
				t.Errorf("told more than once: %q", told.events)
			}
			s.c.recordEvents(v)
			if got := strings.TrimPrefix(strings.Join(told.events, "|"), "*v1alpha1.NamespaceLeader "); got != test.want {
				t.Errorf("told %q, want %q", got, test.want)
			}
		})
	}
}

// A change is explained when it is done, or when it takes long.
func TestWhichChangesNeedNoExplanationYet(t *testing.T) {
	for name, test := range map[string]struct {
		state election.RecordState
		why   reason.Reason
		ready metav1.ConditionStatus
		want  bool
	}{
		"the new leader has its Lease":        {election.Leading, reason.PriorityChanged, metav1.ConditionTrue, false},
		"its Lease is not written yet":        {election.Leading, reason.Elected, metav1.ConditionFalse, true},
		"the old leader's term has not ended": {election.Draining, reason.PriorityChanged, metav1.ConditionFalse, true},
		"the old leader is lost":              {election.Draining, reason.Unreachable, metav1.ConditionFalse, false},
		"nobody leads":                        {election.Vacant, reason.NoCandidate, metav1.ConditionFalse, false},
	} {
		s := &v1alpha1.NamespaceLeaderSpec{State: v1alpha1.RecordState(test.state), Reason: test.why}
		is := metav1.Condition{Type: v1alpha1.ConditionReady, Status: test.ready}
		status := v1alpha1.NamespaceLeaderStatus{Conditions: []metav1.Condition{is}}
		if got := explain.InProgress(s, status); got != test.want {
			t.Errorf("%s: in progress: %v", name, got)
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
	c.Client = w
	v.Policy.Election.Timings.Skew = 20 * time.Second
	r := v.State.Record
	r.Epoch, r.Duration = 21, 2*time.Minute
	if _, err := c.persist(t.Context(), v, planOf(election.Decision{Record: r})); err != nil {
		t.Fatal(err)
	}
	if s, err := c.Seals.Find(t.Context(), "fleet"); err != nil || s.Largest().Duration != 2*time.Minute ||
		s.Largest().Skew != 20*time.Second {
		t.Errorf("the seal says %+v, %v", s, err)
	}
	if v.Granted != 21 {
		t.Errorf("granted: %v", v.Granted)
	}
	broken := failing{Client: api, get: errors.New("refused")}
	c.Seals, w.records = seal.NewStore(broken, broken), 0
	v, err = c.gather(t.Context(), shop)
	if err == nil {
		t.Fatalf("gathered without a seal: %+v", v)
	}
	v = shopView(r)
	if _, err := c.persist(t.Context(), v, planOf(election.Decision{Record: r, Persist: true})); err == nil ||
		w.records > 0 {
		t.Errorf("granted without a seal: %v, %d writes", err, w.records)
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
			c.Client = &writes{Client: api, answer: apierrors.NewConflict(recordResource, "shop", errRefused)}
		}, time.Millisecond, false},
		"somebody else made it": {func(c *Controller, _ *scene, api client.Client) {
			c.Client = &writes{Client: api, answer: apierrors.NewAlreadyExists(recordResource, "shop")}
		}, time.Millisecond, false},
		"the write fails": {
			func(c *Controller, _ *scene, api client.Client) { c.Client = &writes{Client: api, answer: errRefused} }, 0, true,
		},
		"nothing can be read": {
			func(c *Controller, _ *scene, api client.Client) { c.Live = failing{Client: api, get: errRefused} }, 0, true,
		},
		"a health changes before all else": {
			func(_ *Controller, s *scene, _ client.Client) { s.verdict.Next = time.Millisecond }, time.Millisecond, false,
		},
		"a health changes after all else": {
			func(_ *Controller, s *scene, _ client.Client) { s.verdict.Next = time.Hour }, rightAway, false,
		},
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
			c.Client = &explains{Client: api, answer: test.answer}
			v, err := c.gather(t.Context(), shop)
			if err != nil {
				t.Fatal(err)
			}
			wait, err := c.explain(t.Context(), v, v1alpha1.NamespaceLeaderStatus{Message: "new"})
			if (err != nil) != test.fails || wait != 0 ||
				!errors.Is(test.answer, errRefused) && apierrors.IsConflict(err) != test.fails {
				t.Errorf("again in %v, %v; an error: %v", wait, err, test.fails)
			}
		})
	}
}
