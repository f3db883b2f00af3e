package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/leasecast/leasecast/e2e/chaos/permit"
	"github.com/leasecast/leasecast/e2e/harness"
)

// answer is one by which the reader of a cluster might act.
type answer struct {
	permit.Line
	cluster string
}

// permits are the spans in which readers may act. A span begins when a reader has the answer, and ends at the deadline
// in the answer. So the reader may certainly act at any instant of its span, and two spans that overlap are wrong,
// however long and wherever a process was paused.
//
// An answer whose deadline had passed when it arrived proves nothing and is left out.
func permits(answers []answer) []harness.Act {
	var spans []harness.Act
	for _, a := range answers {
		if a.Deadline() >= a.Answered {
			spans = append(spans, harness.Act{
				Cluster: a.cluster, Namespace: a.Namespace, Epoch: a.Epoch, Begin: a.Answered, End: a.Deadline(), What: "permit",
			})
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

// worstGap is the longest time between two answers in one namespace. The answers are in order.
func worstGap(answers []answer) (worst time.Duration) {
	last := map[string]time.Duration{}
	for _, a := range answers {
		if was, ok := last[a.Namespace]; ok {
			worst = max(worst, a.Answered-was)
		}
		last[a.Namespace] = a.Answered
	}
	return worst
}

// recovery is the time from the instant until a reader may act in every namespace. stuck names those without one. The
// answers are in order.
func recovery(answers []answer, over time.Duration) (last time.Duration, stuck []string) {
	first := map[string]time.Duration{}
	for _, a := range answers {
		if _, ok := first[a.Namespace]; !ok && a.Answered >= over {
			first[a.Namespace] = a.Answered
			last = max(last, a.Answered-over)
		}
	}
	for _, namespace := range allNamespaces() {
		if _, acts := first[namespace]; !acts {
			stuck = append(stuck, "nobody acts in "+namespace)
		}
	}
	return last, stuck
}
