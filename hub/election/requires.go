package election

import (
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// Required is the state of what the policy requires to be healthy in a cluster, for one namespace.
type Required int

// The states, from the best to the worst.
const (
	// RequiredHealthy: all of it is healthy, or the policy requires nothing.
	RequiredHealthy Required = iota
	// RequiredUnknown: it cannot be read. That moves nothing.
	RequiredUnknown
	// RequiredUnhealthy: some of it is not healthy.
	RequiredUnhealthy
	// RequiredFailed: some of it has not been healthy for as long as the policy allows.
	RequiredFailed
)

// UnhealthySince returns, by cluster, the boot reading since when every decision that could read what is required found
// that some of it was not healthy. before is what the last decision returned.
func UnhealthySince(now lease.Reading, before map[string]time.Duration, cs []Candidate) map[string]time.Duration {
	return since(now, before, cs, func(c Candidate) bool {
		_, was := before[c.Name]
		return c.Required == RequiredUnhealthy || c.Required == RequiredUnknown && was
	})
}

// since returns, by cluster, the boot reading since when every decision found that something is so.
func since(
	now lease.Reading, before map[string]time.Duration, cs []Candidate, is func(Candidate) bool,
) map[string]time.Duration {
	found := map[string]time.Duration{}
	for _, c := range cs {
		if !is(c) {
			continue
		}
		found[c.Name] = now.Boot
		if since, was := before[c.Name]; was {
			found[c.Name] = since
		}
	}
	return found
}

// healthy returns the best of the clusters that may lead, and in which all that is required has been healthy for as
// long as the policy asks, or false. Programs that crash again and again are healthy in between.
func healthy(now lease.Reading, p Policy, s State, ranked []Candidate) (Candidate, bool) {
	return best(ranked, func(c Candidate) bool {
		since, fit := s.FitSince[c.Name]
		return mayLead(c) && c.Required == RequiredHealthy && fit && now.Boot-since >= p.UnhealthyAfter
	})
}

// hasFailed reports whether something required has failed in the leader's cluster, and a better one may follow by
// itself.
func hasFailed(now lease.Reading, p Policy, s State, holder Candidate, ranked []Candidate) bool {
	_, found := healthy(now, p, s, ranked)
	return found && holder.Required == RequiredFailed && !p.ManualFailover
}

// mayFollow reports whether a planned change may give the lead to a candidate. A leader that may go on is not left for
// a cluster in which what is required is in a worse state.
func mayFollow(c, holder Candidate) bool {
	stands := holder.Fitness == Fit || holder.Fitness == RetainOnly
	return mayLead(c) && c.Name != holder.Name && (!stands || c.Required <= holder.Required)
}
