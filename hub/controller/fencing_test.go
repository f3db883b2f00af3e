package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/explain"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
)

// fencing is a policy of fleet default for namespace shop.
func fencing(f *v1alpha1.Fencing) *v1alpha1.LeadershipPolicy {
	return &v1alpha1.LeadershipPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shops"},
		Spec: v1alpha1.LeadershipPolicySpec{
			Handover: v1alpha1.HandoverRegisteredReaders, Namespaces: v1alpha1.NamespaceSelection{Names: []string{"shop"}},
			Fencing: f,
		},
	}
}

// An API server that is behind admits Jobs until the term has expired, whatever readers say.
func TestWhereSchedulesAreFencedReadersShortenNothing(t *testing.T) {
	for name, test := range map[string]struct {
		fencing      *v1alpha1.Fencing
		acknowledged bool
	}{
		"nothing is fenced": {nil, true},
		"writes are":        {&v1alpha1.Fencing{Writes: []v1alpha1.WriteFence{{}}}, true},
		"schedules are":     {&v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}}, false},
		"schedules are, by name": {
			&v1alpha1.Fencing{Enforcement: v1alpha1.EnforcementDeny, Schedules: &metav1.LabelSelector{}}, false,
		},
		"locks are": {&v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{simLock}}, false},
		"there is a warning about them": {
			&v1alpha1.Fencing{Enforcement: v1alpha1.EnforcementWarn, Schedules: &metav1.LabelSelector{}}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := decide.ParsePolicy(fencing(test.fencing)).Election.Acknowledged; got != test.acknowledged {
				t.Errorf("acknowledged: %v, want %v", got, test.acknowledged)
			}
		})
	}
}

