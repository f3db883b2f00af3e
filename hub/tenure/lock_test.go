package tenure_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasecast/leasecast/api/lease"
)

const (
	second = time.Second
	h      = 6 * second
)

var zero = time.Date(2026, time.January, 5, 12, 0, 0, 0, time.UTC)

func wall(seconds float64) time.Time { return zero.Add(time.Duration(seconds * float64(second))) }

func boot(seconds float64) time.Duration {
	return 1000*second + time.Duration(seconds*float64(second))
}

func at(seconds float64) lease.Reading {
	return lease.Reading{Wall: wall(seconds), Boot: boot(seconds)}
}

var (
	leases       = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	errAmbiguous = errors.New("context deadline exceeded")
)

// store is the Lease of the election, with the compare-and-swap and the precision of an API server.
type store struct {
	mu      sync.Mutex
	record  *resourcelock.LeaderElectionRecord
	version int
}

// lock is the access of one replica to it.
type lock struct {
	*store
	identity string
	seen     int
	// arrive is called before a request is carried out, and leave before it is answered.
	arrive, leave func(context.Context) error
}

func (s *store) lock(identity string) *lock {
	return &lock{
		store: s, identity: identity,
		arrive: func(context.Context) error { return nil }, leave: func(context.Context) error { return nil },
	}
}

// stored is a record as a Lease keeps it.
func stored(r resourcelock.LeaderElectionRecord) *resourcelock.LeaderElectionRecord {
	spec := resourcelock.LeaderElectionRecordToLeaseSpec(&r)
	spec.AcquireTime.Time = spec.AcquireTime.Truncate(time.Microsecond)
	spec.RenewTime.Time = spec.RenewTime.Truncate(time.Microsecond)
	return resourcelock.LeaseSpecToLeaderElectionRecord(&spec)
}

// put stores a record as another replica or an administrator left it.
func (s *store) put(r *resourcelock.LeaderElectionRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record = r
	s.version++
}

func (s *store) get() resourcelock.LeaderElectionRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.record
}

func (l *lock) serve(ctx context.Context, carry func() error) error {
	if err := l.arrive(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	err := carry()
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.leave(ctx)
}

func (l *lock) Get(ctx context.Context) (r *resourcelock.LeaderElectionRecord, raw []byte, err error) {
	err = l.serve(ctx, func() error {
		if l.record == nil {
			return apierrors.NewNotFound(leases, "hub")
		}
		kept := *l.record
		r, l.seen = &kept, l.version
		raw, err = json.Marshal(kept)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return r, raw, nil
}

func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.serve(ctx, func() error {
		if l.record != nil {
			return apierrors.NewAlreadyExists(leases, "hub")
		}
		l.write(r)
		return nil
	})
}

func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.serve(ctx, func() error {
		if l.record == nil {
			return apierrors.NewNotFound(leases, "hub")
		}
		if l.seen != l.version {
			return apierrors.NewConflict(leases, "hub", errors.New("out of date"))
		}
		l.write(r)
		return nil
	})
}

func (l *lock) write(r resourcelock.LeaderElectionRecord) {
	l.record = stored(r)
	l.version++
	l.seen = l.version
}

func (l *lock) RecordEvent(string) {}
func (l *lock) Identity() string   { return l.identity }
func (l *lock) Describe() string   { return "hub" }

// claim is what the elector writes to win or to renew.
func claim(holder string, renewed float64) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{
		HolderIdentity: holder, LeaseDurationSeconds: 6,
		AcquireTime: metav1.NewTime(wall(-100)), RenewTime: metav1.NewTime(wall(renewed)),
	}
}

// released is what an orderly release leaves.
func released(seconds float64) resourcelock.LeaderElectionRecord {
	r := release(seconds)
	r.AcquireTime = metav1.NewTime(r.RenewTime.Add(time.Microsecond))
	return r
}

// release is what the elector writes to release the election.
func release(seconds float64) resourcelock.LeaderElectionRecord {
	now := metav1.NewTime(wall(seconds))
	return resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1, AcquireTime: now, RenewTime: now}
}
