package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/explain"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/ledger"
)

var shops = types.NamespacedName{Namespace: "fleet", Name: "shops"}

// claimed notes that policies claim a namespace, the first one with success.
func claimed(t *testing.T, c *Controller, namespace string, names ...string) {
	t.Helper()
	v := &decide.Snapshot{Entry: entryOf(t, c, types.NamespacedName{Namespace: "fleet", Name: namespace})}
	defer c.ledger.Release(v.Entry)
	for i, name := range names {
		p := decide.ParsePolicy(policyOf("fleet", name, namespace))
		if i == 0 {
			v.Policy = p
		} else {
			v.Losers = append(v.Losers, p)
		}
	}
	c.noteClaim(v)
}

func TestWhichPoliciesHearOfAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuster(t)
		for _, step := range []struct {
			now  []string
			want []string
		}{
			{[]string{"a", "b", "c"}, []string{"fleet/a", "fleet/b", "fleet/c"}},
			{[]string{"a", "b", "c"}, nil},
			{[]string{"a", "b"}, []string{"fleet/a", "fleet/b", "fleet/c"}},
			{[]string{"d"}, []string{"fleet/a", "fleet/b", "fleet/d"}},
			{nil, []string{"fleet/d"}},
			{nil, nil},
		} {
			claimed(t, m.Controller, "shop", step.now...)
			if got := asked(&m.policyQueue); !slices.Equal(got, step.want) {
				t.Errorf("claimed by %q now: told are %q, want %q", step.now, got, step.want)
			}
		}
		if m.ledger.Knows(t.Context(), shop) {
			t.Error("an unowned namespace is kept")
		}
	})
}

func TestWhatAPolicyOwnsAndMustLeave(t *testing.T) {
	c := New(Options{})
	claimed(t, c, "till", "older", "shops")
	claimed(t, c, "shop", "older", "other", "shops")
	claimed(t, c, "mine", "shops")
	claimed(t, c, "also-mine", "shops", "older")
	claimed(t, c, "theirs", "older")
	elsewhere := entryOf(t, c, types.NamespacedName{Namespace: "fleet2", Name: "elsewhere"})
	c.ledger.SetClaim(elsewhere, ledger.Claim{Owner: "shops", Losers: "shops"})
	owned, lost := c.statuses.claimsOf(shops)
	if want := []string{"shop (to older)", "till (to older)"}; owned != 2 || !slices.Equal(lost, want) {
		t.Errorf("owns %d, must leave %q; want 2, %q", owned, lost, want)
	}
}

// status is the status of policy shops after one look.
func (m *muster) status() (v1alpha1.LeadershipPolicyStatus, reconcile.Result) {
	m.t.Helper()
	result, err := m.statuses.reconcilePolicy(m.t.Context(),
		mcreconcile.Request{Request: reconcile.Request{NamespacedName: shops}})
	if err != nil {
		m.t.Fatal(err)
	}
	o := &v1alpha1.LeadershipPolicy{}
	if err := m.api.Get(m.t.Context(), shops, o); err != nil {
		m.t.Fatal(err)
	}
	return o.Status, result
}

// judged is a condition of a status in short.
func judged(s v1alpha1.LeadershipPolicyStatus, kind string) string {
	c := meta.FindStatusCondition(s.Conditions, kind)
	if c == nil {
		return "missing"
	}
	return string(c.Status) + " " + c.Reason
}

// A fence may be missing in a Cluster that is not known yet, so nobody is told to rely on it.
func TestNoFenceIsSaidToBeInForceBeforeTheClustersAreKnown(t *testing.T) {
	for name, test := range map[string]struct {
		known bool
		want  string
	}{
		"not all Clusters are known":     {false, "missing"},
		"it is known that there is none": {true, "False Unfenced"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := policyOf("fleet", "shops", "shop")
				p.Spec.Fencing = &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{MatchLabels: map[string]string{"run": "once"}}}
				m := newMuster(t, p)
				m.source = knownOrNot{m.source, test.known}
				s, result := m.status()
				if got := judged(s, v1alpha1.ConditionFenced); got != test.want {
					t.Errorf("the policy says %q, want %q", got, test.want)
				}
				if !test.known && result.RequeueAfter != notYet {
					t.Errorf("it is looked at again after %v", result.RequeueAfter)
				}
			})
		})
	}
}

// knownOrNot is a source that knows all Clusters, or does not.
type knownOrNot struct {
	memberSource
	known bool
}

func (k knownOrNot) synced() bool { return k.known }

func TestTheStatusOfAPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policyOf("fleet", "shops", "shop")
		p.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"region": "here"}}
		here := func(name, priority string) *clusterv1.Cluster {
			c := clusterOf("fleet", name, priority)
			c.Labels["region"] = "here"
			return c
		}
		m := newMuster(t, p, here("a-gone", "5"), here("b-invalid", "high"), clusterOf("fleet", "c-elsewhere", "5"),
			here("east", "5"), here("west", "5"))
		m.loses("a-gone")
		claimed(t, m.Controller, "shop", "shops")
		claimed(t, m.Controller, "till", "shops")
		s, _ := m.status()
		if *s.Namespaces != 2 || *s.Clusters != 2 || s.ObservedGeneration != 7 {
			t.Errorf("%d namespaces, %d clusters, generation %d; want 2, 2, 7", *s.Namespaces, *s.Clusters, s.ObservedGeneration)
		}
		for kind, want := range map[string]string{
			v1alpha1.ConditionAccepted: "True Accepted", v1alpha1.ConditionReady: "Unknown NotMeasured",
			v1alpha1.ConditionClustersReachable: "True Reachable", v1alpha1.ConditionClocksAgree: "Unknown NotMeasured",
		} {
			if got := judged(s, kind); got != want {
				t.Errorf("%s: %s, want %s", kind, got, want)
			}
		}
		for _, c := range s.Conditions {
			if c.ObservedGeneration != 7 {
				t.Errorf("%s is of generation %d", c.Type, c.ObservedGeneration)
			}
		}
		if got := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionClocksAgree).Message; got != "not measured "+
			"closely enough yet: east, west" {
			t.Errorf("clocks: %q", got)
		}

		claimed(t, m.Controller, "shop", "older", "shops")
		if s, _ = m.status(); *s.Namespaces != 1 || judged(s, v1alpha1.ConditionAccepted) != "False Conflict" {
			t.Errorf("%d namespaces, accepted: %s", *s.Namespaces, judged(s, v1alpha1.ConditionAccepted))
		}
	})
}

// ill has a member be lost for a minute, recovered for some time, or neither.
func ill(m fleet.Member, lost bool, recovered time.Duration) {
	at := func(ago time.Duration) lease.Reading {
		return lease.Reading{Wall: musterStart.Wall.Add(-ago), Boot: musterStart.Boot - ago}
	}
	for _, kind := range []health.Kind{health.Read, health.Write} {
		m.Observe(health.Observation{Kind: kind, At: at(2 * time.Minute), OK: true})
		switch {
		case lost:
			m.Observe(health.Observation{Kind: kind, At: at(time.Minute), Reason: reason.Unreachable, Message: "silence"})
		case recovered > 0:
			m.Observe(health.Observation{Kind: kind, At: at(time.Minute), Reason: reason.Unreachable, Message: "silence"})
			m.Observe(health.Observation{Kind: kind, At: at(recovered), OK: true})
			m.Observe(health.Observation{Kind: kind, At: at(0), OK: true})
		default:
			m.Observe(health.Observation{Kind: kind, At: at(0), OK: true})
		}
	}
	synctest.Wait()
}

func TestAPolicySaysThatMostClustersAreLost(t *testing.T) {
	for name, test := range map[string]struct {
		west bool
		want metav1.ConditionStatus
		why  string
	}{
		"one of three": {false, metav1.ConditionTrue, "Reachable"},
		"two of three": {true, metav1.ConditionFalse, string(reason.MostUnreachable)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMuster(t, policyOf("fleet", "shops", "shop"), clusterOf("fleet", "east", "5"),
					clusterOf("fleet", "north", "5"), clusterOf("fleet", "west", "5"))
				ill(m.member("east"), true, 0)
				ill(m.member("north"), false, 0)
				ill(m.member("west"), test.west, 0)
				s, _ := m.status()
				c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionClustersReachable)
				if c.Status != test.want || c.Reason != test.why {
					t.Errorf("%+v", c)
				}
				if said := c.Message == "most clusters became unreachable at once, so it may be the hub that is cut off: "+
					"east, west"; said != test.west {
					t.Errorf("%q", c.Message)
				}
			})
		})
	}
}

func TestAPolicyIsLookedAtAgainWhenTheFirstHealthMayChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuster(t, policyOf("fleet", "shops", "shop"), clusterOf("fleet", "east", "5"),
			clusterOf("fleet", "north", "5"), clusterOf("fleet", "west", "5"))
		th := decide.ParsePolicy(policyOf("fleet", "shops", "shop")).Thresholds
		ill(m.member("east"), false, time.Second)
		ill(m.member("north"), false, 3*time.Second)
		ill(m.member("west"), false, 2*time.Second)
		want := m.member("north").Health(th).Next
		if want <= 0 || want >= m.member("east").Health(th).Next || want >= m.member("west").Health(th).Next {
			t.Fatalf("north changes in %v, which should be the first", want)
		}
		if _, result := m.status(); result.RequeueAfter != want {
			t.Errorf("again in %v, want %v", result.RequeueAfter, want)
		}
	})
}