func TestHowLongLocksAreWaitedFor(t *testing.T) {
	unstated := v1alpha1.LockFence{LeaseDurationSeconds: 15, RenewDeadlineSeconds: 10, RetryPeriodSeconds: 2}
	quick := unstated
	quick.RequestTimeoutSeconds, quick.ReleaseTimeoutSeconds = 5, ptr.To[int32](0)
	slow := v1alpha1.LockFence{
		LeaseDurationSeconds: 60, RenewDeadlineSeconds: 40, RetryPeriodSeconds: 15, RequestTimeoutSeconds: 20,
		ReleaseTimeoutSeconds: ptr.To[int32](0),
	}
	for name, test := range map[string]struct {
		mode  v1alpha1.Enforcement
		locks []v1alpha1.LockFence
		want  time.Duration
	}{
		"there are none": {"", nil, 0},
		"the policy states how long requests take": {"", []v1alpha1.LockFence{quick}, 17 * time.Second},
		"the policy states nothing":                {"", []v1alpha1.LockFence{unstated}, 192 * time.Second},
		"the slowest counts":                       {"", []v1alpha1.LockFence{quick, slow, quick}, 75 * time.Second},
		"a warning keeps nobody from renewing":     {v1alpha1.EnforcementWarn, []v1alpha1.LockFence{slow}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := decide.ParsePolicy(fencing(&v1alpha1.Fencing{Enforcement: test.mode, LeaderElectionLocks: test.locks}))
			if got := p.Election.StopTime; got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestWhichFencesAMemberHasToHaveInForce(t *testing.T) {
	missing := func(guard.Fence, string) error { return guard.ErrNotEnforced }
	schedules := &metav1.LabelSelector{}
	elsewhere := func(_ guard.Fence, namespace string) error {
		if namespace == "shop" {
			return nil
		}
		return guard.ErrNotEnforced
	}
	where := func(missing func(guard.Fence) bool) func(guard.Fence, string) error {
		return func(f guard.Fence, _ string) error {
			if missing(f) {
				return guard.ErrNotEnforced
			}
			return nil
		}
	}
	both := &v1alpha1.Fencing{
		Schedules: schedules, Writes: []v1alpha1.WriteFence{{ObjectLabels: map[string]string{"role": "leader"}}},
	}
	for name, test := range map[string]struct {
		fencing *v1alpha1.Fencing
		stands  func(guard.Fence, string) error
		missed  bool
	}{
		"none is asked for":              {nil, missing, false},
		"one is asked for, and in force": {&v1alpha1.Fencing{Schedules: schedules}, nil, false},
		"one is asked for, and missing":  {&v1alpha1.Fencing{Schedules: schedules}, missing, true},
		"one is missing elsewhere":       {&v1alpha1.Fencing{Schedules: schedules}, elsewhere, false},
		"that of schedules is missing":   {both, where(func(f guard.Fence) bool { return f.Schedules() != nil }), true},
		"that of writes is missing":      {both, where(func(f guard.Fence) bool { return f.Schedules() == nil }), true},
		"that of namespaces by label is": {both, where(func(f guard.Fence) bool { return !f.Covers("shop") }), false},
		"one that only warns is not seen": {
			&v1alpha1.Fencing{Enforcement: v1alpha1.EnforcementWarn, Schedules: schedules}, missing, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, _ := onScene(t)
			c.members.of[eastKey] = &memberState{worker: &laborer{unfenced: test.stands}}
			v := shopView(election.Record{}, decide.Member{Member: fleet.Member{Key: eastKey}})
			o := fencing(test.fencing)
			o.Spec.Namespaces.Selector = &metav1.LabelSelector{}
			v.Policy = asParsed(o)
			completed(t, c, v)
			if missed := v.Members[0].Unfenced; (missed != nil) != test.missed {
				t.Errorf("it misses %v", missed)
			}
		})
	}
}

// Without the policy's namespace a cluster has no Lease, and holders of locks in other namespaces all the same.
func TestALockIsRefusedByClustersWithoutThePolicysNamespace(t *testing.T) {
	west := fleet.Key{Fleet: "fleet", Name: "west"}
	reached := func(*decide.Member) {}
	for name, test := range map[string]struct {
		locks   *corev1.Namespace // the lock's namespace; nil: it does not exist
		unread  error             // instead
		is      func(west *decide.Member)
		fence   error // what west says of the fence
		refused bool
	}{
		"one that refuses the lock":           {&corev1.Namespace{}, nil, reached, nil, true},
		"one that may admit it":               {&corev1.Namespace{}, nil, reached, guard.ErrNotEnforced, false},
		"one that does not allow the fence":   {&corev1.Namespace{}, nil, reached, guard.NotAllowedError{}, false},
		"one without the lock's namespace":    {nil, nil, reached, guard.NotAllowedError{}, true},
		"one whose namespaces cannot be read": {nil, errDisengaged, reached, guard.NotAllowedError{}, false},
		"one with the policy's namespace only": {
			nil, nil, func(m *decide.Member) { m.Namespace = &corev1.Namespace{} }, guard.NotAllowedError{}, false,
		},
		"one in which the policy's namespace is about to be gone": {&corev1.Namespace{}, nil, func(m *decide.Member) {
			m.Namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}}
		}, guard.ErrNotEnforced, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, s, _ := onScene(t)
			s.space, s.refuses = test.locks, test.unread
			c.members.of[eastKey] = &memberState{worker: &laborer{}}
			c.members.of[west] = &memberState{worker: &laborer{unfenced: func(guard.Fence, string) error { return test.fence }}}
			v := shopView(election.Record{}, decide.Member{
				Member: fleet.Member{Key: eastKey, Connected: true}, Namespace: &corev1.Namespace{},
			},
				decide.Member{Member: fleet.Member{Key: west, Connected: true}})
			test.is(&v.Members[1])
			for i := range v.Members {
				v.Members[i].TakesPart = true
			}
			v.Policy = asParsed(fencing(&v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{simLock}}))
			completed(t, c, v)
			if _, refused := v.State.RefusedSince["stock/stock"]; refused != test.refused {
				t.Errorf("every cluster refuses the lock: %v, want %v", refused, test.refused)
			}
		})
	}
	t.Run("one that is not reached counts since then, although its cache is empty", func(t *testing.T) {
		c, s, _ := onScene(t)
		s.space = nil
		c.members.of[eastKey] = &memberState{worker: &laborer{}}
		away := decide.Member{Member: fleet.Member{Key: west}, TakesPart: true}
		v := shopView(election.Record{}, decide.Member{Member: fleet.Member{Key: eastKey, Connected: true},
			Namespace: &corev1.Namespace{}, TakesPart: true}, away)
		v.Policy = asParsed(fencing(&v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{simLock}}))
		completed(t, c, v)
		if since := v.State.RefusedSince["stock/stock"]; since != musterStart.Boot {
			t.Errorf("it is refused since %v, want %v", since, musterStart.Boot)
		}
	})
}

// asParsed is a policy that acts, whatever its timings.
func asParsed(o *v1alpha1.LeadershipPolicy) *decide.Policy {
	p := decide.ParsePolicy(o)
	p.Unknown = false
	return p
}

func nothingLost(*decide.Policy) ([]string, error) { return nil, nil }

