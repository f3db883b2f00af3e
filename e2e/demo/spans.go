package main

import (
	"cmp"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/e2e/harness"
)

// span is an interval on the boot clock.
type span struct{ from, to time.Duration }

// stint is what one cluster did in one namespace until another one acted or the epoch changed.
type stint struct {
	span
	cluster string
	epoch   int64
	acts    int
}

// stints tells who acted in a namespace, in order.
func stints(acts []harness.Act, namespace string) []stint {
	acts = slices.DeleteFunc(slices.Clone(acts), func(a harness.Act) bool { return a.Namespace != namespace })
	slices.SortStableFunc(acts, func(a, b harness.Act) int { return cmp.Compare(a.Begin, b.Begin) })
	var all []stint
	for _, a := range acts {
		end := a.End
		if end == harness.Unfinished {
			end = a.Begin
		}
		if n := len(all) - 1; n >= 0 && all[n].cluster == a.Cluster && all[n].epoch == a.Epoch {
			all[n].to = max(all[n].to, end)
			all[n].acts++
			continue
		}
		all = append(all, stint{span: span{a.Begin, end}, cluster: a.Cluster, epoch: a.Epoch, acts: 1})
	}
	return all
}

// permits tells when a member's Lease in a namespace let it act, if its reader saw each version when we did:
// from when it names the member to its deadline, or until it names another.
func permits(seen []harness.Sighting[*coordinationv1.Lease], namespace string) []span {
	var all []span
	for _, s := range seen {
		if s.Object.Namespace != namespace {
			continue
		}
		at, n := s.At.Boot, len(all)-1
		c, _ := wire.Read(s.Object)
		if s.Gone || !c.LeadsHere() {
			if n >= 0 {
				all[n].to = min(all[n].to, at)
			}
			continue
		}
		deadline := harness.BootOf(c.Deadline(), s.At)
		switch {
		case n >= 0 && all[n].to >= at:
			all[n].to = max(all[n].to, deadline)
		case deadline > at:
			all = append(all, span{at, deadline})
		}
	}
	return all
}

// Cells of a bar. Each is a span of time.
const (
	cellNothing = '·'
	cellMight   = '░'
	cellActed   = '█'
)

// bar draws when a cluster might act and did, a cell for each step from zero on.
func bar(zero, step time.Duration, cells int, might, acted []span) string {
	touches := func(spans []span, cell span) bool {
		return slices.ContainsFunc(spans, func(s span) bool { return s.from < cell.to && s.to >= cell.from })
	}
	line := make([]rune, cells)
	for i := range line {
		cell := span{zero + time.Duration(i)*step, zero + time.Duration(i+1)*step}
		switch {
		case touches(acted, cell):
			line[i] = cellActed
		case touches(might, cell):
			line[i] = cellMight
		default:
			line[i] = cellNothing
		}
	}
	return string(line)
}
