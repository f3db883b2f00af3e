package controller

import (
	"slices"

	"github.com/leasecast/leasecast/hub/seal"
)

// boundsOf are the largest D and ε of the policies that count.
func boundsOf(policies []*policy) (b seal.Bounds) {
	for _, p := range policies {
		if !p.unknown {
			b = b.Max(p.bounds())
		}
	}
	return b
}

// bounds are those under which Leases are sent for the policy.
func (p *policy) bounds() seal.Bounds {
	return seal.Bounds{Duration: p.election.Timings.Duration, Skew: p.election.Timings.Skew, Stop: p.election.StopTime}
}

// mayHaveOwned returns the policies under which Leases of the namespace may have been sent. Of a record that is there it is
// the recorded one and the present one. Of one that is lost these are all that select the namespace, and all that are gone.
func (v *view) mayHaveOwned(s seal.Seal, policies []*policy) (names []string) {
	if v.policy != nil {
		names = append(names, v.policy.object.Name)
	}
	if v.found != nil && !v.state.Record.Lost() {
		return append(names, v.found.Policy)
	}
	for _, p := range v.losers {
		names = append(names, p.object.Name)
	}
	for name := range s.Policies {
		if !slices.ContainsFunc(policies, func(p *policy) bool { return p.object.Name == name }) {
			names = append(names, name)
		}
	}
	return names
}
