package main

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leasecast/leasecast/e2e/chaos/history"
	"github.com/leasecast/leasecast/e2e/chaos/register"
	"github.com/leasecast/leasecast/e2e/harness"
)

// permits are the spans in which readers may act. A span begins when a reader has the answer, and ends at the deadline in
// the answer. So the reader may certainly act at any instant of its span, and two spans that overlap are wrong, however
// long and wherever a process was paused.
//
// An answer whose deadline had passed when it arrived proves nothing and is left out.
func permits(calls map[string][]history.Call) []harness.Act {
	var spans []harness.Act
	for _, member := range slices.Sorted(maps.Keys(calls)) {
		for _, c := range calls[member] {
			if c.Right == nil {
				continue
			}
			end := c.Right.Asked + c.Right.Left
			if end >= c.Right.Told {
				spans = append(spans, harness.Act{Cluster: member, Namespace: c.Namespace, Epoch: c.Epoch, Begin: c.Right.Told, End: end, What: "permit"})
			}
		}
	}
	return join(spans)
}

// join joins the spans of one term in one cluster that touch. The spans of a term that is renewed in time do.
func join(spans []harness.Act) []harness.Act {
	slices.SortStableFunc(spans, func(a, b harness.Act) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Begin, b.Begin))
	})
	var joined []harness.Act
	for _, s := range spans {
		if n := len(joined); n > 0 {
			last := &joined[n-1]
			if last.Namespace == s.Namespace && last.Cluster == s.Cluster && last.Epoch == s.Epoch && last.End >= s.Begin {
				last.End = max(last.End, s.End)
				continue
			}
		}
		joined = append(joined, s)
	}
	return joined
}

// margin is the least time between a leader's last deadline and its successor's first answer. ok is false if the leader
// never changed.
func margin(verdicts []harness.Verdict) (least time.Duration, ok bool) {
	for _, v := range verdicts {
		for _, c := range v.Changes {
			if !ok || c.Gap() < least {
				least, ok = c.Gap(), true
			}
		}
	}
	return least, ok
}

// stale are the writes of a term after a write of a later term, accepted or not.
func stale(writes []register.Write) []register.Write {
	highest := map[string]int64{}
	var late []register.Write
	for _, w := range writes {
		if w.Epoch < highest[w.Namespace] {
			late = append(late, w)
		}
		highest[w.Namespace] = max(highest[w.Namespace], w.Epoch)
	}
	return late
}

// writer is the member whose reader wrote a value.
func writer(w register.Write) string {
	name, _, _ := strings.Cut(w.Value, "-")
	return name
}

const (
	// recently is the greatest age of the last act of a reader that still acts in a namespace.
	recently = 4 * actEvery
	// onWaking is how soon after a pause a write counts as delayed by the pause.
	onWaking = time.Second
)

// termsAt returns, by namespace, the epoch in which the readers of a member acted when one of them was paused.
func termsAt(writes []register.Write, member string, asleep time.Duration) map[string]int64 {
	at := map[string]int64{}
	for _, w := range writes {
		if w.Taken && w.At <= asleep && w.At > asleep-recently {
			delete(at, w.Namespace)
			if writer(w) == member {
				at[w.Namespace] = w.Epoch
			}
		}
	}
	return at
}

// sleptThrough counts the terms in which a member's reader acted when it was paused, and those of them whose successor
// acted before it resumed.
func sleptThrough(writes []register.Write, member string, asleep, woke time.Duration) (led, lost int) {
	at := termsAt(writes, member, asleep)
	return len(at), len(succeeded(writes, at, woke))
}

// succeeded are the namespaces whose term had a successor who acted before the instant.
func succeeded(writes []register.Write, at map[string]int64, before time.Duration) map[string]bool {
	lost := map[string]bool{}
	for _, w := range writes {
		if epoch, ok := at[w.Namespace]; ok && w.At < before && w.Epoch > epoch {
			lost[w.Namespace] = true
		}
	}
	return lost
}

// Slept counts what readers did that were paused while they led and resumed after a successor had acted.
type Slept struct {
	// Pauses counts pairs of a pause and a namespace.
	Pauses int
	// Unfenced are the pauses after which the plain register accepted a write of the term that was over, Fenced those
	// after which the fenced one did.
	Unfenced, Fenced int
}

func (s *Slept) add(o Slept) {
	s.Pauses += o.Pauses
	s.Unfenced += o.Unfenced
	s.Fenced += o.Fenced
}

// slept looks at every pause of a reader.
func slept(writes []register.Write, faults []*Applied) Slept {
	late := stale(writes)
	var all Slept
	for _, f := range faults {
		if f.Woke == 0 || f.Kind != ReaderPause && f.Kind != Sleeper {
			continue
		}
		for namespace := range succeeded(writes, termsAt(writes, f.Target, f.Began), f.Woke) {
			all.Pauses++
			unfenced, fenced := false, false
			for _, w := range late {
				if w.Namespace == namespace && writer(w) == f.Target && w.At >= f.Woke && w.At < f.Woke+onWaking {
					unfenced, fenced = true, fenced || w.Taken
				}
			}
			if unfenced {
				all.Unfenced++
			}
			if fenced {
				all.Fenced++
			}
		}
	}
	return all
}

// worstGap is the longest time between two acts in one namespace.
func worstGap(writes []register.Write) (worst time.Duration, namespace string) {
	last := map[string]time.Duration{}
	for _, w := range writes {
		if !w.Taken {
			continue
		}
		if was, ok := last[w.Namespace]; ok && w.At-was > worst {
			worst, namespace = w.At-was, w.Namespace
		}
		last[w.Namespace] = w.At
	}
	return worst, namespace
}

// recovery is the time from the instant until every namespace has a leader that acts. stuck names those without one.
func recovery(writes []register.Write, over time.Duration) (last time.Duration, stuck []string) {
	first := map[string]time.Duration{}
	for _, w := range writes {
		if _, ok := first[w.Namespace]; !ok && w.Taken && w.At >= over {
			first[w.Namespace] = w.At
			last = max(last, w.At-over)
		}
	}
	for _, namespace := range allNamespaces() {
		if _, acted := first[namespace]; !acted {
			stuck = append(stuck, "nobody acts in "+namespace)
		}
	}
	return last, stuck
}
