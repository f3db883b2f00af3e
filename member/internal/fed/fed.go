// Package fed has the terms of a Member without a Member. membertest and tests feed them by hand.
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
	// Lead is Member.Lead.
	Lead(ctx context.Context, namespace string, f func(ctx context.Context) error) error
	// State is Member.State.
	State(namespace string) member.State
	// Namespaces is Member.Namespaces.
	Namespaces() []string
	// Observe applies a Lease that was received just now.
	Observe(l *coordinationv1.Lease)
	// Delete records that a Lease does not exist.
	Delete(namespace, name string)
	// Check ends every term that has run out.
	Check()
}

// New returns Terms without any Lease. The clock judges the terms. skew is ε.
func New(clock lease.Clock, skew time.Duration) Terms { return hook.NewTerms(clock, skew).(Terms) }
