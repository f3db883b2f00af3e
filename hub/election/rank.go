package election

import (
	"cmp"
	"slices"
)

// Rank orders candidates: higher priority first, ties by name.
func Rank(cs []Candidate) {
	slices.SortFunc(cs, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
	})
}

// outranks reports whether a ranks higher than b.
func outranks(a, b Candidate) bool {
	return a.Priority > b.Priority || a.Priority == b.Priority && a.Name < b.Name
}

// best returns the first of the ranked candidates that satisfies ok.
func best(ranked []Candidate, ok func(Candidate) bool) (Candidate, bool) {
	if i := slices.IndexFunc(ranked, ok); i >= 0 {
		return ranked[i], true
	}
	return Candidate{}, false
}

// named returns the candidate of that name, or false and an Unfit candidate if it does not exist.
func named(cs []Candidate, name string) (Candidate, bool) {
	return best(cs, func(c Candidate) bool { return c.Name == name })
}

// mayLead reports whether a candidate may be granted a term.
func mayLead(c Candidate) bool { return mayGoOn(c) && !c.Drained }

// mayGoOn reports whether the leader may be granted another term if nothing speaks for a successor.
func mayGoOn(c Candidate) bool { return c.Fitness == Fit && !c.Refused }