func leadsNothing(*decide.Policy) bool { return false }

// Programs there may go on until the term and the stop time are over. So the fence that ends them stays as long.
func TestAClusterThatIsNotSelectedAnyMoreKeepsItsFencesWhileItLeads(t *testing.T) {
	for name, test := range map[string]struct {
		record func(*v1alpha1.NamespaceLeaderSpec)
		fences int
	}{
		"while its term drains": {
			func(s *v1alpha1.NamespaceLeaderSpec) { s.State, s.Leader = v1alpha1.StateDraining, "east" }, 1,
		},
		"once another leads": {func(s *v1alpha1.NamespaceLeaderSpec) { s.Leader = "west" }, 0},
		"once nobody leads":  {func(s *v1alpha1.NamespaceLeaderSpec) { s.State, s.Leader = v1alpha1.StateVacant, "" }, 0},
		"for another policy": {func(s *v1alpha1.NamespaceLeaderSpec) { s.Leader, s.Policy = "east", "other" }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, api := onScene(t)
			restated(t, api, func(o *v1alpha1.NamespaceLeader) {
				o.Spec.Policy = "shops"
				test.record(&o.Spec)
			})
			o := fencing(&v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{simLock}})
			o.Namespace, o.Name = "fleet", "shops"
			o.Spec.Timings = policyOf("fleet", "shops", "shop").Spec.Timings
			o.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "b"}}
			m := fleet.Member{Key: eastKey, Labels: map[string]string{"zone": "a"}}
			leads := func(p *decide.Policy) bool { return c.policies.leadsFor(t.Context(), p, m) }
			fs, _, err := decide.FencesIn("this", []*decide.Policy{decide.ParsePolicy(o)}, m, nothingLost, leads)
			if len(fs) != test.fences || err != nil {
				t.Errorf("there are %d fences, want %d (%v)", len(fs), test.fences, err)
			}
		})
	}
}

func TestWhatAPolicySaysOfItsFences(t *testing.T) {
	err := func(err error) func(guard.Fence, string) error {
		return func(guard.Fence, string) error { return err }
	}
	schedules, like := &metav1.LabelSelector{}, simLock
	like.Name = "like"
	for name, test := range map[string]struct {
		fencing *v1alpha1.Fencing
		stands  func(guard.Fence, string) error
		want    string
	}{
		"none is asked for": {nil, nil, "nothing"},
		"one is in force":   {&v1alpha1.Fencing{Schedules: schedules}, nil, "True InForce"},
		"a lock is fenced": {&v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{simLock}}, nil,
			"True InForce in force in all 1 clusters; refused in every cluster until each earlier holder must have " +
				"stopped: stock/stock"},
		"of locks that take as long the first is named": {&v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{simLock,
			like}}, nil,
			"True InForce in force in all 1 clusters; refused in every cluster until each earlier holder must have " +
				"stopped: stock/like, stock/stock; a change of leader takes 4s more, for the lock stock/stock"},
		"one only warns": {
			&v1alpha1.Fencing{Enforcement: v1alpha1.EnforcementWarn, Schedules: schedules}, nil, "True Warns",
		},
		"one is missing": {
			&v1alpha1.Fencing{Schedules: schedules}, err(guard.ErrNotEnforced),
			"False Unfenced east (the cluster does not refuse yet what it must)",
		},
		"one is forbidden": {
			&v1alpha1.Fencing{Schedules: schedules}, err(guard.ErrForbidden),
			"False Unfenced east (the cluster forbids it: apply config/member there, and config/fencing for fences)",
		},
		"one is refused": {&v1alpha1.Fencing{Schedules: schedules},
			err(fmt.Errorf("%w (%w)", guard.ErrForbidden,
				apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("says a webhook")))),
			"False Unfenced east (the cluster forbids it: apply config/member there, and config/fencing for fences: " +
				"forbidden: says a webhook)"},
		"two are not allowed": {&v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{simLock, like}},
			err(guard.NotAllowedError{Namespaces: []string{"stock"}}),
			"False Unfenced east (an administrator of the cluster has to allow what is fenced outside the policy's " +
				"namespaces: kubectl label namespace stock leasecast.dev/fencing=allowed)"},
		"one is not stored": {
			&v1alpha1.Fencing{Schedules: schedules}, err(apierrors.NewInvalid(schema.GroupKind{}, "gate", nil)),
			"False Unfenced east (the cluster does not store a fence that the policy asks for: change the policy: ",
		},
		"one is not known": {
			&v1alpha1.Fencing{Schedules: schedules}, err(guard.ErrUnsupported),
			"False Unfenced east (the cluster serves no ValidatingAdmissionPolicies",
		},
		"one is not checked": {
			&v1alpha1.Fencing{Schedules: schedules}, err(fmt.Errorf("later")),
			"False Unfenced east (it has not been checked yet)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Options{HubID: "this"})
			c.Client = hubOf(t, c)
			c.members.of[eastKey] = &memberState{worker: &laborer{unfenced: test.stands}}
			o := fencing(test.fencing)
			o.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionFenced, Status: metav1.ConditionUnknown}}
			c.statuses.noteFences(t.Context(), nil, asParsed(o), o, []decide.Member{{Member: fleet.Member{Key: eastKey}}}, nil)
			got := "nothing"
			if cond := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionFenced); cond != nil {
				got = fmt.Sprintf("%s %s %s", cond.Status, cond.Reason, cond.Message)
			}
			if !strings.HasPrefix(got, test.want) {
				t.Errorf("it says %q, want %q", got, test.want)
			}
		})
	}
}

