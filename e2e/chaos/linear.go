package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/leasecast/leasecast/e2e/chaos/history"
	"github.com/leasecast/leasecast/e2e/chaos/register"
)

// checkLimit bounds the check of one history.
const checkLimit = time.Minute

// fenced is what the model knows of a fenced register. At the beginning of a history that is nothing.
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

// operations turns calls into histories of one register each. What has no known result may take effect at any later
// time, or never; a read that has none says nothing.
func operations(calls map[string][]history.Call) map[string][]porcupine.Operation {
	all := map[string][]porcupine.Operation{}
	for client, member := range slices.Sorted(maps.Keys(calls)) {
		for _, c := range calls[member] {
			op := porcupine.Operation{
				ClientId: client,
				Input:    input{c.Right != nil, c.State},
				Output:   output{c.Result, c.Read},
				Call:     int64(c.At),
				Return:   int64(c.Returned),
			}
			if c.Result == history.Unknown {
				if c.Right == nil {
					continue
				}
				op.Return = math.MaxInt64
			}
			all[c.Namespace] = append(all[c.Namespace], op)
		}
	}
	return all
}

// linearizable checks the history of each register, and returns those of the namespaces for which no order explains
// it, or none was found in time.
func linearizable(calls map[string][]history.Call) (checked int, wrong []string) {
	all := operations(calls)
	for _, namespace := range slices.Sorted(maps.Keys(all)) {
		if porcupine.CheckOperationsTimeout(model, all[namespace], checkLimit) != porcupine.Ok {
			wrong = append(wrong, namespace)
		}
	}
	return len(all), wrong
}
