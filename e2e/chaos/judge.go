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

// permits are the spans in which readers may act. A span begins when a reader has the answer, and ends at the deadline
// in the answer. So the reader may certainly act at any instant of its span, and two spans that overlap are wrong,
// however long and wherever a process was paused.
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
				spans = append(spans, harness.Act{
					Cluster: member, Namespace: c.Namespace, Epoch: c.Epoch, Begin: c.Right.Told, End: end, What: "permit",
				})
			}
		}
	}
	return join(spans)
}

// join joins the spans of one term in one cluster that touch. The spans of a term that is renewed in time do.
func join(spans []harness.Act) []harness.Act {
	slices.SortStableFunc(spans, func(a, b harness.Act) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Cluster, b.Cluster),
			cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Begin, b.Begin))
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

// stale counts the writes that the fenced register took after a write of a later term.
func stale(writes []register.Write) (taken int) {
	highest := map[string]int64{}
	for _, w := range writes {
		if w.Taken && w.Epoch < highest[w.Namespace] {
			taken++
		}
		highest[w.Namespace] = max(highest[w.Namespace], w.Epoch)
	}
	return taken
}

// writer is the member whose reader wrote a value.
func writer(w register.Write) string {
	name, _, _ := strings.Cut(w.Value, "-")
	return name
}

// worstGap is the longest time between two acts in one namespace.
func worstGap(writes []register.Write) (worst time.Duration) {
	last := map[string]time.Duration{}
	for _, w := range writes {
		if !w.Taken {
			continue
		}
		if was, ok := last[w.Namespace]; ok {
			worst = max(worst, w.At-was)
		}
		last[w.Namespace] = w.At
	}
	return worst
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
