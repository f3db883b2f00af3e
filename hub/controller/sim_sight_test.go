package controller

import (
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/skew"
)

// offsets: no clock is measured in the simulation.
func (s *simSight) offsets() map[fleet.Key]skew.Interval { return nil }

func (s *simSight) servedBy(string) string { return seal.MarkOf(s.r.w.hub.secret) }
