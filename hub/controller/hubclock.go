package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/skew"
)

const (
	// clockEvery is how often a replica checks its clock.
	clockEvery = time.Second
	// clockSteps is how many checks in a row must fail before an elected replica gives up. A clock that is
	// corrected at once costs nothing.
	clockSteps = 2
)

// limits are the largest ε and the largest D of all policies.
type limits struct{ skew, duration time.Duration }

// hubClock checks the clock of this machine. It ends the process of an elected replica whose clock is contradicted. The
// replica stops in order and releases the election, and another replica takes over. A replica that was never elected
// waits until its clock is right.
type hubClock struct {
	*hub
	limits atomic.Pointer[limits] // beyond them a wrong clock of this hub lets no cluster lead
}

// contradicted returns what is wrong with this machine's clock, if the offsets of all measured clusters prove that
// no cluster can lead by it. It reads a clock and memory only.
func (h *hubClock) contradicted() error {
	l := h.limits.Load()
	if l == nil {
		return nil // no policy was seen yet
	}
	offsets := h.source.Offsets()
	all := slices.AppendSeq(make([]skew.Interval, 0, len(offsets)), maps.Values(offsets))
	if why := skew.Contradicted(all, l.skew, l.duration); why != "" {
		return fmt.Errorf("%s: set the clock of this machine right (NTP or chrony)", why)
	}
	return nil
}

var _ manager.LeaderElectionRunnable = (*hubClock)(nil)

// NeedLeaderElection returns false: a standby checks its clock too, so that it does not campaign with a wrong one.
func (*hubClock) NeedLeaderElection() bool { return false }

// Start checks the clock until ctx ends, or until this replica has to give up its election.
func (h *hubClock) Start(ctx context.Context) error {
	logger := log.FromContext(ctx).WithName("clock")
	wrong := 0
	err := wait.PollUntilContextCancel(ctx, clockEvery, true, func(ctx context.Context) (bool, error) {
		if err := h.learn(ctx); err != nil {
			logger.V(1).Info("The policies could not be listed", "err", err.Error()) // the last known limits stay
		}
		err := h.contradicted()
		if err == nil {
			if wrong >= clockSteps {
				logger.Info("The clock of this hub is right again")
			}
			wrong = 0
			return false, nil
		}
		if wrong++; wrong == clockSteps {
			logger.Error(err, "The clocks of all clusters contradict this hub's", "reason", reason.ClockContradicted, "offsets",
				fmt.Sprint(h.source.Offsets()))
		}
		started, _ := h.Tenure.Started()
		if wrong < clockSteps || started.Wall.IsZero() {
			return false, nil
		}
		return false, fmt.Errorf("this hub gives up its election: %w", err)
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// learn reads the limits from the policies, from a cache.
func (h *hubClock) learn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	var list v1alpha1.LeadershipPolicyList
	if err := h.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil { // they are not changed
		return err
	}
	var l limits
	for i := range list.Items {
		t := decide.ParsePolicy(&list.Items[i]).Election.Timings
		l.skew, l.duration = max(l.skew, t.Skew), max(l.duration, t.Duration)
	}
	h.limits.Store(&l)
	return nil
}
