package controller

import (
	"cmp"
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/seal"
)

// errSeal says that a decision waits for people, because the seal of its fleet cannot be written.
var errSeal = errors.New("the seal of the fleet cannot be raised")

// useOfSeal is one of the two ways in which the seal of a fleet is used: to serve the fleet, or to raise what it holds. One may
// go well while the other does not.
type useOfSeal struct {
	fleet string
	raise bool
}

// noteSeal notes whether the seal of a fleet could be used. A worker asks for it several times a second. So the log and the
// policies tell of it once. It reports whether people have to put it right.
func (c *Controller) noteSeal(ctx context.Context, of useOfSeal, err error) bool {
	broken := brokenBy(err)
	if err != nil && broken == "" {
		if !errors.Is(err, seal.ErrServed) && !of.raise { // an event names the one once the cache shows it, decisions the other
			log.FromContext(ctx).Error(err, "The seal of the fleet cannot be read or written", "fleet", of.fleet)
		}
		return false
	}
	c.mu.Lock()
	was := c.brokenSeals[of]
	c.brokenSeals[of] = broken
	c.mu.Unlock()
	if broken != "" && broken != was {
		log.FromContext(ctx).Error(err, "The seal of the fleet cannot be used", "reason", reason.InvalidSeal, "fleet", of.fleet)
	}
	switch {
	case broken == was:
	case of.raise:
		c.policiesChanged(of.fleet)
	default:
		c.fleetChanged(of.fleet)
	}
	return broken != ""
}

// brokenBy explains what people have to put right before the seal can be used. It is empty if time may heal it.
func brokenBy(err error) string {
	switch {
	case errors.Is(err, seal.ErrBroken):
		return err.Error()
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		return cut(err.Error(), 512) + ": the hub must be able to update this Secret: if it is immutable, delete it while the hub runs, " +
			"which makes it again; else have the webhook or policy that refuses let the hub write it"
	default:
		return ""
	}
}

// brokenSeal says why the seal of a fleet cannot be used. It is empty if it can.
func (c *Controller) brokenSeal(fleetName string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(c.brokenSeals[useOfSeal{fleetName, false}], c.brokenSeals[useOfSeal{fleetName, true}])
}
