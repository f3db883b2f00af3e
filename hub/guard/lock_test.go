package guard_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/guard"
)

// take creates the lock "stock" of a namespace, or renews it, as an elector does. An empty holder releases it.
func take(ctx context.Context, c kubernetes.Interface, ns, name, holder string) error {
	spec := fmt.Sprintf(`{"spec":{"holderIdentity":%q,"leaseDurationSeconds":15,"renewTime":%q}}`,
		holder, time.Now().UTC().Format(metav1.RFC3339Micro))
	err := send(ctx, c, ns, name, "update leases "+spec)
	if err != nil && strings.HasPrefix(err.Error(), "get: ") {
		err = send(ctx, c, ns, name, "create leases "+merged(foreign, spec))
	}
	return err
}

func mustTake(t *testing.T, ns, name, holder, want string) {
	t.Helper()
	if err := expect(take(t.Context(), administrator(t), ns, name, holder), want); err != nil {
		t.Errorf("%q takes %s: %v", holder, name, err)
	}
}

// allow labels a namespace, as an administrator does who allows fences from outside. An empty label is removed.
func allow(t *testing.T, namespace, label string) {
	t.Helper()
	value := "null"
	if label != "" {
		value = strconv.Quote(label)
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, v1alpha1.FencingLabel, value)
	musttest.Get(administrator(t).CoreV1().Namespaces().Patch(context.WithoutCancel(t.Context()), namespace,
		types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(t)
}

// A lock can be taken and renewed where its cluster leads the policy's namespace, in the term, once it is open.
func TestLockFence_RejectsOutsideTheTerm(t *testing.T) {
	parallel(t)
	with := func(s state, open string) *state { s.open = open; return &s }
	ended := &state{began: -time.Minute, renewed: -time.Minute, lasts: time.Second, open: "ID"}
	for name, test := range map[string]struct {
		lease     *state
		want      string
		release   string
		forbidden bool // in the lock's namespace
	}{
		"the lock is open":                 {lease: with(eastLeads, "ID")},
		"the lock is one of several":       {lease: with(eastLeads, "aaaaaaaaaaaa,ID,ffffffffffff")},
		"no lock is open":                  {lease: with(eastLeads, ""), want: lockNotOpen},
		"other locks are open":             {lease: with(eastLeads, "aaaaaaaaaaaa,ffffffffffff"), want: lockNotOpen},
		"a longer ID is open":              {lease: with(eastLeads, "IDff"), want: lockNotOpen},
		"another cluster leads":            {lease: with(westLeads, "ID"), want: notLeading},
		"no cluster leads":                 {lease: with(state{holder: "-"}, "ID"), want: notLeading},
		"the term has ended":               {lease: ended, want: termIsOver},
		"the hub's clock is ahead":         {lease: with(hubAhead, "ID"), want: hubIsAhead},
		"there is no Lease":                {want: noParameter, release: noParameter},
		"another leads, without the label": {lease: with(westLeads, ""), forbidden: true},
		"no Lease, without the label":      {forbidden: true},
	} {
		t.Run(name, func(t *testing.T) {
			admin, h, ns, locks := administrator(t), hubOf(t), newNamespace(t), newNamespace(t)
			allow(t, locks, v1alpha1.FencingAllowed)
			mustTake(t, locks, "stock", "before", allowed)
			f := fenceOf(t, policy("locks", lockIn(locks), ns))
			if lock, _ := f.Lock(); test.lease != nil {
				s := *test.lease
				s.open = strings.ReplaceAll(s.open, "ID", lock.ID())
				shows(t, ns, s)
			}
			h.keeps(t, f, map[string]bool{ns: test.lease != nil})
			if test.forbidden {
				allow(t, locks, "no")
			}
			eventually(t, "the answer is "+test.want, func(ctx context.Context) error {
				return expect(take(ctx, admin, locks, "stock", "me"), test.want)
			})
			mustTake(t, locks, "stock", "", test.release)
			mustTake(t, locks, "another", "me", allowed)
			mustTake(t, ns, "stock", "me", allowed) // the same name elsewhere
			mustAnswer(t, admin, locks, "stock", "delete leases", allowed)
			mustTake(t, locks, "stock", "me", test.want)
		})
	}
}

// Without managedFields the API server shows no time of a renewal.
func TestLockFence_RejectsALockWithoutManagedFields(t *testing.T) {
	parallel(t)
	ns, admin := newNamespace(t), administrator(t)
	f := fenceOf(t, policy("locks", lockIn(ns), ns))
	lock, _ := f.Lock()
	shows(t, ns, state{open: lock.ID()})
	hubOf(t).keeps(t, f, map[string]bool{ns: true})
	eventually(t, "the lock is taken", func(ctx context.Context) error { return take(ctx, admin, ns, "stock", "me") })
	mustAnswer(t, admin, ns, "stock",
		`update leases {"metadata":{"managedFields":[{}]},"spec":{"holderIdentity":"other"}}`,
		"this lock has lost its managedFields, so nobody knows when it is renewed: delete this Lease")
	mustSend(t, admin, ns, "stock", "delete leases")
	mustTake(t, ns, "stock", "me", allowed)
}

func TestLockFence_NeedsTheLabelOutsideThePolicysNamespace(t *testing.T) {
	parallel(t)
	admin, h, ns := administrator(t), hubOf(t), newNamespace(t)
	shows(t, ns, westLeads)
	active := map[string]bool{ns: true}
	h.keeps(t, fenceOf(t, policy("own", lockIn(ns), ns)), active)
	mustTake(t, ns, "stock", "me", notLeading)
	f := fenceOf(t, policy("elsewhere", lockIn(metav1.NamespaceSystem), ns))
	h.wants(f, active)
	h.keeps(t, fenceOf(t, policy("later", lockIn(ns), ns)), active) // by now that one would be in force, too
	t.Cleanup(func() { allow(t, metav1.NamespaceSystem, "") })
	for _, label := range []string{"", "yes"} {
		allow(t, metav1.NamespaceSystem, label)
		h.turn(t.Context())
		if err := h.Unfenced(f, ns); !errors.Is(err, guard.ErrNotEnforced) {
			t.Errorf("with the label %q: %v", label, err)
		}
		mustTake(t, metav1.NamespaceSystem, "stock", "me", allowed)
		mustSend(t, admin, metav1.NamespaceSystem, "stock", "delete leases")
	}
	allow(t, metav1.NamespaceSystem, v1alpha1.FencingAllowed)
	h.keeps(t, f, active)
	mustTake(t, metav1.NamespaceSystem, "stock", "me", notLeading)
}

// Where the policy's namespace does not exist, no cluster leads it.
func TestLockFence_RejectsWithoutThePolicysNamespace(t *testing.T) {
	parallel(t)
	locks := newNamespace(t)
	allow(t, locks, v1alpha1.FencingAllowed)
	hubOf(t).keeps(t, fenceOf(t, policy("locks", lockIn(locks), "nowhere")), nil)
	mustTake(t, locks, "stock", "me", noParameter)
}

func TestScheduleFence_RejectsJobsOutsideTheTerm(t *testing.T) {
	parallel(t)
	admin := administrator(t)
	began := state{began: -time.Minute}
	for name, test := range map[string]struct {
		lease state
		tick  time.Duration // since the second in which the term began, if not zero
		want  string
	}{
		"another cluster leads":            {westLeads, 0, notLeading},
		"the term has ended":               {termEnded, 0, termIsOver},
		"the hub's clock is ahead by 50 s": {state{began: -time.Minute, renewed: 50 * time.Second}, 0, allowed},
		"the hub's clock is ahead by 1 h":  {state{began: -time.Minute, renewed: time.Hour}, 0, hubIsAhead},
		"a tick before the term":           {began, time.Nanosecond, earlierTick},
		"a tick at its first full second":  {began, time.Second, allowed},
	} {
		t.Run(name, func(t *testing.T) {
			ns, job := newNamespace(t), "create jobs"
			fences(t, allJobs, map[string]*state{ns: &test.lease})
			if test.tick != 0 {
				l := musttest.Get(
					admin.CoordinationV1().Leases(ns).Get(t.Context(), v1alpha1.DefaultLeaseName, metav1.GetOptions{}),
				)(t)
				at := l.Spec.AcquireTime.UTC().Truncate(time.Second).Add(test.tick).Format(time.RFC3339)
				job += ` {"metadata":{"annotations":{"batch.kubernetes.io/cronjob-scheduled-timestamp":"` + at + `"}}}`
			}
			answersSoon(t, admin, ns, job, test.want)
		})
	}
}

func TestScheduleFence_SelectsJobsByTheirLabels(t *testing.T) {
	parallel(t)
	admin := administrator(t)
	expression := func(o metav1.LabelSelectorOperator, values ...string) metav1.LabelSelector {
		one := metav1.LabelSelectorRequirement{Key: "a", Operator: o, Values: values}
		return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{one}}
	}
	for name, test := range map[string]struct {
		selector       metav1.LabelSelector
		fenced, spared []string
	}{
		"labels": {metav1.LabelSelector{MatchLabels: map[string]string{"a": "1", "b": "2"}},
			[]string{`{"a":"1","b":"2"}`}, []string{`{}`, `{"a":"1"}`, `{"a":"1","b":"3"}`}},
		"In": {expression(metav1.LabelSelectorOpIn, "1", "2"), []string{`{"a":"1"}`, `{"a":"2"}`},
			[]string{`{}`, `{"a":"3"}`}},
		"NotIn":        {expression(metav1.LabelSelectorOpNotIn, "1"), []string{`{}`, `{"a":"2"}`}, []string{`{"a":"1"}`}},
		"Exists":       {expression(metav1.LabelSelectorOpExists), []string{`{"a":"1"}`}, []string{`{}`, `{"b":"1"}`}},
		"DoesNotExist": {expression(metav1.LabelSelectorOpDoesNotExist), []string{`{}`, `{"b":"1"}`}, []string{`{"a":"1"}`}},
		"everything":   {metav1.LabelSelector{}, []string{`{}`, `{"a":"1"}`}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNamespace(t)
			fences(t, v1alpha1.Fencing{Schedules: &test.selector}, map[string]*state{ns: nil})
			for want, labels := range map[string][]string{noLeader: test.fenced, allowed: test.spared} {
				for i, set := range labels {
					name := fmt.Sprintf("job-%d-%d", len(want), i)
					mustAnswer(t, admin, ns, name, `create jobs {"metadata":{"labels":`+set+`}}`, want)
				}
			}
			if len(test.spared) > 0 { // a label that is added later fences nothing
				mustAnswer(t, admin, ns, "job-0-0", `merge jobs {"metadata":{"labels":{"a":"1","b":"2"}}}`, allowed)
			}
		})
	}
}

