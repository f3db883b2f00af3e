package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
)

// What people do today: one API server in the middle, a Lease there for every namespace, and in each cluster a process
// with a candidate for each of them. It is compared with Leasecast under the same fault: the cluster that leads
// everywhere is gone from one instant to the next, and nobody learns of it. Of the peer that takes away the candidate
// process only, which is all of it that runs in that cluster.

// candidateRules are the rights that the elector needs.
var candidateRules = []rbacv1.PolicyRule{
	{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
}

// electorate is the peer's side.
type electorate struct {
	dir, kubeconfig string
	namespaces      []string
}

// measurePeer counts what client-go's electors ask of their API server, and kills the leader again and again.
func measurePeer(ctx context.Context, b *bench) (err error) {
	if err := harness.EmptyDir(b.dir()); err != nil {
		return err
	}
	f, err := fleet.Start(ctx, fleet.Options{AuditReads: true, Progress: b.say})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	e := electorate{dir: b.dir(), namespaces: teams(b.sizes.compared)}
	if e.kubeconfig, err = settleElectorate(ctx, f.Hub(), e); err != nil {
		return err
	}
	var took []time.Duration
	for round := range b.sizes.faults {
		t, err := e.round(ctx, b, f.Hub(), round)
		if err != nil {
			return fmt.Errorf("fault %d: %w", round+1, err)
		}
		took = append(took, t...)
	}
	b.figures[peerP50], b.figures[peerP99], b.figures[peerMax] = spread(took)
	return nil
}

// settleElectorate makes the namespaces and a service account for the candidates.
func settleElectorate(ctx context.Context, s *fleet.Server, e electorate) (kubeconfig string, err error) {
	client, err := kubernetes.NewForConfig(s.AdminConfig())
	if err != nil {
		return "", err
	}
	for _, namespace := range e.namespaces {
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return "", fmt.Errorf("namespace %s: %w", namespace, err)
		}
	}
	return accountFile(ctx, s, e.dir, "candidate", candidateRules)
}

// accountFile makes a service account with these rights everywhere and writes its kubeconfig, straight at the API server.
func accountFile(ctx context.Context, s *fleet.Server, dir, name string, rules []rbacv1.PolicyRule) (file string, err error) {
	config, err := s.ServiceAccountConfig(ctx, name+"-system", name, rules)
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, name+"-"+s.Name()+".kubeconfig")
	return file, fleet.WriteKubeconfig(file, s.Name(), config)
}

// round has the first cluster lead everywhere, kills its candidate and returns how long each namespace had no leader. Each
// round has Leases and processes of its own, so that all are alike. The first one also counts requests.
func (e electorate) round(ctx context.Context, b *bench, s *fleet.Server, round int) (took []time.Duration, err error) {
	var parties []*party
	defer func() { err = errors.Join(err, stopParties(parties)) }()
	for i, cluster := range clusters {
		name := fmt.Sprintf("candidate-%s-%d", cluster, round+1)
		p, err := startParty(e.dir, name, cluster, candidateArg, child{
			kubeconfig: e.kubeconfig, identity: cluster,
			lease: fmt.Sprintf("peer-%d", round+1), namespaces: strings.Join(e.namespaces, ","),
		})
		if err != nil {
			return nil, err
		}
		parties = append(parties, p)
		if i == 0 {
			err = p.awaitRole(ctx, e.namespaces, true)
			if err != nil {
				return nil, err
			}
		}
	}
	for _, p := range parties[1:] {
		if err := p.awaitRole(ctx, e.namespaces, false); err != nil {
			return nil, err
		}
	}
	if round == 0 {
		if b.figures[peerRequests], err = countRequests(ctx, b, []*fleet.Server{s}); err != nil {
			return nil, err
		}
	}
	if err := parties[0].awaitRole(ctx, e.namespaces, true); err != nil {
		return nil, fmt.Errorf("before the fault: %w", err)
	}
	fault := harness.Now().Boot
	if err := parties[0].Kill(); err != nil {
		return nil, err
	}
	if took, err = awaitSuccession(ctx, parties[1:], e.namespaces, fault); err == nil {
		b.say(fmt.Sprintf("fault %d of %d: %s lost: %s", round+1, b.sizes.faults, parties[0].cluster, inWords(took)))
	}
	return took, err
}

// spread are the median, p99 and the maximum, in seconds. There must be some values.
func spread(took []time.Duration) (p50, p99, most float64) {
	return median(took).Seconds(), quantile(took, 0.99).Seconds(), quantile(took, 1).Seconds()
}

func inWords(took []time.Duration) string {
	p50, p99, most := spread(took)
	return fmt.Sprintf("%d namespaces had another leader after %.2f s at the median, p99 %.2f s, max %.2f s", len(took), p50, p99, most)
}
