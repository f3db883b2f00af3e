package hostile

import (
	"context"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/process"
)

// stalls is a namespace of all members with fenced CronJobs that tenants write.
const stalls = "stalls"

// scheduled is on the Jobs of fenced CronJobs.
var scheduled = map[string]string{"run": "once"}

// ofTenants is the metadata of what a tenant of the hub writes.
func ofTenants(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: harness.FleetNamespace, Name: name, Labels: map[string]string{ofTenant: "true"}}
}

// largeCronJob is a fenced CronJob of 1.4 MB.
func largeCronJob(name string) *batchv1.CronJob {
	o := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{
		Namespace: stalls,
		Name:      name,
		Labels:    map[string]string{ofTenant: "true"},
	}}
	o.Spec.Schedule = "* * * * *"
	o.Spec.JobTemplate.Labels = scheduled
	o.Spec.JobTemplate.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "bill", Image: "bill", Args: []string{strings.Repeat("c", 1400<<10)}}},
	}
	return o
}

// largeCronJobs writes thirteen CronJobs of 1.4 MB into a namespace of each member.
func largeCronJobs(ctx context.Context, s *testbed) error {
	for member := range s.Members {
		t, err := s.tenant(ctx, member, stalls, "scheduler")
		if err != nil {
			return err
		}
		if err := each(ctx, 13, func(ctx context.Context, n int) error {
			large := largeCronJob(fmt.Sprint("large-", n))
			_, err := t.all.BatchV1().CronJobs(stalls).Create(ctx, large, metav1.CreateOptions{})
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// fencedSchedules has that namespace led and fenced, so that the first term begins there.
func fencedSchedules(ctx context.Context, s *testbed) error {
	p, err := s.policyOf(ctx, stalls)
	if err != nil {
		return err
	}
	p.Spec.Fencing = &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{MatchLabels: scheduled}}
	if err := s.Hub.Create(ctx, p); err != nil {
		return unlessEnded(ctx, err)
	}
	return unlessEnded(ctx, s.Await(ctx, patience, "it is led", func(ctx context.Context) error {
		r, err := s.Record(ctx, stalls)
		if err == nil && r.Spec.State != v1alpha1.StateLeading {
			err = fmt.Errorf("it is %s", r.Spec.State)
		}
		return err
	}))
}

// policyOf is a policy of a tenant for a namespace of its name, with the timings of the others.
func (s *testbed) policyOf(ctx context.Context, name string) (*v1alpha1.LeadershipPolicy, error) {
	honest := &v1alpha1.LeadershipPolicy{}
	if err := s.Hub.Get(ctx, client.ObjectKey{Namespace: harness.FleetNamespace, Name: shop}, honest); err != nil {
		return nil, err
	}
	p := &v1alpha1.LeadershipPolicy{ObjectMeta: ofTenants(name)}
	p.Spec.Namespaces.Names, p.Spec.Timings = []string{name}, honest.Spec.Timings
	return p, nil
}

// largeLeases writes 50 MB of Leases in kube-system that look like those of the hub.
func largeLeases(ctx context.Context, s *testbed) error {
	t, err := s.tenant(ctx, far, metav1.NamespaceSystem, "elector")
	if err != nil {
		return err
	}
	return each(ctx, 200, func(ctx context.Context, n int) error {
		_, err := t.leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("large-", n), Labels: map[string]string{v1alpha1.ManagedLabel: "true", ofTenant: "true"},
			Annotations: map[string]string{"example.com/large": megabyte[:250<<10]},
		}}, metav1.CreateOptions{})
		if apierrors.IsForbidden(err) {
			return nil // who refuses them need not read them
		}
		return err
	})
}

// grow makes an object as large as is stored, in one of three ways: by an owner with a long name, labels, or an
// annotation.
func grow(o metav1.Object, way int) {
	switch way % 3 {
	case 0:
		o.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: "v1",
			Kind:       "Secret",
			Name:       strings.Repeat("o", 1200<<10),
			UID:        types.UID("none"),
		}})
	case 1:
		labels := o.GetLabels()
		prefix := strings.Repeat(strings.Repeat("l", 49)+".", 4) + "example.com/"
		for n := range 1_500 {
			labels[fmt.Sprint(prefix, n)] = strings.Repeat("l", 63)
		}
	default:
		o.SetAnnotations(map[string]string{"example.com/large": megabyte[:250<<10]})
	}
}

// largeClusters makes 340 Clusters that do not take part.
func largeClusters(ctx context.Context, s *testbed) error {
	c := s.hubTenant
	return each(ctx, 340, func(ctx context.Context, n int) error {
		o := &clusterv1.Cluster{ObjectMeta: ofTenants(fmt.Sprint("large-", n))}
		o.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 1}
		grow(o, n)
		return c.Create(ctx, o)
	})
}

// beside is the namespace of a large policy, in all members.
const beside = "beside"

// largePolicies writes policies with 560 KiB of selectors. One is of a namespace that is there.
func largePolicies(ctx context.Context, s *testbed) error {
	c := s.hubTenant
	for _, admin := range s.Members {
		if err := admin.Create(ctx, namespaceNamed(beside)); client.IgnoreAlreadyExists(err) != nil {
			return err
		}
	}
	var values []string
	for n := range 8_800 {
		values = append(values, fmt.Sprintf("%063d", n))
	}
	selector := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "run", Operator: metav1.LabelSelectorOpIn, Values: values},
	}}
	for n, name := range []string{beside, "nowhere-1", "nowhere-2", "nowhere-3"} {
		p, err := s.policyOf(ctx, name)
		if err != nil {
			return err
		}
		p.Spec.Fencing = &v1alpha1.Fencing{Schedules: selector}
		if n == 3 {
			p.Spec.Fencing, p.Spec.Namespaces.Selector = nil, selector
		}
		if err := c.Create(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// largeRecords writes records that are no policy's.
func largeRecords(ctx context.Context, s *testbed) error {
	c := s.hubTenant
	honest, err := s.Record(ctx, shop)
	if err != nil {
		return err
	}
	return each(ctx, 60, func(ctx context.Context, n int) error {
		o := &v1alpha1.NamespaceLeader{ObjectMeta: ofTenants(fmt.Sprint("large-", n)), Spec: honest.Spec}
		grow(o, n)
		return c.Create(ctx, o)
	})
}

// restlessPolicies edits a large policy, by its annotations alone, five times a second. More would keep the API server
// busy.
func restlessPolicies(ctx context.Context, s *testbed) error {
	c := s.hubTenant
	p := &v1alpha1.LeadershipPolicy{ObjectMeta: ofTenants(beside)}
	for n := 0; ctx.Err() == nil; n++ {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/n":"%d"}}}`, n)
		if err := c.Patch(ctx, p, client.RawPatch(types.MergePatchType, patch)); err != nil {
			return unlessEnded(ctx, err)
		}
		_ = process.Pass(ctx, 200*time.Millisecond)
	}
	return nil
}
