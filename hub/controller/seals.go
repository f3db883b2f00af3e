package controller

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/explain"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/seal"
)

// Two installations of the hub may run on one management cluster, on purpose for different fleets, or because the
// hub's namespace was renamed. They see the same records and members, so one of them serves each fleet: the one
// whose mark is on the fleet's seal ([fleet.Provider.Served]). The other one stands back from the whole fleet. That
// keeps the two from overwriting each other. The marks on records and Leases keep two clusters from leading at once.

// standBackAgain is the delay before the hub checks again whether another installation serves a fleet.
const standBackAgain = 5 * time.Second

// errSeal means that a decision cannot be persisted until people repair the seal of its fleet.
var errSeal = errors.New("the seal of the fleet cannot be raised")

// useOfSeal is one of the two uses of a fleet's seal: to serve the fleet, or to raise the seal's bounds. One may
// succeed while the other fails.
type useOfSeal struct {
	fleet string
	raise bool
}

// seals uses the seals of fleets.
type seals struct {
	*hub
	sources *sources

	mu        sync.Mutex
	lowerings map[string]lowering      // by fleet
	read      map[string]lease.Reading // by fleet: from before its seal was last read
	broken    map[useOfSeal]string     // why a seal cannot be used
}

// serve has this installation serve a fleet, and returns its seal. It returns false if another installation serves
// the fleet, or if the seal cannot be obtained.
func (ss *seals) serve(ctx context.Context, fleetName string) (seal.Seal, bool) {
	if !ss.Serves(fleetName) {
		return seal.Seal{}, false
	}
	s, err := ss.Seals.Serve(ctx, fleetName, ss.HubID, func() (bool, error) {
		move, err := ss.source.Move(ctx, fleetName)
		return move != fleet.Stays, err
	})
	ss.note(ctx, useOfSeal{fleet: fleetName}, err)
	return s, err == nil
}

