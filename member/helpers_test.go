package member_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/internal/musttest"
)

const (
	ns   = "shop"
	us   = "east.fleet" // the cluster that the Leases of these tests live in
	them = "west.fleet"
	none = ""

	leaseName = v1alpha1.DefaultLeaseName

	skew     = time.Second
	duration = 15 * time.Second
	recheck  = 100 * time.Millisecond // the promised bound, as documented
)

// testHub makes the Leases of a cluster, by the clock of a bubble.
type testHub struct {
	t     testing.TB
	clock *clocktest.Bubble
	lasts time.Duration // how long its Leases last
}

func newTestHub(t testing.TB) *testHub {
	return &testHub{t, clocktest.NewBubble(clocktest.Start), duration}
}

// edit changes a Lease before it is written.
type edit = func(l *coordinationv1.Lease)

// leaseOf returns a Lease of now.
func (h *testHub) leaseOf(namespace, holder string, epoch int64, edits ...edit) *coordinationv1.Lease {
	h.t.Helper()
	now := h.clock.Now().Wall
	l := leaseIn(h.t, namespace,
		lease.Term{Holder: holder, Epoch: epoch, AcquireTime: now, RenewTime: now, Duration: h.lasts})
	for _, change := range edits {
		change(l)
	}
	return l
}

// leaseIn returns a Lease that lives in our cluster.
func leaseIn(t testing.TB, namespace string, term lease.Term) *coordinationv1.Lease {
	t.Helper()
	l := &coordinationv1.Lease{}
	musttest.Do(t, wire.Write(lease.Content{
		Term: term, Namespace: namespace, Name: leaseName, Cluster: us, ClusterUID: "uid", Hub: "hub",
		Skew: skew,
	}, "", l))
	return l
}

func ahead(d time.Duration) edit {
	return func(l *coordinationv1.Lease) { l.Spec.RenewTime.Time = l.Spec.RenewTime.Add(d) }
}

func lasting(seconds int32) edit {
	return func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = &seconds }
}

func named(name string) edit { return func(l *coordinationv1.Lease) { l.Name = name } }

// allowing sets what the policy allows clocks. 0 removes it.
func allowing(t testing.TB, skew time.Duration) edit {
	return func(l *coordinationv1.Lease) {
		t.Helper()
		c, _ := wire.Read(l)
		c.Skew = skew
		musttest.Do(t, wire.Write(c, "", l))
	}
}

// blank leaves the label of the hub and nothing else, as an editor may.
func blank(l *coordinationv1.Lease) {
	l.Annotations, l.Spec = nil, coordinationv1.LeaseSpec{}
}

// noCluster removes the annotation with the cluster, and noLabel the label of the hub.
func noCluster(l *coordinationv1.Lease) { delete(l.Annotations, v1alpha1.ClusterAnnotation) }
func noLabel(l *coordinationv1.Lease)   { delete(l.Labels, v1alpha1.ManagedLabel) }

// testTerms are the terms of one cluster, fed by hand.
type testTerms struct {
	*member.Terms
	*testHub
	wrote *coordinationv1.Lease // last
}

func newTestTerms(t testing.TB) *testTerms {
	h := newTestHub(t)
	return &testTerms{Terms: member.NewTerms(h.clock, skew), testHub: h}
}

// write has the terms observe a Lease of now.
func (c *testTerms) write(namespace, holder string, epoch int64, edits ...edit) {
	c.t.Helper()
	c.wrote = c.leaseOf(namespace, holder, epoch, edits...)
	c.Observe(c.wrote)
}

// leads reports whether the cluster leads the namespace of these tests.
func (c *testTerms) leads() bool {
	_, ok := c.Term(ns)
	return ok
}

// name returns the name of one of many namespaces.
func name(i int) string { return fmt.Sprintf("team-%04d", i) }

// contextOf returns a context of the namespace's term, which must hold.
func contextOf(t testing.TB, l member.Leader, namespace string) (context.Context, context.CancelFunc) {
	t.Helper()
	ctx, done, err := l.Context(context.Background(), namespace)
	musttest.Do(t, err)
	return ctx, done
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
