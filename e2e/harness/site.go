package harness

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/must"
)

// Site is a fleet as its administrators see it, straight at the API servers.
type Site struct {
	// Hub and Members are the administrators' clients.
	Hub     client.WithWatch
	Members map[string]client.WithWatch

	home string // the namespace of Clusters, policies and records
}

// newSite makes the clients for a fleet. A timeout bounds each of their requests; zero is no timeout.
func newSite(f *fleet.Fleet, home string, scheme *runtime.Scheme, timeout time.Duration) (*Site, error) {
	s := &Site{Members: map[string]client.WithWatch{}, home: home}
	for _, server := range f.Servers() {
		config := server.AdminConfig()
		config.Timeout = timeout
		c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
		if err != nil {
			return nil, fmt.Errorf("client of %s: %w", server.Name(), err)
		}
		if server == f.Hub() {
			s.Hub = c
		} else {
			s.Members[server.Name()] = c
		}
	}
	return s, nil
}

// Record reads the record of a namespace.
func (s *Site) Record(ctx context.Context, namespace string) (*v1alpha1.NamespaceLeader, error) {
	r := &v1alpha1.NamespaceLeader{}
	return r, s.Hub.Get(ctx, client.ObjectKey{Namespace: s.home, Name: namespace}, r)
}

// Candidate reads a Cluster's entry in the record of a namespace.
func (s *Site) Candidate(ctx context.Context, namespace, cluster string) (v1alpha1.Candidate, error) {
	r, err := s.Record(ctx, namespace)
	if err != nil {
		return v1alpha1.Candidate{}, err
	}
	for _, c := range r.Status.Candidates {
		if c.Name == cluster {
			return c, nil
		}
	}
	return v1alpha1.Candidate{}, fmt.Errorf("%s is no candidate of %s; leader %q, state %s, %s; candidates %+v",
		cluster, namespace, r.Spec.Leader, r.Spec.State, r.Status.Message, r.Status.Candidates)
}

// Eligible returns nil if the record of a namespace reports a Cluster as eligible.
func (s *Site) Eligible(ctx context.Context, namespace, cluster string) error {
	c, err := s.Candidate(ctx, namespace, cluster)
	if err == nil && !c.Eligible {
		err = fmt.Errorf("%s is not eligible for %s: %s %s", cluster, namespace, c.Reason, c.Message)
	}
	return err
}

// LeaseIn reads a member's Lease of a namespace.
func (s *Site) LeaseIn(ctx context.Context, member, namespace string) (*coordinationv1.Lease, error) {
	l := &coordinationv1.Lease{}
	return l, s.Members[member].Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.DefaultLeaseName}, l)
}

// Leading returns the epoch in which a cluster leads a namespace, if the record and the Leases in these members say so.
func (s *Site) Leading(ctx context.Context, leader, namespace string, members ...string) (epoch int64, err error) {
	return must.Return(func() int64 {
		r := must.Get(s.Record(ctx, namespace))
		is := r.Spec
		if is.Leader != leader || is.State != v1alpha1.StateLeading {
			must.Fail("record: leader %q, state %s, reason %s, %s; candidates %+v",
				is.Leader, is.State, is.Reason, r.Status.Message, r.Status.Candidates)
		}
		for _, m := range members {
			l, err := s.LeaseIn(ctx, m, namespace)
			must.Do(err, "the Lease in %s", m)
			if holder := *l.Spec.HolderIdentity; holder != leader+"."+s.home || int64(*l.Spec.LeaseTransitions) != is.Epoch {
				must.Fail("the Lease in %s: holder %s, epoch %d; want %s, %d", m, holder, *l.Spec.LeaseTransitions, leader,
					is.Epoch)
			}
		}
		return is.Epoch
	})
}
