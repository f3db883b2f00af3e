package guard_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

// A namespace gets its Lease, and loses it, and goes away. At no moment may a fenced account write where its cluster
// does not lead. Nobody else is ever asked for a Lease where there never was one.
func TestAFenceIsInForceBeforeTheLeaseAndAfterIt(t *testing.T) {
	parallel(t)
	ns := newDoomedNamespace(t)
	admin, checkout := administrator(t), inNamespace(t, ns, fencedAccount)
	n := 0
	writes := func() error {
		n++
		return aConfigMap(t.Context(), checkout, ns, fmt.Sprintf("by-checkout-%d", n))
	}
	f := fenceOf(t, asks("shops", checkoutWrites, ns))
	keeps(t, f, map[string]bool{ns: false})
	mustBeAnswered(t, writes(), noLeader)
	mustBeAnswered(t, aConfigMap(t.Context(), admin, ns, "by-somebody-else"), "")

	now := time.Now()
	says(t, ns, "east.fleet", now, now, time.Hour)
	keeps(t, f, map[string]bool{ns: true})
	eventually(t, "the wall is gone", func(context.Context) error { return writes() })

	if err := admin.CoordinationV1().Leases(ns).Delete(t.Context(), v1alpha1.DefaultLeaseName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Lease is missed", func(context.Context) error {
		if err := writes(); err == nil || !strings.Contains(err.Error(), "no params found") {
			return fmt.Errorf("answered %w", err)
		}
		return nil
	})
	keeps(t, f, map[string]bool{ns: false})        // which somebody has deleted: the hub writes it again
	mustBeAnswered(t, writes(), "no params found") // by the gate, which never went

	keeps(t, f, nil) // it is going away
	if err := admin.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "who cleans up may delete", func(ctx context.Context) error {
		err := admin.CoreV1().ConfigMaps(ns).Delete(ctx, "by-somebody-else", metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// Others change a fence on a real API server: by generation and uid this shows, and what they added goes.
func TestFenceThatOthersChangeIsRestored(t *testing.T) {
	parallel(t)
	ns := newNamespace(t)
	client, h := administrator(t), hubOf(t)
	says(t, ns, "west.fleet", time.Now(), time.Now(), time.Hour)
	f := fenceOf(t, asks("shops", checkoutWrites, ns))
	keeps(t, f, map[string]bool{ns: true})
	gate, wall := f.Names()[0], f.Names()[1]
	for name, edit := range map[string]edit{
		"the gate only audits": editBinding(gate, toAudit),
		"the gate exempts everybody": editPolicy(gate, func(p *admissionv1.ValidatingAdmissionPolicy) {
			p.Spec.MatchConditions = append(p.Spec.MatchConditions, admissionv1.MatchCondition{Name: "nobody", Expression: "false"})
		}),
		"the gate is another hub's": editPolicy(gate, func(p *admissionv1.ValidatingAdmissionPolicy) {
			p.Annotations[v1alpha1.HubAnnotation] = "another"
		}),
		"the gate is deleted": func(ctx context.Context, _ *kubernetes.Clientset) error { return deletePolicy(ctx, client, gate) },
		"the wall is deleted": func(ctx context.Context, _ *kubernetes.Clientset) error { return deletePolicy(ctx, client, wall) },
	} {
		t.Run(name, func(t *testing.T) {
			before, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), gate, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			mended := h.mended
			mustEdit(t, client, edit)
			eventually(t, "it is restored", func(ctx context.Context) error {
				h.turn(ctx)
				policy, binding := stored(t, client, gate)
				if _, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, wall, metav1.GetOptions{}); err != nil {
					return err
				}
				if diff := cmp.Diff(before.Spec, policy.Spec); diff != "" || binding.Spec.ValidationActions[0] != admissionv1.Deny ||
					policy.Annotations[v1alpha1.HubAnnotation] != "hub" {
					return fmt.Errorf("it is another: %s", diff)
				}
				return h.Unfenced(f, ns)
			})
			if isMetadata := strings.Contains(name, "another hub"); (h.mended == mended+1) == isMetadata {
				t.Errorf("%d edits were reverted", h.mended-mended)
			}
		})
	}
}

func deletePolicy(ctx context.Context, client *kubernetes.Clientset, name string) error {
	return client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{})
}

// A fence that warns lets everything through, also where there is no Lease.
func TestAFenceThatWarnsRefusesNothing(t *testing.T) {
	parallel(t)
	ns := newNamespace(t)
	warning := checkoutWrites
	warning.Enforcement = v1alpha1.EnforcementWarn
	f := fenceOf(t, asks("warning", warning, ns))
	keeps(t, f, map[string]bool{ns: false})
	checkout := inNamespace(t, ns, fencedAccount)
	mustBeAnswered(t, aConfigMap(t.Context(), checkout, ns, "without-a-lease"), "")
	now := time.Now()
	says(t, ns, "west.fleet", now, now, time.Hour)
	keeps(t, f, map[string]bool{ns: true})
	mustBeAnswered(t, aConfigMap(t.Context(), checkout, ns, "in-a-follower"), "")
}