// writes has writes fail, and counts them: those of records, and those of a status.
type writes struct {
	client.Client
	answer     error
	records, n int
}

func (w *writes) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if _, ok := o.(*v1alpha1.NamespaceLeader); ok {
		w.records++
	}
	if w.answer != nil {
		return w.answer
	}
	return w.Client.Update(ctx, o, opts...)
}

func (w *writes) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	w.records++
	if w.answer != nil {
		return w.answer
	}
	return w.Client.Create(ctx, o, opts...)
}

func (w *writes) Status() client.SubResourceWriter { return &statusWrites{w.Client.Status(), w} }

type statusWrites struct {
	client.SubResourceWriter
	w *writes
}

func (s *statusWrites) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	s.w.n++
	if s.w.answer != nil {
		return s.w.answer
	}
	return s.SubResourceWriter.Update(ctx, o, opts...)
}

func TestAPolicyStatusIsWrittenWhenItSaysSomethingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuster(t, policyOf("fleet", "shops", "shop"), clusterOf("fleet", "east", "5"))
		w := &writes{Client: m.api}
		m.Client = w
		request := mcreconcile.Request{Request: reconcile.Request{NamespacedName: shops}}
		for i, want := range []int{1, 1} {
			if m.status(); w.n != want {
				t.Errorf("after look %d it was written %d times, want %d", i+1, w.n, want)
			}
		}
		for name, test := range map[string]struct {
			answer error
			fails  bool
		}{
			"a conflict: the other writer's event brings it back": {
				apierrors.NewConflict(recordResource, "shops", errRefused), false,
			},
			"it is gone":    {apierrors.NewNotFound(recordResource, "shops"), false},
			"anything else": {errors.New("no answer"), true},
		} {
			w.answer = test.answer
			claimed(t, m.Controller, name, "shops")
			if _, err := m.statuses.reconcilePolicy(t.Context(), request); (err != nil) != test.fails {
				t.Errorf("%s: %v", name, err)
			}
		}
		w.answer = nil
		request.Name = "gone"
		if result, err := m.statuses.reconcilePolicy(t.Context(), request); err != nil || result != (reconcile.Result{}) {
			t.Errorf("a policy that is gone: %+v, %v", result, err)
		}
		m.standby()
		n := w.n
		request.Name = "shops"
		if result, err := m.statuses.reconcilePolicy(t.Context(), request); err != nil || result.RequeueAfter != notYet ||
			w.n != n {
			t.Errorf("a standby: %+v, %v, %d writes", result, err, w.n-n)
		}
	})
}

