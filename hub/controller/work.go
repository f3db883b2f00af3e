package controller

import "github.com/leasecast/leasecast/hub/fleet"

// Work is how the work in one member stands.
type Work struct {
	// Guarded: the admission policy that protects the copies stands.
	Guarded bool
	// Readers is how many registrations of readers there are.
	Readers int
}

// Work tells how the work in a member stands. It is false while nothing is written there.
func (c *Controller) Work(key fleet.Key) (Work, bool) {
	p, unguarded := c.attachmentOf(key)
	if p == nil {
		return Work{}, false
	}
	return Work{Guarded: unguarded == nil, Readers: p.Readers()}, true
}

// Serves reports whether this replica decides for a fleet now.
func (c *Controller) Serves(fleetName string) bool {
	return c.Tenure.Holds() && !c.standsBack(fleetName)
}
