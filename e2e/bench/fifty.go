package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/hostile/front"
	"github.com/leasecast/leasecast/e2e/must"
)

const (
	// stubs are members beside the real ones. One API server stands behind all of them.
	stubs = 46
	// behindStubs is that member.
	behindStubs = "stub"
	// ledBeside is how many namespaces the real members lead.
	ledBeside   = 100
	fiftyWindow = time.Minute
)

func fiftyFleet() harness.Options {
	all := append(members(teams(ledBeside)...), harness.Member{Name: behindStubs, Priority: 1})
	return harness.Options{Timings: harness.Default, Members: all}
}

// measureFifty adds stubs to a fleet, and measures what memory the hub takes. Each stub shows the same API server under
// a UID of its own.
func measureFifty(ctx context.Context, b *bench) {
	system, cluster := &corev1.Namespace{}, &clusterv1.Cluster{}
	must.Do(b.Members[behindStubs].Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system))
	must.Do(b.Hub.Get(ctx, client.ObjectKey{Namespace: harness.FleetNamespace, Name: behindStubs}, cluster))
	server := b.Fleet.Member(behindStubs).AdminConfig()
	for n := range stubs {
		name, uid := fmt.Sprintf("stub-%02d", n), fmt.Sprintf("%s%06d", system.UID[:30], n)
		f := must.Get(front.New(server))
		defer f.Close()
		f.Play(func(w http.ResponseWriter, r *http.Request, honest http.Handler) {
			honest.ServeHTTP(renamed{w, []byte(system.UID), []byte(uid)}, r)
		})
		kubeconfig := must.Get(f.Kubeconfig("token"))
		must.Do(b.Fleet.SetKubeconfig(ctx, harness.FleetNamespace, name, kubeconfig))
		must.Do(b.Hub.Create(ctx, &clusterv1.Cluster{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: harness.FleetNamespace, Name: name, Labels: map[string]string{fleet.PriorityLabel: "1"},
			},
			Spec: cluster.Spec,
		}))
	}
	must.Do(b.Await(ctx, leadLimit, "all stubs are connected", func(ctx context.Context) error {
		var all clusterv1.ClusterList
		pinned := 0
		err := b.Hub.List(ctx, &all)
		for _, c := range all.Items {
			if c.Annotations[v1alpha1.ClusterUIDAnnotation] != "" {
				pinned++
			}
		}
		if err == nil && pinned < stubs+4 {
			err = fmt.Errorf("%d Clusters are pinned", pinned)
		}
		return err
	}))
	hub := sample(ctx, b.LatestHub().PID(), fiftyWindow)
	b.say("with 50 members the hub takes %.3f cores and %.0f MiB", hub.cores, hub.rssMiB)
	b.figures["hub.rssMiB50"] = hub.rssMiB
}

// renamed shows another UID of the same length.
type renamed struct {
	http.ResponseWriter
	is, shown []byte
}

func (w renamed) Write(p []byte) (int, error) {
	_, err := w.ResponseWriter.Write(bytes.ReplaceAll(p, w.is, w.shown))
	return len(p), err
}

// Unwrap lets watches flush.
func (w renamed) Unwrap() http.ResponseWriter { return w.ResponseWriter }