func TestAPolicySaysThatAFenceIsMissingWhereNobodyWorksYet(t *testing.T) {
	o := fencing(&v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}})
	New(Options{HubID: "this"}).statuses.noteFences(t.Context(), nil, asParsed(o), o,
		[]decide.Member{{Member: fleet.Member{Key: eastKey}}}, nil)
	if cond := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionFenced); cond == nil ||
		cond.Status != metav1.ConditionFalse {
		t.Errorf("it says %+v", cond)
	}
}

// Two policies never gate one lock: it would be held nowhere, or the wrong leader would count.
func TestALockHasOneFenceInAMember(t *testing.T) {
	named := func(name string, clusters map[string]string, f *v1alpha1.Fencing) *decide.Policy {
		o := fencing(f)
		o.Name, o.Spec.Timings = name, v1alpha1.Timings{
			LeaseDurationMilliseconds: 15_000, RenewIntervalMilliseconds: 5000, RequestTimeoutMilliseconds: 3000,
			MaxClockSkewMilliseconds: 1000,
		}
		o.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: clusters}
		return decide.ParsePolicy(o)
	}
	written := func(name, lease string) *decide.Policy {
		p := named(name, nil, nil)
		p.Object.Spec.LeaseName = lease
		return p
	}
	locks := &v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{simLock}}
	invalid := named("old", nil, locks)
	invalid.Invalid, invalid.Unknown = errors.New("its timings"), true
	other := simLock
	other.Name = "other"
	m := decide.Member{Member: fleet.Member{Key: eastKey, Labels: map[string]string{"zone": "a"}}}
	for name, test := range map[string]struct {
		older, younger *decide.Policy
		fences         int
		by             string
	}{
		"both fence it": {
			named("old", nil, locks), named("young", nil, locks), 1, "the policy old fences the lock stock/stock",
		},
		"the older one is invalid": {
			invalid, named("young", nil, locks), 1,
			"the policy old is invalid, and a fence that it had may refuse the lock stock/stock everywhere",
		},
		"the hub writes it for the older one": {
			written("old", simLock.Name), named("young", nil, locks), 0,
			"the lock stock/stock has the name of the Leases that the hub writes for the policy old",
		},
		"the hub writes it for the younger": {named("old", nil, locks), written("young", simLock.Name), 1, ""},
		"they fence different ones": {
			named("old", nil, locks), named("young", nil, &v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{other}}),
			2, "",
		},
		"in different clusters": {
			named("old", map[string]string{"zone": "b"}, locks), named("young", nil, locks), 1, "",
		},
		"the older one fences none":    {named("old", nil, nil), named("young", nil, locks), 1, ""},
		"the younger one has no fence": {named("old", nil, locks), named("young", nil, nil), 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			all := []*decide.Policy{test.older, test.younger}
			if fs, _, err := decide.FencesIn("this", all, m.Member, nothingLost, leadsNothing); len(fs) != test.fences ||
				err != nil {
				t.Errorf("there are %d fences, want %d (%v)", len(fs), test.fences, err)
			}
			if test.younger.Object.Spec.Fencing == nil {
				return
			}
			c, o := New(Options{HubID: "this"}), test.younger.Object
			c.members.of[eastKey] = &memberState{worker: &laborer{}}
			c.Client = hubOf(t, c)
			c.statuses.noteFences(t.Context(), all, test.younger, o, []decide.Member{m}, nil)
			if got := told(o.Status.Conditions, v1alpha1.ConditionFenced); test.by != "" &&
				!strings.HasPrefix(got, "False Unfenced "+test.by) ||
				test.by == "" && !strings.HasPrefix(got, "True InForce ") {
				t.Errorf("its condition is %q", got)
			}
		})
	}
}

