package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

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

const (
	// checkLimit bounds the check of one history.
	checkLimit = time.Minute
	// reading is how far two processes may be apart that read the boot clock at once: see clock.System.
	reading = 50 * time.Microsecond
)

// fenced is a state of the model of a fenced register. The state at the beginning of a history is unknown.
type fenced struct {
	known bool
	register.State
}

type input struct {
	write bool
	register.State
}

type output struct {
	result string
	register.State
}

// model is a register that takes a write unless it has taken one of a higher epoch.
var model = porcupine.Model{
	Init: func() any { return fenced{} },
	Step: func(state, in, out any) (bool, any) {
		s, i, o := state.(fenced), in.(input), out.(output)
		if !i.write {
			return !s.known || s.State == o.State, fenced{true, o.State}
		}
		takes := !s.known || i.Epoch >= s.Epoch
		switch {
		case o.result == history.OK && takes, o.result == history.Unknown && takes:
			return true, fenced{true, i.State}
		case o.result == history.OK:
			return false, s
		case o.result == history.Unknown:
			return true, s
		default: // refused: only for an epoch that is too low
			return !s.known || !takes, s
		}
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
}

// operations turns calls into histories of one register each. A call without a known result may take effect at any
// later time, or never. A read without a result is left out. A call that began before the histories may have taken
// effect before them, on a register whose value is not known. Calls that are closer together than two clock readings
// may differ count as concurrent.
func operations(calls map[string][]history.Call, since time.Duration) map[string][]porcupine.Operation {
	all := map[string][]porcupine.Operation{}
	for client, member := range slices.Sorted(maps.Keys(calls)) {
		for _, c := range calls[member] {
			op := porcupine.Operation{
				ClientId: client,
				Input:    input{c.Right != nil, c.State},
				Output:   output{c.Result, c.Read},
				Call:     int64(c.At - reading),
				Return:   int64(c.Returned + reading),
			}
			if c.Result == history.Unknown || c.At < since && c.Result == history.OK {
				if c.Right == nil {
					continue
				}
				op.Output, op.Return = output{result: history.Unknown}, math.MaxInt64
			}
			all[c.Namespace] = append(all[c.Namespace], op)
		}
	}
	return all
}

// linearizable checks the history of a register up to an instant before it was collected: the files of the readers are
// read one after the other. It draws a wrong history into a file. A history whose check takes too long is wrong.
func linearizable(ops []porcupine.Operation, end time.Duration, picture string) bool {
	result, info := porcupine.CheckOperationsVerbose(model, until(ops, int64(end)), checkLimit)
	if result == porcupine.Ok {
		return true
	}
	if err := porcupine.VisualizePath(model, info, picture); err != nil {
		fmt.Fprintln(os.Stderr, "draw a history that is not linearizable:", err)
	}
	return false
}

// until is what was known of a history at an instant: what had not returned has no result.
func until(ops []porcupine.Operation, instant int64) []porcupine.Operation {
	var known []porcupine.Operation
	for _, op := range ops {
		switch write := op.Input.(input).write; {
		case op.Return <= instant:
			known = append(known, op)
		case op.Call <= instant && write:
			op.Output, op.Return = output{result: history.Unknown}, math.MaxInt64
			known = append(known, op)
		}
	}
	return known
}