// of returns the seal of a fleet. An earlier tenure that was still at work may have raised it since it was read,
// and what that tenure promised counts. So the seal is read again once that tenure has ended by what it left, and
// once that is certain. skew is the largest ε of the fleet's policies.
func (ss *seals) of(ctx context.Context, fleetName string, skew time.Duration) (seal.Seal, error) {
	asked := ss.Clock.Now()
	known, err := ss.Seals.Find(ctx, fleetName)
	if err != nil {
		return known, err
	}
	ss.mu.Lock()
	last, read := ss.read[fleetName]
	ss.mu.Unlock()
	skew = max(skew, known.Largest().Skew)
	ended := func(in func(lease.Reading, time.Duration) time.Duration) bool {
		return in(last, skew) > 0 && in(asked, skew) <= 0
	}
	if read && !ended(ss.Tenure.Overlap) && !ended(ss.Tenure.EarlierEndIn) {
		return known, nil
	}
	if known, err = ss.Seals.Refresh(ctx, fleetName); err != nil {
		return known, err
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.read[fleetName] = asked
	return known, nil
}

// note records whether the seal of a fleet could be used. A worker asks for it several times a second, so the
// log and the policies report a broken seal once. It returns true if people have to repair the seal.
func (ss *seals) note(ctx context.Context, of useOfSeal, err error) bool {
	broken := explain.BrokenSeal(err)
	if err != nil && broken == "" {
		// An event reports ErrServed once the cache shows it; decisions report an error of raise.
		if !errors.Is(err, seal.ErrServed) && !of.raise {
			log.FromContext(ctx).Error(err, "The seal of the fleet cannot be read or written", "fleet", of.fleet)
		}
		return false
	}
	ss.mu.Lock()
	was := ss.broken[of]
	ss.broken[of] = broken
	ss.mu.Unlock()
	if broken != "" && broken != was {
		log.FromContext(ctx).Error(err, "The seal of the fleet cannot be used", "reason", reason.InvalidSeal, "fleet",
			of.fleet)
	}
	switch {
	case broken == was:
	case of.raise:
		ss.sources.policiesChangedIn(0, of.fleet)
	default:
		ss.sources.fleetChangedIn(0, of.fleet)
	}
	return broken != ""
}

// why returns why the seal of a fleet cannot be used, or "".
func (ss *seals) why(fleetName string) string {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return cmp.Or(ss.broken[useOfSeal{fleetName, false}], ss.broken[useOfSeal{fleetName, true}])
}

// lowering is a pending reduction of a seal's bounds. It waits until everything promised under the larger bounds
// has passed.
type lowering struct {
	before, after map[string]seal.Bounds
	since         time.Duration // boot reading since when nothing needs the larger bounds
	begun         bool          // the seal in use has the smaller bounds; the Secret may still hold the larger ones
}

// lowersAfter is the least time that nothing must have needed the larger bounds before they are lowered. A decision
// that began with an older policy has ended by then.
const lowersAfter = 3 * decideTimeout

// lower lowers the bounds in a fleet's seal. It does so when no policy and no record has needed the larger ones
// for as long as Leases that were sent under them count. It returns when to check again, or zero.
func (ss *seals) lower(
	ctx context.Context, fleetName string, policies []*decide.Policy,
) (wait time.Duration, err error) {
	s, err := ss.Seals.Find(ctx, fleetName)
	if err != nil {
		return 0, nil // a condition reports it
	}
	if rest := ss.Tenure.EarlierEndIn(ss.Clock.Now(), s.Largest().Skew); rest > 0 {
		return rest, nil // an earlier tenure may still send under any bounds in the seal
	}
	needed := map[string]seal.Bounds{}
	for _, p := range policies {
		if p.Unknown {
			return 0, nil // Leases may have been sent for it under any bounds in the seal
		}
		needed[p.Object.Name] = p.Bounds()
	}
	ss.mu.Lock()
	was := ss.lowerings[fleetName]
	ss.mu.Unlock()
	if was.begun && maps.Equal(s.Policies, was.after) {
		if err := ss.Seals.Lower(ctx, fleetName, was.before, was.after); err != nil {
			return 0, err
		}
	}
	records, err := ss.ledger.Cached(ctx, fleetName)
	if err != nil {
		return 0, err
	}
	for i := range records {
		r := &records[i].Spec
		needed[r.Policy] = needed[r.Policy].Max(seal.Bounds{
			Duration: time.Duration(r.LeaseDurationSeconds) * time.Second,
			Skew:     time.Duration(r.MaxClockSkewMilliseconds) * time.Millisecond,
			Stop:     time.Duration(r.StopTimeSeconds) * time.Second,
		})
	}
	now, is := ss.Clock.Now().Boot, lowering{before: s.Policies, after: s.Needed(needed)}
	if maps.Equal(is.before, is.after) {
		ss.setLowering(fleetName, nil)
		return 0, nil
	}
	is.since = ss.setLowering(fleetName, &lowering{before: is.before, after: is.after, since: now})
	if rest := is.since + max(lowersAfter, s.Largest().Total()) - now; rest > 0 {
		return rest, nil
	}
	is.begun = true
	ss.setLowering(fleetName, &is)
	if err := ss.Seals.Lower(ctx, fleetName, is.before, is.after); err != nil {
		return 0, err
	}
	ss.setLowering(fleetName, nil)
	return 0, nil
}

// setLowering remembers a pending reduction, or forgets it if nil is passed. It returns since when the reduction
// waits.
func (ss *seals) setLowering(fleetName string, is *lowering) (since time.Duration) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if is == nil {
		delete(ss.lowerings, fleetName)
		return 0
	}
	was := ss.lowerings[fleetName]
	if was.begun == is.begun && maps.Equal(was.before, is.before) && maps.Equal(was.after, is.after) {
		return was.since
	}
	ss.lowerings[fleetName] = *is
	return is.since
}