func TestFences_OneForEachListAndLock(t *testing.T) {
	own := []v1alpha1.FencedServiceAccount{{Name: "a"}, {Namespace: "shop", Name: "b"}}
	elsewhere := []v1alpha1.FencedServiceAccount{{Namespace: "ci", Name: "c"}}
	o := policy("shops", v1alpha1.Fencing{
		Writes: []v1alpha1.WriteFence{
			{ServiceAccounts: append(slices.Clone(own), elsewhere...)},
			{ObjectLabels: map[string]string{"led": "shop"}},
		},
		Schedules:           &metav1.LabelSelector{},
		LeaderElectionLocks: append(lockIn("a").LeaderElectionLocks, lockIn("b").LeaderElectionLocks...),
	}, "shop")
	type fence struct {
		Kind, Lock string
		Objects    int
		Accounts   []v1alpha1.FencedServiceAccount
		Jobs, Warn bool
	}
	want := []fence{
		{Kind: "writes", Objects: 2, Accounts: own},
		{Kind: "accounts", Objects: 2, Accounts: elsewhere},
		{Kind: "schedules", Objects: 2, Jobs: true},
		{Kind: "lock", Lock: "a/stock", Objects: 1},
		{Kind: "lock", Lock: "b/stock", Objects: 1},
	}
	names := map[string]bool{}
	for _, mode := range []v1alpha1.Enforcement{v1alpha1.EnforcementDeny, v1alpha1.EnforcementWarn} {
		o.Spec.Fencing.Enforcement = mode
		var got []fence
		for _, f := range guard.Fences("hub", o, nil) {
			names[f.Name()] = true
			one := fence{strings.Split(f.Name(), ".")[2], "", len(f.Names()), f.Accounts(), f.Schedules() != nil, f.Warns()}
			if lock, ok := f.Lock(); ok {
				one.Lock = lock.String()
			}
			got = append(got, one)
		}
		for i := range want {
			want[i].Warn = mode == v1alpha1.EnforcementWarn
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", mode, diff)
		}
	}
	if len(names) != 10 {
		t.Errorf("10 fences have the names %q", slices.Sorted(maps.Keys(names)))
	}
	o.Spec.Fencing = nil
	if fences := guard.Fences("hub", o, nil); len(fences) > 0 {
		t.Errorf("%d fences of a policy without fencing", len(fences))
	}
	if fences := guard.Fences("hub", policy("locks", lockIn("a"), "shop"), []string{"shop"}); len(fences) > 0 {
		t.Errorf("%d fences of a lock by a namespace that another policy owns", len(fences))
	}
}

