package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
)

// site is the fleet as seen from the management cluster, and by what guestbooks do.
type site struct {
	*place
	hub client.Client
}

func (p *place) look() (*site, error) {
	admin, err := p.client(hub)
	return &site{p, admin}, err
}

// warm returns nil if a member's guestbook could act at once: one of its replicas holds its own election, and renews
// that.
func (p *place) warm(ctx context.Context, c cluster) error {
	raw, err := p.kubectlOn(ctx, c, nil, "--request-timeout=5s", "-n", guestbookHome, "get", "lease", "guestbook", "-o",
		"jsonpath={.spec.renewTime}")
	if err != nil {
		return err
	}
	return fresh(c, raw, time.Now())
}

// fresh judges the renewTime of an election that is renewed every two seconds, and abandoned after fifteen.
func fresh(c cluster, renewTime string, now time.Time) error {
	renewed, err := time.Parse(metav1.RFC3339Micro, renewTime)
	if err != nil {
		return fmt.Errorf("the guestbooks in %s have elected nobody: %w", c.name, err)
	}
	if ago := now.Sub(renewed); ago > 8*time.Second {
		return fmt.Errorf("the guestbook that was elected in %s has not renewed that for %v", c.name, ago)
	}
	return nil
}

// record is what the hub has decided.
func (s *site) record(ctx context.Context) (*v1alpha1.NamespaceLeader, error) {
	r := &v1alpha1.NamespaceLeader{}
	return r, s.hub.Get(ctx, client.ObjectKey{Namespace: harness.FleetNamespace, Name: managed}, r)
}

// settled returns who leads, if all is well: one leads, and each other one could.
func (s *site) settled(ctx context.Context) (leader string, err error) {
	r, err := s.record(ctx)
	if err != nil {
		return "", err
	}
	if r.Spec.State != v1alpha1.StateLeading {
		return "", fmt.Errorf("the record says %s: %s", r.Spec.State, r.Status.Message)
	}
	if len(r.Status.Candidates) != len(members) {
		return "", fmt.Errorf("there are %d candidates", len(r.Status.Candidates))
	}
	var errs []error
	for _, c := range r.Status.Candidates {
		if !c.Eligible {
			errs = append(errs, fmt.Errorf("%s may not lead: %s %s", c.Name, c.Reason, c.Message))
		}
	}
	return r.Spec.Leader, errors.Join(errs...)
}

func (s *site) awaitSettled(ctx context.Context, limit time.Duration) (leader string, err error) {
	err = harness.Await(ctx, limit, "one cluster leads and each other one could", func(ctx context.Context) error {
		leader, err = s.settled(ctx)
		return err
	})
	return leader, err
}
