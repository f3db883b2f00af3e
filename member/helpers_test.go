package member_test

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/member"
)

const (
	us   = "east.fleet" // the cluster that the Leases of these tests live in
	them = "west.fleet"
	none = ""

	skew     = time.Second
	duration = 15 * time.Second
	recheck  = 100 * time.Millisecond // the promised bound, as documented
)

// cluster is one reader with a clock of its own.
type cluster struct {
	*member.Terms
	t     testing.TB
	clock *clocktest.Bubble
}

func newCluster(t testing.TB) *cluster {
	c := clocktest.NewBubble(clocktest.Start)
	return &cluster{Terms: member.NewTerms(c, skew), t: t, clock: c}
}

// write has the cluster observe a Lease of now.
func (c *cluster) write(namespace, holder string, epoch int64) *coordinationv1.Lease {
	c.t.Helper()
	l := c.leaseOf(namespace, holder, epoch)
	c.Observe(l)
	return l
}

// leaseOf returns a Lease of now.
func (c *cluster) leaseOf(namespace, holder string, epoch int64) *coordinationv1.Lease {
	c.t.Helper()
	now := c.clock.Now().Wall
	return leaseIn(c.t, namespace, lease.Term{
		Holder:      holder,
		Epoch:       epoch,
		AcquireTime: now,
		RenewTime:   now,
		Duration:    duration,
	})
}

// leads asks about the namespace of these tests.
func (c *cluster) leads() bool {
	_, ok := c.Term(ns)
	return ok
}

// leaseIn returns a Lease that lives in our cluster.
func leaseIn(t testing.TB, namespace string, term lease.Term) *coordinationv1.Lease {
	t.Helper()
	l := &coordinationv1.Lease{}
	if err := wire.Write(lease.Content{
		Term:       term,
		Namespace:  namespace,
		Name:       v1alpha1.DefaultLeaseName,
		Cluster:    us,
		ClusterUID: "uid",
		Hub:        "hub",
		Skew:       skew,
	}, "", l); err != nil {
		t.Fatal(err)
	}
	return l
}

// renamed returns the Lease under another name, as after a change of the policy.
func renamed(l *coordinationv1.Lease) *coordinationv1.Lease {
	l = l.DeepCopy()
	l.Name = "new"
	return l
}

// pass lets time pass; inside a bubble that takes none.
func pass(d time.Duration) { <-time.After(d) }

// within bounds a call that waits, so that one that never returns fails its test.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
