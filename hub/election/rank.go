package election

import (
	"cmp"
	"slices"
)

// Rank orders candidates. Those in which something required has failed come last. Among the others the one to which an
// operator has ordered a move comes first, then priority, weight and name decide.
func Rank(cs []Candidate) { slices.SortFunc(cs, compare) }

// compare returns a negative number if a ranks higher than b.
func compare(a, b Candidate) int {
	switch aFailed, bFailed := a.Required == RequiredFailed, b.Required == RequiredFailed; {
	case aFailed != bFailed && bFailed:
		return -1
	case aFailed != bFailed:
		return 1
	case a.Ordered != b.Ordered && a.Ordered:
		return -1
	case a.Ordered != b.Ordered:
		return 1
	default:
		return cmp.Or(-compareMerit(a, b), cmp.Compare(a.Name, b.Name))
	}
}

// compareMerit compares candidates without orders. Equal ones take nothing from each other: their names decide only
// who gets what is free.
func compareMerit(a, b Candidate) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Weight, b.Weight))
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
