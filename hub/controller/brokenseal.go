package controller

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/seal"
)

// noteSeal notes whether the seal of a fleet could be used. A worker asks for it several times a second. So the log and the
// policies tell of it once.
func (c *Controller) noteSeal(ctx context.Context, fleetName string, err error) {
	broken := ""
	if errors.Is(err, seal.ErrBroken) {
		broken = err.Error()
	}
	if err != nil && broken == "" {
		if !errors.Is(err, seal.ErrServed) { // an event names it once the cache shows it
			log.FromContext(ctx).Error(err, "The seal of the fleet cannot be read or written", "fleet", fleetName)
		}
		return
	}
	c.mu.Lock()
	was := c.brokenSeals[fleetName]
	c.brokenSeals[fleetName] = broken
	c.mu.Unlock()
	if broken == was {
		return
	}
	if broken != "" {
		log.FromContext(ctx).Error(err, "The seal of the fleet cannot be used", "reason", reason.InvalidSeal, "fleet", fleetName)
	}
	c.fleetChanged(fleetName)
}

// brokenSeal says why the seal of a fleet cannot be used. It is empty if it can.
func (c *Controller) brokenSeal(fleetName string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.brokenSeals[fleetName]
}
