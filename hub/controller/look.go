package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/worker"
)

// lookAt returns the view of one member for one namespace.
func (ms *members) lookAt(ctx context.Context, m fleet.Member, namespace string) (decide.Member, error) {
	mv := decide.Member{Member: m, Unguarded: guard.ErrUnchecked, Required: worker.Required{Err: worker.ErrUnread}}
	if w := ms.worker(m.Key); w != nil {
		mv.Publisher, mv.Unguarded, mv.Readers = w.Publisher(), w.Unguarded(), w.Readers(namespace)
	}
	if mv.Publisher != nil {
		mv.Initial = mv.Publisher.Initial()
		mv.IsRead = mv.Initial.Read
	}
	if !m.Connected {
		mv.IsRead = false
		return mv, nil
	}
	ns, err := ms.source.namespace(ctx, m, namespace)
	switch {
	case err == nil:
		mv.Namespace = ns
	case errors.Is(err, errDisengaged):
		mv.Connected, mv.IsRead = false, false
	case !apierrors.IsNotFound(err):
		return mv, fmt.Errorf("namespace %s in cluster %s: %w", namespace, m.Key, err)
	}
	return mv, nil
}

// observe adds what the members show under the policy that owns the namespace. All clocks are judged at one reading.
func (ms *members) observe(ctx context.Context, v *decide.Snapshot, now lease.Reading) {
	name, fences := v.LeaseKey(v.Record), ms.awaitedFences(v)
	for i := range v.Members {
		m := &v.Members[i]
		if v.Policy != nil {
			m.Verdict = ms.source.health(m.Member, v.Policy.Thresholds)
			m.Answered = ms.source.lastAnswer(m.Member)
			m.ClockVerdict = ms.source.clock(now, m.Member, v.Policy.Election.Timings.Skew)
		}
		ms.addFences(ctx, v, m, fences)
		ms.addRequired(v, m)
		if m.Publisher == nil {
			continue
		}
		m.Sync = m.Publisher.SyncStatus(name)
		for _, cp := range m.Initial.Leases {
			ms.Tenure.ObserveEarlier(cp.RenewTime)
		}
		m.Leases = m.Publisher.LeasesIn(v.Key.Name)
	}
}

// addRequired adds what is known of what the policy requires.
func (ms *members) addRequired(v *decide.Snapshot, m *decide.Member) {
	if v.Policy == nil || v.Policy.Requires == nil {
		m.Required = worker.Required{}
	} else if w := ms.worker(m.Key); w != nil {
		m.Required = w.Required(v.Key.Name, *v.Policy.Requires)
	}
}

// awaitedFences returns the fences that the policy asks for in the namespace. Fences that only warn are not waited
// for.
func (ms *members) awaitedFences(v *decide.Snapshot) []guard.Fence {
	if v.Policy == nil || v.Policy.Unknown {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(v.Policy.FencesBut(ms.HubID, nil)), func(f guard.Fence) bool {
		lock, isLock := f.Lock()
		return f.Warns() || isLock && !slices.Contains(v.Policy.Election.Locks, lock.String())
	})
}

// addFences adds whether fences are in force in the namespace.
func (ms *members) addFences(ctx context.Context, v *decide.Snapshot, m *decide.Member, fences []guard.Fence) {
	w := ms.worker(m.Key)
	for _, f := range fences {
		lock, isLock := f.Lock()
		since, err := time.Duration(0), guard.ErrUnchecked
		if w != nil {
			since, err = w.FencedSince(f, v.Key.Name)
		}
		if isLock && ms.mayBeHeld(ctx, m, lock.Namespace) {
			m.Refusals = append(m.Refusals, decide.Refusal{Lock: lock.String(), Since: since, Err: err})
		}
		if m.Name == v.Record.Leader && errors.Is(err, guard.ErrStored) {
			err = nil // after an outage of the hub, unchecked fences move no leader
		}
		m.Unfenced = cmp.Or(m.Unfenced, err)
		if isLock || f.Schedules() != nil {
			m.UnfencedByLease = cmp.Or(m.UnfencedByLease, err)
		}
	}
}

// mayBeHeld reports whether a lock of a namespace may be held in a member, from a cache. It returns false where
// that namespace does not exist, and true for a member that the hub does not reach.
func (ms *members) mayBeHeld(ctx context.Context, m *decide.Member, namespace string) bool {
	if !m.IsReached() || m.Namespace != nil {
		return true
	}
	_, err := ms.source.namespace(ctx, m.Member, namespace)
	return !apierrors.IsNotFound(err)
}
