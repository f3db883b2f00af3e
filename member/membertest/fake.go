// Package membertest has a fake cluster for the tests of controller authors: it
// says who leads, without an API server, and lets time pass on request. Behind it
// is the code of the real thing, so what a gated reconciler, a context or a listener
// does in a test is what it does in a cluster.
package membertest

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/internal/fed"
)

// Duration is how long a term of a Fake lasts, from Promote or Renew on, by the
// Fake's own clock.
const Duration = 15 * time.Second

const (
	here  = "here.fake"
	other = "other.fake"
)

// Fake is a member.Leader that leads where it is told to. Nothing is led at first.
// Its clock stands still unless Advance or Expire moves it. All methods are safe
// for concurrent use; when one returns, checks give the new answer and the contexts
// of a term that ended are cancelled. Listeners are called in goroutines of their
// own, as always.
type Fake struct {
	member.Leader
	terms fed.Terms // which are the Leader
	clock *clocktest.Hand

	mu     sync.Mutex
	epochs map[string]int64 // the last epoch of each namespace
}

var _ member.Leader = (*Fake)(nil)

// New returns a Fake that knows of no namespace.
func New() *Fake {
	clock := clocktest.NewHand(clocktest.Start)
	terms := fed.New(clock, time.Second)
	return &Fake{Leader: terms, terms: terms, clock: clock, epochs: map[string]int64{}}
}

// Lead runs f whenever this cluster leads the namespace, as [member.Member.Lead] does.
func (f *Fake) Lead(ctx context.Context, namespace string, act func(ctx context.Context) error) error {
	return f.terms.Lead(ctx, namespace, act)
}

// State says who leads the namespace, as [member.Member.State] does.
func (f *Fake) State(namespace string) member.State { return f.terms.State(namespace) }

// Namespaces returns the namespaces that have a Lease, as [member.Member.Namespaces] does.
func (f *Fake) Namespaces() []string { return f.terms.Namespaces() }

// Promote starts a new term of this cluster and returns its epoch. A term that it
// has already ends.
func (f *Fake) Promote(namespace string) (epoch int64) { return f.write(namespace, here, 1) }

// Renew extends the term of this cluster. One that has run out is not revived but
// followed by another Term with the same epoch.
func (f *Fake) Renew(namespace string) { f.write(namespace, here, 0) }

// Demote starts a term of another cluster.
func (f *Fake) Demote(namespace string) { f.write(namespace, other, 1) }

// DeleteLease takes the namespace's Lease away: a missing Lease means no.
func (f *Fake) DeleteLease(namespace string) {
	f.terms.Delete(namespace, v1alpha1.DefaultLeaseName)
}

// Expire lets every term run out, as when the hub has fallen silent.
func (f *Fake) Expire() { f.Advance(Duration) }

// Advance lets time pass.
func (f *Fake) Advance(d time.Duration) {
	f.clock.Advance(d)
	f.terms.Check()
}

func (f *Fake) write(namespace, holder string, rise int64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Now().Wall
	epoch := max(f.epochs[namespace]+rise, 1)
	f.epochs[namespace] = epoch
	l := &coordinationv1.Lease{}
	if err := wire.Write(lease.Content{
		Term:      lease.Term{Holder: holder, Epoch: epoch, AcquireTime: now, RenewTime: now, Duration: Duration},
		Namespace: namespace,
		Name:      v1alpha1.DefaultLeaseName,
		Cluster:   here,
	}, "", l); err != nil {
		panic(fmt.Sprintf("membertest: %v", err)) // no epoch or duration that a Fake makes is refused
	}
	f.terms.Observe(l)
	return epoch
}