func TestWhetherAPolicyIsAccepted(t *testing.T) {
	valid, invalid := decide.ParsePolicy(policyOf("fleet", "shops", "shop")),
		decide.ParsePolicy(policyOf("fleet", "shops", "shop"))
	invalid.Invalid = errors.New("renewIntervalMilliseconds is too long")
	want := metav1.Condition{Type: v1alpha1.ConditionAccepted}
	for name, test := range map[string]struct {
		policy  *decide.Policy
		lost    []string
		refused string
		status  metav1.ConditionStatus
		why     reason.Reason
		words   string
	}{
		"it is": {
			valid, nil, "", metav1.ConditionTrue, reason.Accepted, "the policy is valid and acted on; beware",
		},
		"an older one was first": {
			valid, []string{"a (to x)", "b (to y)"}, "a lock", metav1.ConditionFalse, reason.Conflict,
			"other policies own these namespaces, so this one has no effect there: a (to x), b (to y)",
		},
		"an older one fences its Lease": {valid, nil, "a lock", metav1.ConditionFalse, reason.Conflict, "a lock"},
		"it is invalid, which comes first": {
			invalid, []string{"a (to x)"}, "a lock", metav1.ConditionFalse, reason.InvalidPolicy,
			"renewIntervalMilliseconds is too long",
		},
	} {
		want.Status, want.Reason, want.Message = test.status, string(test.why), test.words
		if got := explain.Accepted(test.policy, test.lost, test.refused, "; beware"); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	long := strings.Repeat("x", 2000)
	invalid.Invalid = errors.New(long)
	lost := measured(long, twoAhead)
	lost.Verdict.State = health.Unhealthy
	unmeasured := measured(long, vague)
	for name, c := range map[string]metav1.Condition{
		"invalid": explain.Accepted(invalid, nil, "", ""), "lost": explain.Accepted(valid, []string{long}, "", ""),
		"refused":     explain.Accepted(valid, nil, long, ""),
		"unreachable": explain.ClustersReachable(true, []decide.Member{lost}),
		"off":         explain.ClocksAgree([]decide.Member{lost}), "open": explain.ClocksAgree([]decide.Member{unmeasured}),
	} {
		if len(c.Message) != 1024 {
			t.Errorf("%s: %d bytes, a condition takes 1024", name, len(c.Message))
		}
	}
}

func TestAcceptedWarnsOfTermsThatMayLapseWithAReplica(t *testing.T) {
	timings := decide.ParsePolicy(policyOf("fleet", "shops", "shop")).Election.Timings
	if got := explain.HubLossWarning(timings, 6*time.Second); got != "" {
		t.Errorf("warns of the default profile: %q", got)
	}
	want := "; if a hub replica is lost, terms may lapse: renewIntervalMilliseconds, 7.5s for its election, " +
		"requestTimeoutMilliseconds and maxClockSkewMilliseconds add up to more than leaseDurationMilliseconds (15s)"
	if got := explain.HubLossWarning(timings, 7500*time.Millisecond); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestReadyIsTheSumOfTheOtherConditions(t *testing.T) {
	yes := metav1.Condition{
		Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: "Accepted", Message: "fine",
	}
	open := metav1.Condition{
		Type: v1alpha1.ConditionClocksAgree, Status: metav1.ConditionUnknown, Reason: "NotMeasured", Message: "not yet",
	}
	no := metav1.Condition{
		Type: v1alpha1.ConditionFenced, Status: metav1.ConditionFalse, Reason: "Unfenced", Message: "south",
	}
	worse := metav1.Condition{
		Type: v1alpha1.ConditionSecretsGranted, Status: metav1.ConditionFalse, Reason: "GrantMissing", Message: "bind",
	}
	was := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Before"}
	for name, test := range map[string]struct {
		others []metav1.Condition
		want   string
	}{
		"all are True":                {[]metav1.Condition{was, yes}, "True Ready "},
		"one is Unknown":              {[]metav1.Condition{yes, open}, "Unknown NotMeasured ClocksAgree: not yet"},
		"False counts before Unknown": {[]metav1.Condition{open, yes, no}, "False Unfenced Fenced: south"},
		"two are False: both are in its text": {
			[]metav1.Condition{no, worse}, "False Unfenced Fenced: south; SecretsGranted: bind",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := told([]metav1.Condition{explain.PolicyReady(test.others)}, v1alpha1.ConditionReady); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// What counts where a policy leaves a default out is in its status.
func TestStatusHasTheHealthThatCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newMuster(t, policyOf("fleet", "shops", "shop")).status()
		if s.UnreachableAfterMilliseconds != 10_000 || *s.RecoverAfterMilliseconds != 5000 {
			t.Errorf("unreachable after %d ms, recovered after %d ms", s.UnreachableAfterMilliseconds,
				*s.RecoverAfterMilliseconds)
		}
	})
}

func TestWhatAPolicySaysOfSecrets(t *testing.T) {
	long := strings.Repeat("x", 2000)
	want := metav1.Condition{Type: v1alpha1.ConditionSecretsGranted}
	for name, test := range map[string]struct {
		missing, broken string
		status          metav1.ConditionStatus
		why, words      string
	}{
		"all is granted":               {"", "", metav1.ConditionTrue, "Granted", ""},
		"a grant is missing":           {"bind the role", "", metav1.ConditionFalse, "GrantMissing", "bind the role"},
		"as much as a condition takes": {long, "", metav1.ConditionFalse, "GrantMissing", long[:1024]},
		"the seal is broken": {
			"", "its key is too short", metav1.ConditionFalse, string(reason.InvalidSeal), "its key is too short",
		},
		"both, and a grant is what helps": {
			"bind the role", "no seal", metav1.ConditionFalse, "GrantMissing", "bind the role",
		},
	} {
		want.Status, want.Reason, want.Message = test.status, test.why, test.words
		if got := explain.SecretsGranted(test.missing, test.broken); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// People look at the policy to see whether what it fences is there.
func TestAPolicyTellsOfWhatItFences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policyOf("fleet", "shops", "shop")
		p.Spec.Fencing = &v1alpha1.Fencing{
			Writes: []v1alpha1.WriteFence{{
				ServiceAccounts: []v1alpha1.FencedServiceAccount{{Name: "checkout"}}, Resources: []v1alpha1.FencedResources{
					{Names: []string{"pods"}},
				},
			}},
			LeaderElectionLocks: []v1alpha1.LockFence{simLock},
		}
		s, _ := newMuster(t, p).status()
		if got := judged(s, v1alpha1.ConditionFenceTargetsFound); got != "Unknown LockUnseen" {
			t.Errorf("its targets: %s", got)
		}
		got := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionFenceTargetsFound).Message
		if !strings.Contains(got, "stock/stock; no cluster has shown yet") || !strings.Contains(got, "checkout") {
			t.Errorf("it does not name the lock and the account: %q", got)
		}
	})
}
