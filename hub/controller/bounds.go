package controller

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
)

// A record that etcd rejects would block its namespace: no decision can be persisted. Etcd takes objects of 1.5
// MiB, and whoever may create Clusters may create thousands with long names. So their priorities in a record
// are bounded, in bytes as stored. API servers store each name twice: once more in managedFields.
const (
	maxCounted = 384 << 10 // observedPriorities
	// ofCounted are the bytes that an entry takes beside its name.
	ofCounted = 96
)

// countable returns the names of the observed priorities that fit into a record. The leader comes first, then short
// names, so that nobody gains by long ones. A cluster that is left out counts as raised once it may lead.
func countable(r election.Record) []string {
	names := slices.Collect(maps.Keys(r.Observed))
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(notLeading(a, r)-notLeading(b, r), len(a)-len(b), strings.Compare(a, b))
	})
	left := maxCounted
	for i, name := range names {
		if left -= 2*len(name) + ofCounted; left < 0 {
			names = names[:i]
			break
		}
	}
	slices.Sort(names)
	return names
}

// showable returns the candidates that a status shows, in their order: the leader, then those that may lead, then
// others, as many as a person reads.
func showable(all []v1alpha1.Candidate, leader string) (some []v1alpha1.Candidate) {
	left, shown := v1alpha1.MaxCandidates, make([]bool, len(all))
	show := func(matches func(v1alpha1.Candidate) bool) {
		for i, c := range all {
			if left > 0 && !shown[i] && matches(c) {
				shown[i] = true
				left--
			}
		}
	}
	show(func(c v1alpha1.Candidate) bool { return c.Name == leader })
	show(func(c v1alpha1.Candidate) bool { return c.Eligible })
	show(func(v1alpha1.Candidate) bool { return true })
	for i, c := range all {
		if shown[i] {
			some = append(some, c)
		}
	}
	return some
}
