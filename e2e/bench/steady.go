package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
	"github.com/leasecast/leasecast/member"
)

const (
	// ledNamespaces is how many namespaces there are in the steady state, in every member.
	ledNamespaces = 200
	steadyWindow  = time.Minute
	// answered is how long after a window its last requests have been answered, and logged.
	answered = time.Second
	// readerAgent and peerAgent are what the programs in the members call themselves: the requests of this program do not
	// count.
	readerAgent, peerAgent = "reader", "peer"
)

// measureSteady counts what the hub and a reader in each member ask of all API servers in a minute in which nothing
// happens. The peer is what people do today: an elector of client-go for each namespace in each cluster, against one
// API server.
func measureSteady(ctx context.Context, b *bench) {
	running, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for _, s := range b.Fleet.Members() {
		config := s.AdminConfig()
		config.UserAgent = readerAgent
		m := must.Get(member.New(config, member.Options{MaxClockSkew: b.Timings.Skew}))
		all.Go(func() { _ = m.Start(running) }) // it ends with an error where the measurement ends early
	}
	b.awaitLed(ctx, "", ledNamespaces)
	b.say("%d namespaces are led; waiting %s for the beginning to be over", ledNamespaces, 2*b.Timings.Duration)
	ours := b.requestsIn(ctx, 2*b.Timings.Duration)
	must.Do(b.Check())
	b.awaitLed(ctx, "", ledNamespaces) // it was a steady minute
	for _, s := range b.Fleet.Servers() {
		writes := perSecond(slices.DeleteFunc(slices.Clone(ours[s.Name()]), func(r fleet.Request) bool {
			return !r.Writes() || strings.Contains(r.URI, electionPath)
		}))
		b.say("%s: %.2f requests a second, %.2f of them writes", s.Name(), perSecond(ours[s.Name()]), writes)
		b.figures["ours.requestsPerSecond"] += perSecond(ours[s.Name()])
		if s == b.Fleet.Hub() {
			b.figures["writes.hubPerSecond"] = writes
		} else {
			b.figures["writes.membersPerSecond"] += writes
		}
	}
	must.Do(b.LatestHub().Stop())
	config := b.Fleet.Member(clusters[0]).AdminConfig()
	config.UserAgent, config.Timeout = peerAgent, peerDeadline/2 // as controller-runtime has it
	client := must.Get(coordinationclient.NewForConfig(config))
	for _, candidate := range clusters {
		for _, namespace := range teams(ledNamespaces) {
			all.Go(func() { campaign(running, client, candidate, namespace) })
		}
	}
	peers := b.requestsIn(ctx, 2*peerDuration)
	peer := slices.DeleteFunc(peers[clusters[0]], func(r fleet.Request) bool { return r.Agent != peerAgent })
	b.figures["peer.requestsPerSecond"] = perSecond(peer)
	b.figures["requestsRatio"] = b.figures["ours.requestsPerSecond"] / b.figures["peer.requestsPerSecond"]
}

// electionPath is the path of the Lease of the hub's election.
var electionPath = filepath.Join("/namespaces", harness.HubNamespace, "leases", harness.HubName)

// The peer's timings: those that every component of Kubernetes has by default.
const (
	peerDuration = 15 * time.Second
	peerDeadline = 10 * time.Second
	peerRetry    = 2 * time.Second
)

// campaign is one candidate until ctx ends. Electors begin at random within a retry period, like those of programs that
// have nothing to do with each other.
func campaign(ctx context.Context, client coordinationclient.CoordinationV1Interface, candidate, namespace string) {
	if process.Pass(ctx, rand.N(peerRetry)) != nil {
		return
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: "peer"}, Client: client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: candidate},
		},
		LeaseDuration: peerDuration, RenewDeadline: peerDeadline, RetryPeriod: peerRetry,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
	})
}

// requestsIn returns, by server, what programs ask in a window that begins after a while. What the API servers ask
// themselves does not count, nor what their controller managers and this program ask.
func (b *bench) requestsIn(ctx context.Context, after time.Duration) map[string][]fleet.Request {
	must.Do(process.Pass(ctx, after))
	from := time.Now()
	to := from.Add(steadyWindow)
	must.Do(process.Pass(ctx, steadyWindow+answered))
	return b.requestsBetween(from, to)
}

func (b *bench) requestsBetween(from, to time.Time) map[string][]fleet.Request {
	all := map[string][]fleet.Request{}
	for _, s := range b.Fleet.Servers() {
		requests := must.Get(s.Requests())
		all[s.Name()] = slices.DeleteFunc(requests, func(r fleet.Request) bool {
			return r.User == "system:apiserver" || strings.HasPrefix(r.Agent, "kube-controller-manager/") ||
				r.Agent == rest.DefaultKubernetesUserAgent() || r.Received.Before(from) || !r.Received.Before(to)
		})
	}
	return all
}

func perSecond(requests []fleet.Request) float64 {
	return float64(len(requests)) / steadyWindow.Seconds()
}

// awaitLed returns when this many namespaces have a leader, with every Lease in place. If a leader is named, it leads
// all of them, and every member may be chosen.
func (b *bench) awaitLed(ctx context.Context, leader string, want int) {
	w := must.Get(b.WatchRecords(ctx)) // lists would keep a busy machine busier
	defer w.Stop()
	unsettled := map[string]error{}
	must.Do(b.Await(ctx, leadLimit, fmt.Sprintf("%d namespaces are led", want), func(context.Context) error {
		for _, s := range w.Take() {
			unsettled[s.Object.Name] = settled(*s.Object, leader)
		}
		led, last := 0, errors.New("there is no record")
		for name, err := range unsettled {
			if err != nil {
				last = fmt.Errorf("%s: %w", name, err)
				continue
			}
			led++
		}
		if led < want {
			return fmt.Errorf("%d are: %w", led, last)
		}
		return nil
	}))
}

func settled(r v1alpha1.NamespaceLeader, leader string) error {
	conditions := r.Status.Conditions
	if r.Spec.State != v1alpha1.StateLeading || leader != "" && r.Spec.Leader != leader ||
		!meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReady) ||
		!meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionLeasesInPlace) {
		return fmt.Errorf("leader %q, state %s, %s", r.Spec.Leader, r.Spec.State, r.Status.Message)
	}
	for _, c := range r.Status.Candidates {
		if leader != "" && !c.Eligible {
			return fmt.Errorf("%s is not eligible: %s %s", c.Name, c.Reason, c.Message)
		}
	}
	return nil
}
