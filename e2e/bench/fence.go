package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
)

const (
	fencedIn    = "shop"  // the namespace of the fence
	unfencedIn  = "plain" // one that no fence is about
	fenceLeases = 10000
	// fenceRounds and fencePairs are how many times so many pairs of writes are compared.
	fenceRounds, fencePairs = 9, 400
	fenceLimit              = time.Minute
)

// measureFence measures what a fence adds to a write that it lets through, in an API server that has many Leases.
func measureFence(ctx context.Context, b *bench) (err error) {
	d, err := b.start(ctx, harness.Options{Timings: harness.Default, Members: []harness.Member{
		{Name: "east", Priority: 1, Namespaces: []string{fencedIn, unfencedIn}},
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	if err := makeLeases(ctx, d); err != nil {
		return err
	}
	b.say("there are %d Leases", fenceLeases)
	if err := fence(ctx, d); err != nil {
		return err
	}
	return measureFencedWrites(ctx, b, d)
}

// makeLeases makes Leases that no hub manages.
func makeLeases(ctx context.Context, d *harness.Drill) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i := range fenceLeases {
		group.Go(func() error {
			meta := metav1.ObjectMeta{Namespace: unfencedIn, Name: fmt.Sprintf("other-%05d", i)}
			return d.Members["east"].Create(ctx, &coordinationv1.Lease{ObjectMeta: meta})
		})
	}
	return group.Wait()
}

// fence fences what an account writes in one of the two namespaces, and returns when that is in force.
func fence(ctx context.Context, d *harness.Drill) error {
	if err := d.AllowFencing(ctx, "east"); err != nil {
		return err
	}
	p := &v1alpha1.LeadershipPolicy{}
	key := client.ObjectKey{Namespace: harness.FleetNamespace, Name: harness.PolicyName}
	if err := d.Hub.Get(ctx, key, p); err != nil {
		return err
	}
	p.Spec.Namespaces.Names = []string{fencedIn}
	p.Spec.Fencing = &v1alpha1.Fencing{Writes: []v1alpha1.WriteFence{{
		ServiceAccounts: []v1alpha1.FencedServiceAccount{{Name: "checkout", Namespace: fencedIn}},
		Resources:       []v1alpha1.FencedResources{{Names: []string{"configmaps"}}},
	}}}
	if err := d.Hub.Update(ctx, p); err != nil {
		return err
	}
	_, err := d.AwaitFenced(ctx, harness.PolicyName)
	return err
}

// measureFencedWrites compares a write that a fence lets through with the same write where no fence is, one after the
// other. Nothing is stored, so that admission is most of what is measured. Of each round the quantiles are compared,
// and the round in the middle counts.
func measureFencedWrites(ctx context.Context, b *bench, d *harness.Drill) error {
	config, err := d.Fleet.Member("east").ServiceAccountConfig(ctx, fencedIn, "checkout", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}},
	})
	if err != nil {
		return err
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	fenced, unfenced := c.CoreV1().ConfigMaps(fencedIn), c.CoreV1().ConfigMaps(unfencedIn)
	if err := d.Await(ctx, fenceLimit, "the leader may write", func(ctx context.Context) error {
		_, err := timed(ctx, fenced)
		return err
	}); err != nil {
		return err
	}
	var p50, p99 []time.Duration
	for range fenceRounds {
		var with, without []time.Duration
		for i := range 2 * fencePairs {
			in, into := fenced, &with
			if i%2 == 1 {
				in, into = unfenced, &without
			}
			took, err := timed(ctx, in)
			if err != nil {
				return err
			}
			*into = append(*into, took)
		}
		p50 = append(p50, median(with)-median(without))
		p99 = append(p99, quantile(with, 0.99)-quantile(without, 0.99))
		b.say("%d writes took %.2f ms with the fence and %.2f ms without (p50), %.2f ms and %.2f ms (p99)", fencePairs,
			ms(median(with)), ms(median(without)), ms(quantile(with, 0.99)), ms(quantile(without, 0.99)))
	}
	b.figures[fenceP50], b.figures[fenceP99] = ms(median(p50)), ms(median(p99))
	return fenceWasMeasured(ctx, d, fenced, unfenced)
}

// timed is how long a write takes of which nothing is stored.
func timed(ctx context.Context, in typedcorev1.ConfigMapInterface) (time.Duration, error) {
	begin := harness.Now().Boot
	written := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "written"}}
	_, err := in.Create(ctx, written, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return harness.Now().Boot - begin, err
}

// fenceWasMeasured makes sure that a fence was asked: without the hub it refuses, and where none is nothing does.
func fenceWasMeasured(ctx context.Context, d *harness.Drill, fenced, unfenced typedcorev1.ConfigMapInterface) error {
	if err := d.LatestHub().Kill(); err != nil {
		return err
	}
	last := errors.New("nothing was tried")
	err := d.Await(ctx, fenceLimit, "the term is over", func(ctx context.Context) error {
		err := refusedWhereFenced(ctx, fenced, unfenced)
		if err != nil && ctx.Err() == nil {
			last = err
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%w; before that: %w", err, last)
	}
	return nil
}

func refusedWhereFenced(ctx context.Context, fenced, unfenced typedcorev1.ConfigMapInterface) error {
	_, err := timed(ctx, fenced)
	switch {
	case err == nil:
		return errors.New("it is let through")
	case !apierrors.IsForbidden(err):
		return err
	}
	_, err = timed(ctx, unfenced)
	return err
}
