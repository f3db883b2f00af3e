package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	// looks is how often the hub and the plugin are looked at. The median counts.
	looks = 5
	// looksLimit bounds the wait for all to be well.
	looksLimit = 4 * time.Minute
	// quiet is how long the hub must not have decided anything: it has just taken over, and what that takes is no look.
	quiet = 2 * time.Second
	// idle Clusters take no part.
	idle = 47
)

// decided counts the decisions in what a scrape returns.
var decided = regexp.MustCompile(`(?m)^controller_runtime_reconcile_total\{controller="namespaceleader".*$`)

// measureLook measures what the plugin's status and a scrape take.
func measureLook(ctx context.Context, b *bench) {
	b.awaitLed(ctx, clusters[0], renewedNamespaces)
	cluster := &clusterv1.Cluster{}
	must.Do(b.Hub.Get(ctx, client.ObjectKey{Namespace: harness.FleetNamespace, Name: clusters[0]}, cluster))
	metrics := fmt.Sprintf("127.0.0.1:%d", must.Get(fleet.ReservePort()))
	must.Do(b.LatestHub().Stop())
	must.Get(b.StartHub("--metrics-address=" + metrics))
	kubeconfig, token := filepath.Join(b.dir(), "admin.kubeconfig"), must.Get(b.Scraper(ctx))
	must.Do(fleet.WriteKubeconfig(kubeconfig, harness.HubName, b.Fleet.Hub().AdminConfig()))
	for n := range idle {
		name := fmt.Sprintf("idle-%02d", n)
		must.Do(b.Hub.Create(ctx, &clusterv1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: harness.FleetNamespace, Name: name}, Spec: cluster.Spec,
		}))
	}
	before := ""
	must.Do(b.Await(ctx, looksLimit, "the hub decides nothing any more", func(ctx context.Context) error {
		all := must.Get(harness.Scrape(ctx, metrics, token))
		now := strings.Join(decided.FindAllString(all, -1), "\n")
		was := before
		before = now
		must.Do(process.Pass(ctx, quiet))
		return must.ErrorIf(now != was, "it has decided:\n%s", now)
	}))
	var shown, scraped []time.Duration
	screen := ""
	must.Do(b.Await(ctx, looksLimit, "all is well", func(ctx context.Context) (err error) {
		began := time.Now()
		if screen, err = status(ctx, kubeconfig); err == nil && !strings.Contains(screen, "1000 namespaces, 50 Clusters") {
			err = errors.New(screen)
		}
		if err != nil {
			shown = nil
			return err
		}
		shown = append(shown, time.Since(began))
		return must.ErrorIf(len(shown) < looks, "it was so %d times in a row", len(shown))
	}))
	for range looks {
		began := time.Now()
		must.Get(harness.Scrape(ctx, metrics, token))
		scraped = append(scraped, time.Since(began))
	}
	lines := strings.Count(screen, "\n")
	b.say("of %d namespaces the status has %d lines in %.2f s, at worst %.2f s", renewedNamespaces, lines,
		median(shown).Seconds(), quantile(shown, 1).Seconds())
	b.say("a scrape takes %.0f ms, at worst %.0f ms", ms(median(scraped)), ms(quantile(scraped, 1)))
	b.figures["plugin.statusSeconds"], b.figures["plugin.statusLines"] = median(shown).Seconds(), float64(lines)
	b.figures["scrape.milliseconds"] = ms(median(scraped))
}

// status returns what the plugin shows of the fleet. Its error says that something needs attention.
func status(ctx context.Context, kubeconfig string) (string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join("bin", "kubectl-leasecast"), "status",
		"--kubeconfig="+kubeconfig, "-n="+harness.FleetNamespace, "--hub-namespace="+harness.HubNamespace).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return string(out), err
}
