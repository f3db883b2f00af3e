package member_test

import (
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
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

var testKey = lease.Key("only for tests")

// testClock runs with the bubble's time, and steps and sleeps on request.
type testClock struct {
	start    time.Time
	stepped  atomic.Int64 // of the wall clock alone
	suspends atomic.Int64 // of both clocks, unseen by timers
}

func newClock() *testClock { return &testClock{start: time.Now()} }

func (c *testClock) Now() lease.Reading {
	ran := time.Since(c.start) + time.Duration(c.suspends.Load())
	wall := time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC).Add(ran + time.Duration(c.stepped.Load()))
	return lease.Reading{Wall: wall, Boot: time.Hour + ran}
}

func (c *testClock) step(d time.Duration)    { c.stepped.Add(int64(d)) }
func (c *testClock) suspend(d time.Duration) { c.suspends.Add(int64(d)) }

// cluster is one reader with a clock of its own.
type cluster struct {
	*member.Terms
	t     testing.TB
	clock *testClock
}

func newCluster(t testing.TB) *cluster {
	c := newClock()
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
	return leaseIn(c.t, namespace, lease.Term{Holder: holder, Epoch: epoch, AcquireTime: now, RenewTime: now, Duration: duration})
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
	if err := wire.Write(testKey, lease.Content{
		Term: term, Namespace: namespace, Name: v1alpha1.DefaultLeaseName, Cluster: us, ClusterUID: "uid", Hub: "hub", Skew: skew,
	}, l); err != nil {
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