// The younger policy was never led there. It does not take the lock of the older one out of the fence.
func TestAPolicyWhoseLeaseAnOlderOneFencesSaysSo(t *testing.T) {
	locks := &v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{simLock}}
	named := func(name string, change func(*v1alpha1.LeadershipPolicySpec)) *decide.Policy {
		o := fencing(nil)
		o.Name = name
		change(&o.Spec)
		return decide.ParsePolicy(o)
	}
	old := named("old", func(s *v1alpha1.LeadershipPolicySpec) { s.Fencing = locks })
	in := func(names ...string) func(*v1alpha1.LeadershipPolicySpec) {
		return func(s *v1alpha1.LeadershipPolicySpec) { s.LeaseName, s.Namespaces.Names = simLock.Name, names }
	}
	for name, test := range map[string]struct {
		policies []*decide.Policy // the last one is asked for
		refused  bool
	}{
		"it manages the namespace": {[]*decide.Policy{old, named("young", in("bank", simLock.Namespace))}, true},
		"the older one only warns": {[]*decide.Policy{named("old", func(s *v1alpha1.LeadershipPolicySpec) {
			s.Fencing = locks.DeepCopy()
			s.Fencing.Enforcement = v1alpha1.EnforcementWarn
		}), named("young", in(simLock.Namespace))}, false},
		"the older one is about others": {[]*decide.Policy{named("old", func(s *v1alpha1.LeadershipPolicySpec) {
			s.Fencing, s.ClusterSelector = locks, &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "b"}}
		}), named("young", in(simLock.Namespace))}, false},
		"it manages others": {[]*decide.Policy{old, named("young", in("bank"))}, false},
		"its Leases have another name": {
			[]*decide.Policy{
				old, named("young", func(s *v1alpha1.LeadershipPolicySpec) { s.Namespaces.Names = []string{simLock.Namespace} }),
			},
			false,
		},
		"the one with the lock is the younger": {[]*decide.Policy{named("old", in(simLock.Namespace))}, false},
	} {
		t.Run(name, func(t *testing.T) {
			why := explain.LeaseRefused(append(test.policies, old), test.policies[len(test.policies)-1],
				[]decide.Member{{Member: fleet.Member{Key: eastKey}}})
			if want := "the policy old fences the lock stock/stock"; (why != "") != test.refused ||
				test.refused && !strings.HasPrefix(why, want) {
				t.Errorf("it says %q, want %q: %v", why, want, test.refused)
			}
		})
	}
}

// Nobody knows what an invalid policy asks for, so it loses no fence that it has.
func TestTheFencesOfAnInvalidPolicyStay(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*v1alpha1.LeadershipPolicy)
		fences  int
		invalid []string
	}{
		"it is valid": {func(*v1alpha1.LeadershipPolicy) {}, 1, nil},
		"its Clusters cannot be told": {func(o *v1alpha1.LeadershipPolicy) {
			o.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "no value"}}
		}, 0, []string{"shops"}},
		"it selects other Clusters": {func(o *v1alpha1.LeadershipPolicy) {
			o.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "b"}}
		}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := policyOf("fleet", "shops", "shop")
			o.Spec.Fencing = &v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{simLock}}
			test.change(o)
			all := []*decide.Policy{decide.ParsePolicy(o)}
			c := New(Options{HubID: "this"})
			c.Client = hubOf(t, c)
			c.statuses.noteFences(t.Context(), all, all[0], o, []decide.Member{{Member: fleet.Member{Key: eastKey}}}, nil)
			says := told(o.Status.Conditions, v1alpha1.ConditionFenced)
			stay := says == "False Unfenced the policy is invalid: the fences that it had stay as they were"
			if stay != (test.invalid != nil) {
				t.Errorf("its condition is %q", says)
			}
			fs, invalid, err := decide.FencesIn("this", all, fleet.Member{Key: eastKey}, nothingLost, leadsNothing)
			if err != nil || len(fs) != test.fences || !slices.Equal(invalid, test.invalid) {
				t.Errorf("%d fences, invalid are %q; want %d, %q", len(fs), invalid, test.fences, test.invalid)
			}
		})
	}
}