// Where a policy names namespaces and selects others, one fence covers both.
func TestFence_SelectsNamespaces(t *testing.T) {
	o := policy("both", checkoutWrites, "named", "lost")
	o.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	f, team := guard.Fences("hub", o, []string{"lost"})[0], map[string]string{"team": "a"}
	for name, test := range map[string]struct {
		namespace string
		labels    map[string]string
		want      bool
	}{
		"a named one":               {"named", nil, true},
		"a named one that matches":  {"named", team, true},
		"one that matches":          {"other", team, true},
		"one that does not match":   {"other", nil, false},
		"one that is never managed": {"kube-system", team, false},
		"a lost one":                {"lost", nil, false},
		"a lost one that matches":   {"lost", team, false},
	} {
		if got := f.Selects(test.namespace, test.labels); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestDenied_NamesNamespacesWithoutTheLabel(t *testing.T) {
	writesBy := func(namespaces ...string) v1alpha1.Fencing {
		var accounts []v1alpha1.FencedServiceAccount
		for _, ns := range namespaces {
			accounts = append(accounts, v1alpha1.FencedServiceAccount{Namespace: ns, Name: "checkout"})
		}
		return v1alpha1.Fencing{Writes: []v1alpha1.WriteFence{{ServiceAccounts: accounts, Resources: apps}}}
	}
	bySelector := policy("p", writesBy("shop"))
	bySelector.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	of := func(f v1alpha1.Fencing) *v1alpha1.LeadershipPolicy { return policy("p", f, "shop") }
	const yes = v1alpha1.FencingAllowed
	for name, test := range map[string]struct {
		policy *v1alpha1.LeadershipPolicy
		label  string // of the namespace ci
		lost   string // what another policy owns
		want   []string
	}{
		"a lock of the policy":                  {of(lockIn("shop")), "", "", []string{""}},
		"a lock elsewhere, allowed":             {of(lockIn("ci")), yes, "", []string{""}},
		"a lock elsewhere, no label":            {of(lockIn("cd")), yes, "", []string{"cd"}},
		"a lock elsewhere, another label":       {of(lockIn("ci")), "true", "", []string{"ci"}},
		"a lock in a missing namespace":         {of(lockIn("bank")), yes, "", []string{"bank"}},
		"accounts of every namespace":           {of(checkoutWrites), "", "", []string{""}},
		"an account of a named namespace":       {of(writesBy("shop")), "", "", []string{""}},
		"an account of a selected namespace":    {bySelector, "", "", []string{""}},
		"an account of a lost namespace":        {bySelector, "", "shop", []string{"shop"}},
		"an account elsewhere, allowed":         {of(writesBy("ci")), yes, "", []string{""}},
		"accounts elsewhere, no label":          {of(writesBy("cd", "ci", "cd")), "", "", []string{"cd ci"}},
		"accounts here and elsewhere, no label": {of(writesBy("shop", "ci", "")), "", "", []string{"", "ci"}},
		"accounts elsewhere, one is allowed":    {of(writesBy("cd", "ci")), yes, "", []string{"cd"}},
	} {
		t.Run(name, func(t *testing.T) {
			namespaces := []corev1.Namespace{
				{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "a"}}},
				{ObjectMeta: metav1.ObjectMeta{Name: "ci", Labels: map[string]string{v1alpha1.FencingLabel: test.label}}},
				{ObjectMeta: metav1.ObjectMeta{Name: "cd"}},
			}
			var got []string
			for _, f := range guard.Fences("hub", test.policy, []string{test.lost}) {
				err := f.Denied(namespaces)
				denied := strings.Join(guard.DeniedIn(err), " ")
				if got = append(got, denied); denied != "" {
					command := "kubectl label namespace " + denied + " leasecast.dev/fencing=allowed"
					if err := expect(err, command); err != nil {
						t.Error(err)
					}
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("denied in %q, want %q", got, test.want)
			}
		})
	}
}
