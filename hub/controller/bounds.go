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

// A record that etcd does not take decides nothing. Etcd takes objects of 1.5 MiB, and whoever may make Clusters may make
// thousands with long names. So what a record says of each of them is bounded, in bytes as they are stored: API servers
// store each name once more, with who has written it.
const (
	maxCounted = 384 << 10 // observedPriorities
	maxShown   = 768 << 10 // candidates
	// ofCounted and ofShown are what an entry takes beside its texts.
	ofCounted = 96
	ofShown   = 288
)

// countable returns the names of the observed priorities that a record takes. The leader's comes first, and then short names:
// nobody gains by long ones. A cluster that is left out counts as raised once it may lead.
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

// showable returns the candidates that a status takes, in their order. Those that may lead, and the leader, come first.
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

// escaped is how many bytes a text takes in JSON at most.
func escaped(text string) int {
	size := len(text)
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= utf8.RuneSelf || strings.IndexByte(`"\<>&`, c) >= 0 {
			size += len(`\u0000`) - 1
		}
	}
	return size
}
