package harness

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/cmd/kubectl-leasecast/report"
)

func TestPageCountsFromItsBeginningAndKnowsFloors(t *testing.T) {
	const s = time.Second
	p := NewPage("a drill", "", 100*s, 130*s)
	p.AddFault(Span{From: 120 * s, To: Unfinished}, "the second")
	p.AddFault(Span{From: 110 * s, To: 112 * s}, "the first")
	acts := []Act{
		{Cluster: "east", Namespace: "shop", Begin: 105 * s, End: 106 * s},
		{Cluster: "east", Namespace: "shop", Begin: 106*s + s/2, End: 110 * s},
		{Cluster: "west", Namespace: "shop", Begin: 115 * s, End: Unfinished},
		{Cluster: "west", Namespace: "bank", Begin: 101 * s, End: 102 * s},
	}
	p.Namespaces = []report.Namespace{{Name: "shop", Rows: []report.Row{
		{Cluster: "east", Acted: p.Spans(acts, "shop", "east", s)},
		{Cluster: "west", Acted: p.Spans(acts, "shop", "west", s)},
	}}}
	p.Gaps(func(string, report.Gap) time.Duration { return 114 * s })
	if got := p.Namespaces[0].Gaps; len(got) != 1 || got[0].Length() != 5*s || got[0].Floor() != 4*s {
		t.Errorf("gaps %+v", got)
	}
	if got := p.Faults; got[0].Text != "the first" || got[1].Span != (report.Span{From: 20 * s, To: 30 * s}) {
		t.Errorf("faults %+v", got)
	}
}
