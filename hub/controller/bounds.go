package controller

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
)

// A record that etcd rejects would block its namespace: no decision can be persisted. Etcd takes objects of 1.5
// MiB, and whoever may create Clusters may create thousands with long names. So their entries in a record are
// bounded, in bytes as stored. API servers store each name twice: once more in managedFields.
const (
	maxCounted = 384 << 10 // observedPriorities
	maxShown   = 768 << 10 // candidates
	// ofCounted and ofShown are the bytes that an entry takes beside its texts.
	ofCounted = 96
	ofShown   = 288
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

// showable returns the candidates that fit into a status, in their order. It prefers those that may lead, and the
// leader.
func showable(all []v1alpha1.Candidate, leader string) (some []v1alpha1.Candidate) {
	left := maxShown
	fits := make([]bool, len(all))
	for _, first := range []bool{true, false} {
		for i := range all {
			if c := &all[i]; first == (c.Eligible || c.Name == leader) {
				size := 2*len(c.Name) + len(c.Reason) + escaped(c.Message) + escaped(c.Hint) + ofShown
				if fits[i] = size <= left; fits[i] {
					left -= size
				}
			}
		}
	}
	for i := range all {
		if fits[i] {
			some = append(some, all[i])
		}
	}
	return some
}

// escaped returns an upper bound for the bytes that a text takes in JSON.
func escaped(text string) int {
	size := len(text)
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= utf8.RuneSelf || strings.IndexByte(`"\<>&`, c) >= 0 {
			size += len(`\u0000`) - 1
		}
	}
	return size
}
