package harness

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/cmd/kubectl-leasecast/report"
)

// ReportFile is the page that a demo and each drill write.
var ReportFile = filepath.Join("out", "report.html")

// pause is how long a guestbook that may act pauses between two acts at most. A longer time is a gap.
const pause = time.Second

// Narrator prints what happens while it happens, and keeps what was done to the fleet.
type Narrator struct {
	zero  time.Duration // boot reading of its start
	marks []mark
}

// mark is a fault or an edit, on the boot clock.
type mark struct {
	Span
	text   string
	outage bool
}

// NewNarrator returns a Narrator that begins now.
func NewNarrator() *Narrator { return &Narrator{zero: Now().Boot} }

// Say begins a section.
func (n *Narrator) Say(text string) { fmt.Print("\n" + text + "\n") }

// Step reports progress within a section.
func (n *Narrator) Step(text string) {
	fmt.Printf("  %6.1f s  %s\n", (Now().Boot - n.zero).Seconds(), text)
}

// Did announces what was done at an instant.
func (n *Narrator) Did(at time.Duration, text string) {
	n.marks = append(n.marks, mark{Span: Span{From: at, To: at}, text: text})
	n.Step("▶ " + text)
}

// Undid announces that what was done last is undone since an instant.
func (n *Narrator) Undid(at time.Duration, text string) {
	n.marks[len(n.marks)-1].To = at
	n.Step("▶ " + text)
}

// HubBack is Undid for a loss of the hub: no term can begin before it.
func (n *Narrator) HubBack(at time.Duration, text string) {
	n.marks[len(n.marks)-1].outage = true
	n.Undid(at, text)
}

// Page is a report of instants on the boot clock.
type Page struct {
	report.Report
	from time.Duration
}

// NewPage returns a page of what happened between two instants.
func NewPage(title, source string, from, to time.Duration) *Page {
	now := Now()
	return &Page{from: from, Report: report.Report{Title: title, Source: source, Length: to - from,
		Began: now.Wall.Add(from - now.Boot)}}
}

// Span is the part of a span that is within the page.
func (p *Page) Span(s Span) report.Span {
	within := func(at time.Duration) time.Duration { return min(max(0, at-p.from), p.Length) }
	return report.Span{From: within(s.From), To: within(s.To)}
}

// AddFault adds what was done to the fleet.
func (p *Page) AddFault(s Span, text string) {
	p.Faults = append(p.Faults, report.Fault{Span: p.Span(s), Text: text})
	slices.SortStableFunc(p.Faults, func(a, b report.Fault) int { return cmp.Compare(a.From, b.From) })
}

// Spans are when a cluster acted in a namespace. Spans that are at most within apart are joined.
func (p *Page) Spans(acts []Act, namespace, cluster string, within time.Duration) []report.Span {
	var all []report.Span
	for _, s := range SpansOf(acts, namespace, cluster) {
		all = append(all, p.Span(s))
	}
	return report.Join(all, within)
}

// Gaps finds the gaps after the first act in each namespace. floor returns the instant before which the gap could not
// end, or zero.
func (p *Page) Gaps(floor func(namespace string, g report.Gap) time.Duration) {
	p.FindGaps(pause)
	for i := range p.Namespaces {
		n := &p.Namespaces[i]
		n.Gaps = slices.DeleteFunc(n.Gaps, func(g report.Gap) bool { return g.Before == "" && g.After != "" })
		for j := range n.Gaps {
			if at := floor(n.Name, n.Gaps[j]); at != 0 {
				n.Gaps[j].Earliest = max(1, at-p.from)
			}
		}
	}
}

// Report is the page of all that a view has seen, and of what was narrated, with these problems.
func (v *View) Report(title string, n *Narrator, acts []Act, problems ...string) *Page {
	from, to := Now().Boot, Now().Boot
	for _, a := range acts {
		from = min(from, a.Begin-time.Second)
	}
	p := NewPage(title, "Acts are what guestbook controllers logged; promises are Leases, as watches at the API servers "+
		"showed them. All clocks are one machine's.", from, to)
	p.Problems = problems
	for _, m := range n.marks {
		p.AddFault(m.Span, m.text)
	}
	for _, namespace := range namespacesOf(acts) {
		row := report.Namespace{Name: namespace}
		for _, m := range v.d.Fleet.Members() {
			could, promised := permits(v.Leases[m.Name()].Seen(), namespace)
			r := report.Row{Cluster: m.Name(), Acted: p.Spans(acts, namespace, m.Name(), pause)}
			for i := range could {
				r.Could, r.Promised = append(r.Could, p.Span(could[i])), append(r.Promised, p.Span(promised[i]))
			}
			row.Rows = append(row.Rows, r)
		}
		p.Namespaces = append(p.Namespaces, row)
	}
	p.Gaps(func(namespace string, g report.Gap) time.Duration { return v.floor(n, namespace, g, p.from) })
	return p
}

// floor is when another cluster may act at the earliest: see [Floor]. After a loss of the hub a cluster may begin a
// term of its own when the hub is back.
func (v *View) floor(n *Narrator, namespace string, g report.Gap, zero time.Duration) (earliest time.Duration) {
	for _, m := range n.marks {
		if m.outage && m.To > g.From+zero && m.From < g.To+zero {
			earliest = m.To
		}
	}
	if g.Before != g.After && v.Leases[g.Before] != nil {
		if stamp, ok := LastRenewTime(v.Leases[g.Before].Seen(), namespace, g.To+zero); ok {
			earliest = max(earliest, stamp+v.d.Timings.Duration+v.d.Timings.Skew)
		}
	}
	return earliest
}

func namespacesOf(acts []Act) (all []string) {
	for _, a := range acts {
		all = append(all, a.Namespace)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// permits returns when a member's Lease in a namespace let it act, if its reader saw each version when we did: from
// when it names the member to its deadline, or until it names another. It also returns what was promised, to each
// deadline.
func permits(seen []Sighting[*coordinationv1.Lease], namespace string) (could, promised []Span) {
	for _, s := range seen {
		c, _ := wire.Read(s.Object)
		if s.Object.Namespace != namespace {
			continue
		}
		if n := len(could); n > 0 {
			could[n-1].To = min(could[n-1].To, s.At.Boot) // this version replaces the one before
		}
		if !s.Gone && c.LeadsHere() {
			could = append(could, Span{From: s.At.Boot, To: BootOf(c.Deadline(), s.At)})
			promised = append(promised, Span{From: BootOf(c.RenewTime, s.At), To: BootOf(c.Deadline(), s.At)})
		}
	}
	return could, promised
}
