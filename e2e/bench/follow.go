package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	// resourceSets is how many there are, each with one object for all clusters.
	resourceSets = 200
	// followRounds is how many sources are changed, and how many objects are edited.
	followRounds = 10
	// followLook is the pause between two reads of an object that is not in place yet.
	followLook = 20 * time.Millisecond
	// followWindow is how long the hub is watched without and with sets.
	followWindow = 30 * time.Second
)

// measureFollow measures how soon a changed source and a repaired object are in place, and what sets cost that have
// nothing to do.
func measureFollow(ctx context.Context, b *bench) {
	b.awaitLed(ctx, clusters[0], 1)
	for _, name := range clusters {
		must.Do(b.Allow(ctx, name, "follow"))
	}
	before := sample(ctx, b.LatestHub().PID(), followWindow)
	for n := range resourceSets {
		b.setSource(ctx, n, 0)
		must.Do(b.Hub.Create(ctx, &v1alpha1.LeaderResourceSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: harness.FleetNamespace, Name: setName(n)},
			Spec: v1alpha1.LeaderResourceSetSpec{Namespace: namespace, Resources: []v1alpha1.LeaderResource{
				{Kind: v1alpha1.SourceConfigMap, Name: setName(n), For: v1alpha1.RoleAll},
			}},
		}))
	}
	must.Do(b.Await(ctx, leadLimit, "all sets are in place", func(ctx context.Context) error {
		var all v1alpha1.LeaderResourceSetList
		ready := 0
		err := b.Hub.List(ctx, &all)
		for i := range all.Items {
			if meta.IsStatusConditionTrue(all.Items[i].Status.Conditions, v1alpha1.ConditionReady) {
				ready++
			}
		}
		return must.ErrorIf(err != nil || ready < resourceSets, "%d are: %v", ready, err)
	}))
	var applied, repaired []time.Duration
	for n := range followRounds {
		b.setSource(ctx, n, 1)
		applied = append(applied, b.awaitSet(ctx, n, "1", clusters...))
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: setName(n)}}
		drift := client.RawPatch(types.MergePatchType, []byte(`{"data":{"number":"drift"}}`))
		must.Do(b.Members[clusters[1]].Patch(ctx, o, drift, client.FieldOwner("kubectl-edit")))
		repaired = append(repaired, b.awaitSet(ctx, n, "1", clusters[1]))
	}
	from := time.Now()
	after := sample(ctx, b.LatestHub().PID(), followWindow)
	writes := 0
	for _, all := range b.requestsBetween(from, from.Add(followWindow)) {
		writes += len(slices.DeleteFunc(all, func(r fleet.Request) bool {
			return !r.Writes() || strings.Contains(r.URI, "/leases/") // renewals
		}))
	}
	b.say("a changed source is in place in %.2f s, at worst %.2f s",
		median(applied).Seconds(), quantile(applied, 1).Seconds())
	b.say("an edit is repaired in %.2f s, at worst %.2f s", median(repaired).Seconds(), quantile(repaired, 1).Seconds())
	b.say("%d sets: %d writes in %v; the hub takes %.3f cores and %.0f MiB, and %.3f and %.0f without them",
		resourceSets, writes, followWindow, after.cores, after.rssMiB, before.cores, before.rssMiB)
	b.figures["follow.applySeconds"] = quantile(applied, 1).Seconds()
	b.figures["follow.repairSeconds"] = quantile(repaired, 1).Seconds()
	b.figures["follow.writesPerSecond"] = float64(writes) / followWindow.Seconds()
	b.figures["follow.cores"], b.figures["follow.rssMiB"] = after.cores-before.cores, after.rssMiB-before.rssMiB
}

func setName(n int) string { return fmt.Sprintf("set-%03d", n) }

// setSource writes the source of a set: a ConfigMap with a number.
func (b *bench) setSource(ctx context.Context, n, number int) {
	o := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: harness.FleetNamespace, Name: setName(n)},
		Data: map[string]string{"all.yaml": fmt.Sprintf(
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {number: '%d'}\n", setName(n), number)},
	}
	if number > 0 {
		must.Do(b.Hub.Update(ctx, o))
		return
	}
	must.Do(b.Hub.Create(ctx, o))
}

// awaitSet returns how long it takes until the object of a set has a number in these members.
func (b *bench) awaitSet(ctx context.Context, n int, number string, members ...string) time.Duration {
	began := time.Now()
	for _, m := range members {
		for {
			o := &corev1.ConfigMap{}
			must.Do(b.Members[m].Get(ctx, types.NamespacedName{Namespace: namespace, Name: setName(n)}, o))
			if o.Data["number"] == number {
				break
			}
			must.FailIf(time.Since(began) > leadLimit, "%s of %s has %q", setName(n), m, o.Data["number"])
			must.Do(process.Pass(ctx, followLook))
		}
	}
	return time.Since(began)
}
