package controller

import (
	"slices"

	"github.com/leasecast/leasecast/hub/seal"
)

// boundsOf returns the largest D, ε and stop time of the policies. It skips policies whose content is unknown.
func boundsOf(policies []*policy) (b seal.Bounds) {
	for _, p := range policies {
		if !p.unknown {
			b = b.Max(p.bounds())
		}
	}
	return b
}

// bounds returns the D, ε and stop time under which Leases are sent for the policy.
func (p *policy) bounds() seal.Bounds {
	return seal.Bounds{Duration: p.election.Timings.Duration, Skew: p.election.Timings.Skew, Stop: p.election.StopTime}
}

// mayHaveOwned names the policies under which Leases of the namespace may have been sent. If the record exists,
// these are the recorded policy and the present one. If it is lost, they are all policies that select the
// namespace, and all deleted ones that the seal still names.
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