// The API server goes on watching Leases when the last fence goes: one that is installed later asks those of today.
func TestAFenceThatComesBackAsksTheLeasesOfToday(t *testing.T) {
	standing(t)
	ns := newNamespace(t)
	client, checkout := administrator(t), inNamespace(t, ns, fencedAccount)
	now := time.Now()
	says(t, ns, "west.fleet", now, now, time.Hour)
	f := fenceOf(t, asks("shops", checkoutWrites, ns))
	keeps(t, f, map[string]bool{ns: true})
	eventually(t, "the wall is gone", func(ctx context.Context) error {
		return answered(aConfigMap(ctx, checkout, ns, "in-a-follower"), notLeading)
	})
	hubOf(t).drops(t)
	eventually(t, "the fence is gone", func(ctx context.Context) error {
		return aConfigMap(ctx, checkout, ns, fmt.Sprintf("unfenced-%d", time.Now().UnixNano()))
	})
	if err := client.CoordinationV1().Leases(ns).Delete(t.Context(), v1alpha1.DefaultLeaseName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	says(t, ns, "east.fleet", now, time.Now(), time.Hour)
	keeps(t, f, map[string]bool{ns: true})
	eventually(t, "the leader writes", func(ctx context.Context) error { return aConfigMap(ctx, checkout, ns, "in-the-leader") })
}

func TestOnlyTheFenceOfALockIsAboutOne(t *testing.T) {
	o := asks("shops", checkoutWrites, "shop")
	o.Spec.Fencing.LeaderElectionLocks = lockIn("till").LeaderElectionLocks
	names := map[bool]string{}
	for _, f := range guard.Fences("hub", o, nil) {
		lock, is := f.Lock()
		if is != f.IsOfLock() {
			t.Errorf("%s: is it about a lock?", f.Name())
		}
		names[is] = lock.Name
	}
	if want := map[bool]string{true: "stock", false: ""}; !maps.Equal(names, want) {
		t.Errorf("the locks are %v, want %v", names, want)
	}
}

// Where a policy names namespaces and selects others, one fence is about both.
func TestWhichNamespacesAFenceSelects(t *testing.T) {
	o := asks("both", checkoutWrites, "named", "lost")
	o.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	f, team := guard.Fences("hub", o, []string{"lost"})[0], map[string]string{"team": "a"}
	for name, test := range map[string]struct {
		namespace string
		labels    map[string]string
		selected  bool
	}{
		"a named one":                     {"named", nil, true},
		"a named one that matches too":    {"named", team, true},
		"one that matches":                {"other", team, true},
		"one that does not match":         {"other", nil, false},
		"one that is never managed":       {"kube-system", team, false},
		"a lost one":                      {"lost", nil, false},
		"a lost one that matches as well": {"lost", team, false},
	} {
		t.Run(name, func(t *testing.T) {
			if selected := f.Selects(test.namespace, test.labels); selected != test.selected {
				t.Errorf("it selects it: %v, want %v", selected, test.selected)
			}
			if covers := f.Covers(test.namespace); covers != (test.namespace != "lost") {
				t.Errorf("it covers it: %v", covers)
			}
		})
	}
}

// Of two policies that match a namespace one owns it. The other one has no effect there.
func TestAFenceLeavesOutWhatAnotherPolicyOwns(t *testing.T) {
	parallel(t)
	admin := administrator(t)
	named, selected, ours := newNamespace(t), newNamespace(t), newNamespace(t)
	team := map[string]string{corev1.LabelMetadataName: selected}
	o := asks("lost", labelledWrites, named, ours)
	o.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: team}
	lost := []string{named, selected}
	o.Namespace = hubOf(t).fleet
	t.Cleanup(func() { hubOf(t).drops(t) })
	before := guard.Fences("hub", o, nil)
	keepsWhere := func(f guard.Fence) {
		active := map[string]bool{named: false, selected: false, ours: false}
		maps.DeleteFunc(active, func(ns string, _ bool) bool { return !f.Selects(ns, map[string]string{corev1.LabelMetadataName: ns}) })
		keeps(t, f, active)
	}
	for _, f := range before {
		keepsWhere(f)
	}
	for i, f := range guard.Fences("hub", o, lost) {
		if f.Name() != before[i].Name() {
			t.Errorf("%s is another fence", f.Name())
		}
		for _, ns := range lost {
			if f.Covers(ns) || f.Selects(ns, team) {
				t.Errorf("%s covers %s", f.Name(), ns)
			}
		}
		keepsWhere(f)
	}
	for _, ns := range lost {
		eventually(t, "the namespace is let out", func(ctx context.Context) error {
			return aLabelledConfigMap("shop")(ctx, admin, ns, fmt.Sprintf("first-%d", time.Now().UnixNano()))
		})
	}
	mustBeAnswered(t, aLabelledConfigMap("shop")(t.Context(), admin, ours, "a"), noLeader)
	lock := asks("lost", lockIn("locks"), named)
	if len(guard.Fences("hub", lock, nil)) != 1 || len(guard.Fences("hub", lock, lost)) != 0 {
		t.Error("a lock is fenced by a namespace that another policy owns")
	}
}

