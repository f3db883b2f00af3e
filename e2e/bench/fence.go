package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

const (
	unfencedIn  = "plain" // a namespace without a fence
	fenceLeases = 10000
	// fenceRounds and fencePairs are how many times so many pairs of writes are compared.
	fenceRounds, fencePairs = 9, 400
)

// measureFence measures what a fence adds to a write that it lets through, in an API server that has many Leases.
func measureFence(ctx context.Context, b *bench) {
	b.makeLeases(ctx)
	b.say("there are %d Leases", fenceLeases)
	b.fence(ctx)
	b.measureFencedWrites(ctx)
}

// makeLeases makes Leases that no hub manages.
func (b *bench) makeLeases(ctx context.Context) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i := range fenceLeases {
		group.Go(func() error {
			meta := metav1.ObjectMeta{Namespace: unfencedIn, Name: fmt.Sprintf("other-%05d", i)}
			return b.Members["east"].Create(ctx, &coordinationv1.Lease{ObjectMeta: meta})
		})
	}
	must.Do(group.Wait())
}

// fence fences what an account writes in one of the two namespaces, and returns when that is in force.
func (b *bench) fence(ctx context.Context) {
	must.Do(b.Allow(ctx, "east", "fencing"))
	p := &v1alpha1.LeadershipPolicy{}
	key := client.ObjectKey{Namespace: harness.FleetNamespace, Name: harness.PolicyName}
	must.Do(b.Hub.Get(ctx, key, p))
	p.Spec.Namespaces.Names = []string{namespace}
	p.Spec.Fencing = &v1alpha1.Fencing{Writes: []v1alpha1.WriteFence{{
		ServiceAccounts: []v1alpha1.FencedServiceAccount{{Name: "checkout", Namespace: namespace}},
		Resources:       []v1alpha1.FencedResources{{Names: []string{"configmaps"}}},
	}}}
	must.Do(b.Hub.Update(ctx, p))
	must.Get(b.AwaitFenced(ctx, harness.PolicyName))
}

// measureFencedWrites compares a write that a fence lets through with the same write where no fence is, one after the
// other. Of each round the quantiles are compared, and the round in the middle counts.
func (b *bench) measureFencedWrites(ctx context.Context) {
	config := must.Get(b.Fleet.Member("east").ServiceAccountConfig(ctx, namespace, "checkout", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}},
	}))
	c := must.Get(kubernetes.NewForConfig(config))
	fenced, unfenced := c.CoreV1().ConfigMaps(namespace), c.CoreV1().ConfigMaps(unfencedIn)
	must.Do(b.Await(ctx, leadLimit, "the leader may write", func(ctx context.Context) error {
		_, err := timed(ctx, fenced)
		return err
	}))
	var p50, p99 []time.Duration
	for range fenceRounds {
		var with, without []time.Duration
		for i := range 2 * fencePairs {
			in, into := fenced, &with
			if i%2 == 1 {
				in, into = unfenced, &without
			}
			took := must.Get(timed(ctx, in))
			*into = append(*into, took)
		}
		p50 = append(p50, median(with)-median(without))
		p99 = append(p99, quantile(with, 0.99)-quantile(without, 0.99))
		b.say("%d writes took %.2f ms with the fence and %.2f ms without (p50), %.2f ms and %.2f ms (p99)", fencePairs,
			ms(median(with)), ms(median(without)), ms(quantile(with, 0.99)), ms(quantile(without, 0.99)))
	}
	b.figures["fence.p50Milliseconds"], b.figures["fence.p99Milliseconds"] = ms(median(p50)), ms(median(p99))
}

// timed is how long a write takes. It is no dry run, which fences let through.
func timed(ctx context.Context, in typedcorev1.ConfigMapInterface) (time.Duration, error) {
	begin := harness.Now().Boot
	written := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "written-"}}
	_, err := in.Create(ctx, written, metav1.CreateOptions{})
	return harness.Now().Boot - begin, err
}
