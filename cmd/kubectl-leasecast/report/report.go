// Package report renders what was seen of a fleet as one HTML page: who could act, who acted, what was promised, faults
// and gaps. Drills fill in a Report, and so does the plugin's verify --watch.
package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Report is the content of a page. Its instants count from its beginning.
type Report struct {
	Title string
	// Source says how all this was seen, and how exactly.
	Source string
	Began  time.Time
	Length time.Duration

	Namespaces []Namespace
	Faults     []Fault // in the order of their beginnings
	// Problems are what broke a promise, apart from gaps that are shorter than their floors.
	Problems []string
}

// Span is an interval.
type Span struct{ From, To time.Duration }

// Length is negative where the span ends before it begins.
func (s Span) Length() time.Duration { return s.To - s.From }

// Namespace is one managed namespace.
type Namespace struct {
	Name string
	Rows []Row
	Gaps []Gap // see Report.FindGaps
}

// Row is one cluster's part in a namespace.
type Row struct {
	Cluster string
	// Promised ends at the latest deadline of a Lease, Could also when the Lease is replaced. Acted is empty where
	// nobody records acts.
	Promised, Could, Acted []Span
}

// Fault is what was done to the fleet, or was seen to fail.
type Fault struct {
	Span
	Text string
}

// Gap is a time in which nobody acted, or could act where nobody records acts. Its length is negative where two
// clusters did at once.
type Gap struct {
	Span
	// Before and After are the clusters on both sides; empty at the ends of the report.
	Before, After string
	// Earliest is the first instant at which After may act. Zero: it is not known.
	Earliest time.Duration
}

// Floor is the least length that the gap may have, or zero where that is not known.
func (g Gap) Floor() time.Duration {
	return max(0, g.Earliest-g.From)
}

// Over is by how much the gap is longer than its floor.
func (g Gap) Over() time.Duration { return g.Length() - g.Floor() }

// problem says how the gap breaks a promise, or nothing.
func (g Gap) problem() string {
	switch {
	case g.Length() < 0:
		return fmt.Sprintf("%s and %s at once for %s", g.Before, g.After, seconds(-g.Length()))
	case g.After == "":
		return fmt.Sprintf("nobody at the end, for %s so far", seconds(g.Length()))
	case g.Earliest > g.To:
		return fmt.Sprintf("%s is %s too early after %s", g.After, seconds(g.Earliest-g.To), g.Before)
	default:
		return ""
	}
}

// weight orders gaps: one that breaks a promise has more than all others.
func (g Gap) weight() time.Duration {
	if g.problem() != "" {
		return math.MaxInt64
	}
	return g.Length()
}

// worst is the gap with the largest weight, or the zero Gap.
func (n Namespace) worst() Gap {
	none := Gap{After: "any"}
	return slices.MaxFunc(append(n.Gaps[:len(n.Gaps):len(n.Gaps)], none), func(a, b Gap) int {
		return cmp.Compare(a.weight(), b.weight())
	})
}

// summary is what is shown of a namespace that is folded.
func (n Namespace) summary() string {
	if len(n.Gaps) == 0 {
		return "no gap"
	}
	return cmp.Or(n.worst().problem(), "longest gap "+seconds(n.worst().Length()))
}

// Join joins spans that are closer together than that.
func Join(spans []Span, within time.Duration) (joined []Span) {
	for _, s := range slices.SortedFunc(slices.Values(spans), byFrom) {
		if n := len(joined); n > 0 && s.From-joined[n-1].To <= within {
			joined[n-1].To = max(joined[n-1].To, s.To)
			continue
		}
		joined = append(joined, s)
	}
	return joined
}

func byFrom(a, b Span) int { return cmp.Compare(a.From, b.From) }

// Acts reports whether anybody has recorded acts. Otherwise gaps are about who could act.
func (r *Report) Acts() bool {
	return slices.ContainsFunc(r.Namespaces, func(n Namespace) bool {
		return slices.ContainsFunc(n.Rows, func(row Row) bool { return len(row.Acted) > 0 })
	})
}

// FindGaps finds the gaps of each namespace: all changes of the cluster, and other gaps that are longer than least.
func (r *Report) FindGaps(least time.Duration) {
	acts := r.Acts()
	for i := range r.Namespaces {
		r.Namespaces[i].Gaps = gaps(r.Namespaces[i].Rows, acts, r.Length, least)
	}
}

func gaps(rows []Row, acts bool, end, least time.Duration) (all []Gap) {
	type turn struct {
		Span
		cluster string
	}
	var turns []turn
	for _, row := range rows {
		spans := row.Could
		if acts {
			spans = row.Acted
		}
		for _, s := range spans {
			turns = append(turns, turn{s, row.Cluster})
		}
	}
	slices.SortStableFunc(turns, func(a, b turn) int { return byFrom(a.Span, b.Span) })
	last := turn{}
	for _, t := range append(turns, turn{Span: Span{From: end, To: end}}) {
		changed := t.cluster != last.cluster && t.cluster != "" && last.cluster != ""
		if changed || t.From-last.To > least {
			from := last.To
			if t.From < from {
				from = min(from, t.To) // two at once, no longer than the shorter one
			}
			all = append(all, Gap{Span: Span{From: from, To: t.From}, Before: last.cluster, After: t.cluster})
		}
		if changed || t.To > last.To {
			last = t
		}
	}
	return all
}

// Verdict says in one sentence whether the promises were kept.
func (r *Report) Verdict() (sentence string, kept bool) {
	does, above, problems, worst := "could act", "", slices.Clone(r.Problems), Namespace{}
	if r.Acts() {
		does = "acted"
	}
	for _, n := range r.Namespaces {
		for _, g := range n.Gaps {
			if p := g.problem(); p != "" {
				problems = append(problems, n.Name+": "+p)
			}
		}
		if n.worst().Length() > worst.worst().Length() {
			worst = n
		}
	}
	g := worst.worst()
	switch {
	case len(problems) == 1:
		return "Not as promised: " + problems[0] + ".", false
	case len(problems) > 1:
		return fmt.Sprintf("Not as promised: %s; and %d more.", problems[0], len(problems)-1), false
	case len(r.Namespaces) == 0:
		return "Nothing was seen: there was no namespace.", false
	case g.Length() == 0:
		return fmt.Sprintf("No two clusters %s at once, and one %s in each namespace all the time.", does, does), true
	case g.Earliest > 0:
		above = fmt.Sprintf(", %s above the floor", seconds(g.Over()))
	}
	return fmt.Sprintf("No two clusters %s at once; nobody %s for %s at worst, in %s%s.", does, does, seconds(g.Length()),
		worst.Name, above), true
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
