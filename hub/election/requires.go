package election

import (
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// Required is the state of what the policy requires to be healthy in a cluster, for one namespace.
type Required int

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

// UnhealthySince returns, by cluster, the boot reading since when every decision found that something required was not
// healthy there. before is what the last decision returned.
func UnhealthySince(now lease.Reading, before map[string]time.Duration, cs []Candidate) map[string]time.Duration {
	return since(now, before, cs, func(c Candidate) bool { return c.Required == RequiredUnhealthy })
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

// healthy returns the best of the clusters that may lead, and in which all that is required is healthy, or false.
func healthy(ranked []Candidate) (Candidate, bool) {
	return best(ranked, func(c Candidate) bool { return mayLead(c) && c.Required == RequiredHealthy })
}

// hasFailed reports whether something required has failed in the leader's cluster, and a better one may follow by itself.
func hasFailed(p Policy, holder Candidate, ranked []Candidate) bool {
	_, found := healthy(ranked)
	return found && holder.Required == RequiredFailed && !p.ManualFailover
}

// mayFollow reports whether a planned change may give the lead to a candidate. A leader that may go on, and in which
// nothing required has failed, is not left for a cluster in which it has.
func mayFollow(c, holder Candidate) bool {
	stands := (holder.Fitness == Fit || holder.Fitness == RetainOnly) && holder.Required != RequiredFailed
	return mayLead(c) && c.Name != holder.Name && (!stands || c.Required != RequiredFailed)
}
