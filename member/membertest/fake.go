// Package membertest has a fake cluster for the tests of controller authors. It sets who leads, without an API server,
// and advances time on request. It runs the code of the real Member. So a gated reconciler, a context or a listener
// behaves in a test as in a cluster.
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

// Duration is how long a term of a Fake lasts, from Promote or Renew on, by the Fake's own clock.
const Duration = 15 * time.Second

const (
	here  = "here.fake"
	other = "other.fake"
)

// Fake is a member.Leader that leads where the test promotes it. At first it leads nothing. Its clock stands still
// unless Advance or Expire moves it. All methods are safe for concurrent use. When one returns, checks give the new
// answer and the contexts of a term that ended are cancelled. Listeners are called in their own goroutines, as always.
type Fake struct {
	member.Leader
	terms fed.Terms // the Leader, with the methods that feed it
	clock *clocktest.Hand

	mu     sync.Mutex
	epochs map[string]int64 // the last epoch of each namespace
}

var _ member.Leader = (*Fake)(nil)

// New returns a Fake without any namespace.
func New() *Fake {
	clock := clocktest.NewHand(clocktest.Start)
	terms := fed.New(clock, time.Second)
	return &Fake{Leader: terms, terms: terms, clock: clock, epochs: map[string]int64{}}
}

// Lead runs f whenever this cluster leads the namespace, as [member.Member.Lead] does.
func (f *Fake) Lead(ctx context.Context, namespace string, act func(ctx context.Context) error) error {
	return f.terms.Lead(ctx, namespace, act)
}

// State returns who leads the namespace, as [member.Member.State] does.
func (f *Fake) State(namespace string) member.State { return f.terms.State(namespace) }

// Namespaces returns the namespaces that have a Lease, as [member.Member.Namespaces] does.
func (f *Fake) Namespaces() []string { return f.terms.Namespaces() }

// Promote starts a new term of this cluster and returns its epoch. It ends a term that this cluster already has.
func (f *Fake) Promote(namespace string) (epoch int64) { return f.write(namespace, here, 1) }

// Renew extends the term of this cluster. After a term has run out, Renew begins another Term with the same epoch.
func (f *Fake) Renew(namespace string) { f.write(namespace, here, 0) }

// Demote starts a term of another cluster.
func (f *Fake) Demote(namespace string) { f.write(namespace, other, 1) }

// DeleteLease deletes the namespace's Lease: a missing Lease permits nothing.
func (f *Fake) DeleteLease(namespace string) {
	f.terms.Delete(namespace, v1alpha1.DefaultLeaseName)
}

// Expire lets every term run out, as when the hub is silent.
func (f *Fake) Expire() { f.Advance(Duration) }

// Advance moves both clocks, and ends the terms that run out.
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
		panic(fmt.Sprintf("membertest: %v", err)) // a Fake makes no epoch or duration that is refused
	}
	f.terms.Observe(l)
	return epoch
}