func aJob(labels map[string]string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "job-", Labels: labels},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: container.Containers}}},
	}
}

// A hub whose clock was ahead has written a Lease that nobody believes.
func TestAJobIsCreatedByNoLeaseOfTheFuture(t *testing.T) {
	parallel(t)
	client := administrator(t)
	for name, test := range map[string]struct {
		ahead time.Duration
		want  string
	}{"by less than clocks may differ": {50 * time.Second, ""}, "by more": {time.Hour, hubIsAhead}} {
		t.Run(name, func(t *testing.T) {
			ns := newNamespace(t)
			now := time.Now()
			says(t, ns, "east.fleet", now.Add(-time.Minute), now.Add(test.ahead), time.Hour)
			keeps(t, fenceOf(t, asks("jobs", v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}}, ns)), map[string]bool{ns: true})
			eventually(t, "the Lease is known", func(ctx context.Context) error {
				_, err := client.BatchV1().Jobs(ns).Create(ctx, aJob(nil), metav1.CreateOptions{})
				return answered(err, test.want)
			})
		})
	}
}

func TestATickOfAnEarlierTermCreatesNoJob(t *testing.T) {
	parallel(t)
	client, ns := administrator(t), newNamespace(t)
	began := time.Now().Truncate(time.Second).Add(-time.Minute)
	says(t, ns, "east.fleet", began, time.Now(), time.Hour)
	keeps(t, fenceOf(t, asks("jobs", v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}}, ns)), map[string]bool{ns: true})
	for name, test := range map[string]struct {
		tick time.Time
		want string
	}{
		"that another cluster has run":           {began.Add(-time.Second), "scheduled for a time before this cluster led"},
		"that came when the leader's term began": {began, ""},
	} {
		t.Run(name, func(t *testing.T) {
			job := aJob(nil)
			job.Annotations = map[string]string{batchv1.CronJobScheduledTimestampAnnotation: test.tick.Format(time.RFC3339)}
			eventually(t, "the Lease is known", func(ctx context.Context) error {
				_, err := client.BatchV1().Jobs(ns).Create(ctx, job, metav1.CreateOptions{})
				return answered(err, test.want)
			})
		})
	}
}

func TestWhichJobsAScheduleFenceIsAbout(t *testing.T) {
	parallel(t)
	client := administrator(t)
	expression := func(key string, o metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: o, Values: values}}}
	}
	for name, test := range map[string]struct {
		selector      *metav1.LabelSelector
		fenced, spare []map[string]string
	}{
		"labels":       {&metav1.LabelSelector{MatchLabels: map[string]string{"a": "1", "b": "2"}}, []map[string]string{{"a": "1", "b": "2"}}, []map[string]string{nil, {"a": "1"}, {"a": "1", "b": "3"}}},
		"In":           {expression("a", metav1.LabelSelectorOpIn, "1", "2"), []map[string]string{{"a": "1"}, {"a": "2"}}, []map[string]string{nil, {"a": "3"}}},
		"NotIn":        {expression("a", metav1.LabelSelectorOpNotIn, "1"), []map[string]string{nil, {"a": "2"}}, []map[string]string{{"a": "1"}}},
		"Exists":       {expression("a", metav1.LabelSelectorOpExists), []map[string]string{{"a": "1"}}, []map[string]string{nil, {"b": "1"}}},
		"DoesNotExist": {expression("a", metav1.LabelSelectorOpDoesNotExist), []map[string]string{nil, {"b": "1"}}, []map[string]string{{"a": "1"}}},
		"all":          {&metav1.LabelSelector{}, []map[string]string{nil, {"a": "1"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNamespace(t)
			keeps(t, fenceOf(t, asks("jobs", v1alpha1.Fencing{Schedules: test.selector}, ns)), map[string]bool{ns: false})
			for _, labels := range test.fenced {
				_, err := client.BatchV1().Jobs(ns).Create(t.Context(), aJob(labels), metav1.CreateOptions{})
				mustBeAnswered(t, err, noLeader)
			}
			for _, labels := range test.spare {
				_, err := client.BatchV1().Jobs(ns).Create(t.Context(), aJob(labels), metav1.CreateOptions{})
				mustBeAnswered(t, err, "")
			}
		})
	}
}
