package publish

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
)

// TestNothingIsLostByMerging: an exploration that takes two states for one as the key does, and one that does so only
// if they differ by nothing but the time that it is, see the same within the same time, and find the same broken. Both
// see real runs only, so that merging can lose something but never make it up.
func TestNothingIsLostByMerging(t *testing.T) {
	for _, s := range merged() {
		t.Run(s.name, func(t *testing.T) {
			few, reduced := outlined(t, s, false)
			many, full := outlined(t, s, true)
			t.Logf("%d states instead of %d, %d outlines", few.States, many.States, len(full))
			if few.violation != many.violation || few.Ticks != many.Ticks {
				t.Errorf("merged: %q at %d, unmerged: %q at %d", few.violation, few.Ticks, many.violation, many.Ticks)
			}
			if few.violation != "" {
				return // what was seen until then depends on the order
			}
			if !maps.Equal(reduced, full) {
				t.Errorf("%d outlines instead of %d", len(reduced), len(full))
			}
			maps.DeleteFunc(full, func(o string, _ bool) bool { return reduced[o] })
			for o := range full {
				t.Fatalf("for example, this is lost: %s", o)
			}
		})
	}
}

// merged are the scopes that are small enough to be looked at unmerged.
func merged() []scope {
	type depth struct{ none, cold, one int }
	ticks := depth{5, 1, 2}
	if *exploreAll {
		ticks = depth{9, 5, 5}
	}
	all := []scope{
		narrow("no fault", 1, 0).changed(faults(0, ticks.none)),
		narrow("cold", 0, 1).changed(func(s *scope) { s.start, s.ticks = cold, ticks.cold }),
	}
	registered := narrow("readers register", 1, 0).changed(acknowledged())
	registered.ticks = ticks.one - 1
	all = append(all, registered)
	for _, f := range kinds {
		all = append(all, narrow(f.name, 1, 0).changed(only(1, f)).changed(func(s *scope) { s.ticks = ticks.one }))
	}
	for name, b := range breakages {
		if !b.wide && (*exploreAll || b.quick()) {
			all = append(all, b.scope(name))
		}
	}
	return all
}

// quick is true of a breakage that shows at once, unmerged too.
func (b broken) quick() bool {
	return b.noSkew || b.stampsNotCounted || b.noBootForHub || b.nothingInherited
}

// outlined explores a scope, and collects the outlines of all states.
func outlined(t *testing.T, s scope, exact bool) (findings, map[string]bool) {
	t.Helper()
	e := newExplorer(s)
	e.exact, e.outlines = exact, map[string]bool{}
	f, err := e.explore(exploreMost)
	if err != nil {
		t.Error(err)
	}
	return f, e.outlines
}

// draw notes the outline of a state.
func (e *explorer) draw(s *world) {
	if e.outlines != nil {
		e.outlines[e.outline(s)] = true
	}
}

// outline is what matters to anybody outside: the record, what the Leases say, who may act, and which hub may write.
func (e *explorer) outline(s *world) string {
	var b strings.Builder
	r := *s.record
	r.NotBefore = time.Time{}
	fmt.Fprintf(&b, "%s, acted %d in %d; faults %d; ", e.sayRecord(&r), e.short(s.acted), s.actor, s.faults)
	for m := range e.sites {
		c := s.sites[m]
		a := e.acts(s, m)
		left := time.Duration(0)
		if c.said.LeadsHere() {
			left = max(0, c.said.Deadline().Sub(s.at(0).Wall))
		}
		fmt.Fprintf(&b, "%s: %q in %d for %v, late %t, acts %d-%d; ", siteNames[m], c.said.Holder, e.short(c.said.Epoch),
			left, c.late != nil,
			e.short(a.low), e.short(a.high))
	}
	for x, r := range s.replicas {
		fmt.Fprintf(&b, "%s: renewTimes %t, rules %t, granted %t, writes", replicaNames[x], e.mayWrite(s, r), r.ruling != nil,
			r.granted == s.record.Epoch)
		for m := range e.sites {
			if r.tenure != nil {
				fmt.Fprintf(&b, " %t as %d, lost %t, in place %t;", r.out[m] != nil, r.syncers[m].want.Role,
					r.syncers[m].status.Lost, r.syncers[m].status.InPlace)
			}
		}
	}
	return b.String()
}
