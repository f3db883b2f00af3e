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

// errSeal means that a decision cannot be persisted until people repair the seal of its fleet.
var errSeal = errors.New("the seal of the fleet cannot be raised")

// useOfSeal is one of the two uses of a fleet's seal: to serve the fleet, or to raise the seal's bounds. One may
// succeed while the other fails.
type useOfSeal struct {
	fleet string
	raise bool
}

// noteSeal records whether the seal of a fleet could be used. A worker asks for it several times a second, so the
// log and the policies report a broken seal once. It returns true if people have to repair the seal.
func (c *Controller) noteSeal(ctx context.Context, of useOfSeal, err error) bool {
	broken := brokenBy(err)
	if err != nil && broken == "" {
		// An event reports ErrServed once the cache shows it; decisions report an error of raise.
		if !errors.Is(err, seal.ErrServed) && !of.raise {
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

// brokenBy explains what people have to repair before the seal can be used. It is empty if a retry may succeed.
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

// brokenSeal returns why the seal of a fleet cannot be used, or "".
func (c *Controller) brokenSeal(fleetName string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(c.brokenSeals[useOfSeal{fleetName, false}], c.brokenSeals[useOfSeal{fleetName, true}])
}
