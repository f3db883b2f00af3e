package harness

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Rule names what a pair of acts breaks.
type Rule string

const (
	// TwoAtOnce: two clusters act in one namespace at the same instant. An act fills the closed interval from the line
	// before it to the line after it, so touching ends count.
	TwoAtOnce Rule = "two clusters act at once"
	// AfterSuccessor: an act begins in a lower epoch than an earlier act: a leader missed its own end.
	// It counts also when no two acts touch: A B A.
	AfterSuccessor Rule = "an act of a term begins after an act of a later term"
	// OneEpochTwice: two clusters act in the same epoch, so that the epoch fences neither.
	OneEpochTwice Rule = "two clusters act in one epoch"
)

// Breach is a pair of acts that breaks a rule. Earlier began first.
type Breach struct {
	Rule           Rule
	Earlier, Later Act
}

// String describes the breach.
func (b Breach) String() string {
	e, l := b.Earlier, b.Later
	return fmt.Sprintf("%s: %s: %s in epoch %d from %s to %s, and %s in epoch %d from %s to %s", l.Namespace, b.Rule,
		e.Cluster, e.Epoch, instant(e.Begin), instant(e.End), l.Cluster, l.Epoch, instant(l.Begin), instant(l.End))
}

func instant(at time.Duration) string {
	if at == Unfinished {
		return "no known end"
	}
	return fmt.Sprintf("%.6f s", at.Seconds())
}

// Change is a change of the cluster that acts.
type Change struct {
	From, To string
	// Epoch is the epoch of the first act of To.
	Epoch int64
	// Last is the end of the last act of From before it, First the beginning of the first act of To.
	Last, First time.Duration
}

// Gap is how long no cluster acted: negative in a breach.
func (c Change) Gap() time.Duration { return c.First - c.Last }

// Verdict sums up the acts in one namespace.
type Verdict struct {
	Namespace string
	Acts      int
	// Leaders are the clusters that acted, in order. A cluster that acts again after another one is named again.
	Leaders []string
	// Changes lie between one leader and the next.
	Changes []Change
	// Breaches should be empty. For each rule, every act is the later one at most once.
	Breaches []Breach
}

// Judge returns a verdict for each namespace of the acts, sorted by name. The acts may be in any order.
func Judge(acts []Act) []Verdict {
	byNamespace := map[string][]Act{}
	for _, a := range acts {
		byNamespace[a.Namespace] = append(byNamespace[a.Namespace], a)
	}
	var verdicts []Verdict
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		verdicts = append(verdicts, judge(namespace, byNamespace[namespace]))
	}
	return verdicts
}

// Breaches returns the breaches in all namespaces.
func Breaches(verdicts []Verdict) []Breach {
	var all []Breach
	for _, v := range verdicts {
		all = append(all, v.Breaches...)
	}
	return all
}

func judge(namespace string, acts []Act) Verdict {
	slices.SortStableFunc(acts, func(a, b Act) int {
		return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.End, b.End))
	})
	v := Verdict{Namespace: namespace, Acts: len(acts)}
	longest := map[string]Act{} // of each cluster, the act that ends last so far
	first := map[int64]Act{}    // of each epoch, the first act
	var newest Act              // the first act of the highest epoch so far
	for i, a := range acts {
		for _, cluster := range slices.Sorted(maps.Keys(longest)) {
			if e := longest[cluster]; cluster != a.Cluster && e.End >= a.Begin {
				v.Breaches = append(v.Breaches, Breach{TwoAtOnce, e, a})
				break
			}
		}
		if i > 0 && a.Epoch < newest.Epoch {
			v.Breaches = append(v.Breaches, Breach{AfterSuccessor, newest, a})
		}
		if e, ok := first[a.Epoch]; !ok {
			first[a.Epoch] = a
		} else if e.Cluster != a.Cluster {
			v.Breaches = append(v.Breaches, Breach{OneEpochTwice, e, a})
		}
		if i == 0 || a.Epoch > newest.Epoch {
			newest = a
		}
		v.lead(a, longest)
		if e, ok := longest[a.Cluster]; !ok || a.End > e.End {
			longest[a.Cluster] = a
		}
	}
	return v
}

// lead adds the next act to the leaders and changes.
func (v *Verdict) lead(a Act, longest map[string]Act) {
	if n := len(v.Leaders); n == 0 {
		v.Leaders = []string{a.Cluster}
	} else if from := v.Leaders[n-1]; from != a.Cluster {
		v.Leaders = append(v.Leaders, a.Cluster)
		v.Changes = append(v.Changes, Change{From: from, To: a.Cluster, Epoch: a.Epoch, Last: longest[from].End,
			First: a.Begin})
	}
}

// Span is an interval on the boot clock.
type Span struct{ From, To time.Duration }

// SpansOf are those of a cluster's acts in a namespace.
func SpansOf(acts []Act, namespace, cluster string) (all []Span) {
	for _, a := range acts {
		if a.Namespace == namespace && a.Cluster == cluster {
			all = append(all, Span{From: a.Begin, To: a.End})
		}
	}
	return all
}
