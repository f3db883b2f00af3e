package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

// result is out/demo.json. Of the namespaces the slowest counts. What did not happen is null.
type result struct {
	// Failover is the time from the fault to the first act of the next leader, Floor its lower bound.
	Failover *float64 `json:"failover.seconds"`
	Floor    *float64 `json:"failover.floorSeconds"`
	// Handover is the time from the edit of the label to the first act of the next leader.
	Handover *float64 `json:"handover.seconds"`
	// Overlaps counts all that harness.Judge finds wrong.
	Overlaps int `json:"overlaps"`
}

// flaws returns why the demo fails: what the guestbooks did, whatever the scenes saw.
func (r result) flaws(verdicts []harness.Verdict) error {
	var errs []error
	for _, b := range harness.Breaches(verdicts) {
		errs = append(errs, errors.New(b.String()))
	}
	if r.Failover == nil || r.Handover == nil {
		errs = append(errs, errors.New("a change of leader is missing"))
	} else if *r.Failover < *r.Floor {
		errs = append(errs, fmt.Errorf("failover took %.3f s, less than the %.3f s for which east may have acted",
			*r.Failover, *r.Floor))
	}
	for _, namespace := range namespaces {
		i := slices.IndexFunc(verdicts, func(v harness.Verdict) bool { return v.Namespace == namespace })
		if i < 0 || !slices.Equal(verdicts[i].Leaders, leaders) {
			errs = append(errs, fmt.Errorf("%s: the clusters did not act in the order %v", namespace, leaders))
		}
	}
	return errors.Join(errs...)
}

// judge judges what the guestbooks did, draws it, and writes the file.
func (p *play) judge() {
	acts := must.Get(p.d.Acts())
	verdicts := harness.Judge(acts)
	p.say("Who might act by its Lease (░), and who did (█)")
	fmt.Print(p.bars(acts))
	for _, v := range verdicts {
		for _, c := range v.Changes {
			fmt.Printf("  %-7s from %s to %s: nobody acted for %.2f s\n", v.Namespace, c.From, c.To, c.Gap().Seconds())
		}
	}
	p.result.Overlaps = len(harness.Breaches(verdicts))
	fmt.Printf("\n  %d acts of three guestbooks judged: %d overlaps. Results are in %s, logs in out/demo.\n",
		len(acts), p.result.Overlaps, resultFile())
	must.Do(errors.Join(harness.WriteReport(resultFile(), p.result), p.result.flaws(verdicts)))
}

// step is the time that a column of the bars covers.
const step = 250 * time.Millisecond

// bars draws each namespace and member, below the marks of what the demo did, from just before the first act on.
func (p *play) bars(acts []harness.Act) string {
	if len(acts) == 0 {
		return "  No one did.\n"
	}
	from, now := harness.Now().Boot, harness.Now().Boot
	for _, a := range acts {
		from = min(from, a.Begin-time.Second)
	}
	row := func(spans ...harness.Spans) string { return harness.Bar(from, now, step, spans...) }
	var out strings.Builder
	fmt.Fprintf(&out, "  %-15s %s\n", "fault or edit", row(harness.Spans{Cell: '▼', All: p.marks}))
	for _, namespace := range namespaces {
		for _, member := range leaders {
			var acted []harness.Span
			for _, a := range acts {
				if a.Namespace == namespace && a.Cluster == member {
					acted = append(acted, harness.Span{From: a.Begin, To: min(a.End, now)})
				}
			}
			might := permits(p.Leases[member].Seen(), namespace)
			fmt.Fprintf(&out, "  %-8s %-6s %s\n", namespace, member,
				row(harness.Spans{Cell: '█', All: acted}, harness.Spans{Cell: '░', All: might}))
		}
	}
	fmt.Fprintf(&out, "  (a column is %s; the first is %.0f s after the start)\n", step, (from - p.zero).Seconds())
	return out.String()
}

// permits returns when a member's Lease in a namespace let it act, if its reader saw each version when we did:
// from when it names the member to its deadline, or until it names another.
func permits(seen []harness.Sighting[*coordinationv1.Lease], namespace string) []harness.Span {
	var all []harness.Span
	for _, s := range seen {
		c, _ := wire.Read(s.Object)
		if s.Object.Namespace != namespace {
			continue
		}
		if n := len(all); n > 0 {
			all[n-1].To = min(all[n-1].To, s.At.Boot) // this version replaces the one before
		}
		if !s.Gone && c.LeadsHere() {
			all = append(all, harness.Span{From: s.At.Boot, To: harness.BootOf(c.Deadline(), s.At)})
		}
	}
	return all
}
