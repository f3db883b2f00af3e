// Package fed has the terms of a Member without a Member: they are fed by hand, for membertest and for tests.
package fed

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/internal/hook"
)

// Terms apply the reader's rule to the Leases that they are fed with.
type Terms interface {
	member.Leader
	// Lead is that of a Member.
	Lead(ctx context.Context, namespace string, f func(ctx context.Context) error) error
	// State is that of a Member.
	State(namespace string) member.State
	// Namespaces is that of a Member.
	Namespaces() []string
	// Observe applies a Lease that was received just now.
	Observe(l *coordinationv1.Lease)
	// Delete notes that a Lease does not exist.
	Delete(namespace, name string)
	// Check looks at the clock, and ends every term that has run out.
	Check()
}

// New returns Terms that know of no Lease. The clock is what terms are judged by; skew is ε.
func New(clock lease.Clock, skew time.Duration) Terms { return hook.NewTerms(clock, skew).(Terms) }
