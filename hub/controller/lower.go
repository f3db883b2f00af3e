package controller

import (
	"context"
	"maps"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/seal"
)

// lowering is a pending reduction of a seal's bounds. It waits until everything promised under the larger bounds
// has passed.
type lowering struct {
	before, after map[string]seal.Bounds
	since         time.Duration // boot reading since when nothing needs the larger bounds
}

// lowersAfter is the least time that nothing must have needed the larger bounds before they are lowered. A decision
// that began with an older policy has ended by then.
const lowersAfter = 3 * decideTimeout

// lowerSeal lowers the bounds in a fleet's seal. It does so when no policy and no record has needed the larger ones
// for as long as Leases that were sent under them count. It returns when to check again, or zero.
func (c *Controller) lowerSeal(ctx context.Context, fleetName string, policies []*policy) (wait time.Duration, err error) {
	s, err := c.Seals.Find(ctx, fleetName)
	if err != nil {
		return 0, nil // a condition reports it
	}
	if rest := c.Tenure.EarlierEndIn(c.Clock.Now(), s.Largest().Skew); rest > 0 {
		return rest, nil // an earlier tenure may still send under any bounds in the seal
	}
	needed := map[string]seal.Bounds{}
	for _, p := range policies {
		if p.unknown {
			return 0, nil // Leases may have been sent for it under any bounds in the seal
		}
		needed[p.object.Name] = p.bounds()
	}
	if maps.Equal(s.Needed(needed), s.Policies) {
		c.setLowering(fleetName, nil)
		return 0, nil
	}
	var records v1alpha1.NamespaceLeaderList
	if err := c.client.List(ctx, &records, client.InNamespace(fleetName), client.UnsafeDisableDeepCopy); err != nil {
		return 0, err
	}
	for i := range records.Items {
		r, name := recordOf(&records.Items[i].Spec), records.Items[i].Spec.Policy
		needed[name] = needed[name].Max(seal.Bounds{Duration: r.Duration, Skew: r.Skew, Stop: r.Stop})
	}
	now, is := c.Clock.Now().Boot, lowering{before: s.Policies, after: s.Needed(needed)}
	if maps.Equal(is.before, is.after) {
		c.setLowering(fleetName, nil)
		return 0, nil
	}
	is.since = c.setLowering(fleetName, &lowering{is.before, is.after, now})
	if rest := is.since + max(lowersAfter, s.Largest().Total()) - now; rest > 0 {
		return rest, nil
	}
	c.setLowering(fleetName, nil)
	return 0, c.Seals.Lower(ctx, fleetName, is.before, is.after)
}

// setLowering remembers a pending reduction, or forgets it if nil is passed. It returns since when the reduction
// waits.
func (c *Controller) setLowering(fleetName string, is *lowering) (since time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if is == nil {
		delete(c.lowerings, fleetName)
		return 0
	}
	if was, waits := c.lowerings[fleetName]; waits && maps.Equal(was.before, is.before) && maps.Equal(was.after, is.after) {
		return was.since
	}
	c.lowerings[fleetName] = *is
	return is.since
}
