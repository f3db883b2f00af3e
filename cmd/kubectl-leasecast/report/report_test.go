package report_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/leasecast/leasecast/cmd/kubectl-leasecast/report"
)

// pages is a folder that the pages of the tests are left in, to be looked at.
var pages = flag.String("pages", "", "leave the pages in this folder")

const second = time.Second

func span(from, to time.Duration) report.Span {
	return report.Span{From: from * second, To: to * second}
}

// failover is a report of a namespace that goes from east to west, in which a floor of three seconds was kept.
func failover(namespace string) *report.Report {
	r := &report.Report{
		Title: "leader lost", Source: "Seen by a test.", Length: 30 * second,
		Began: time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC),
		Namespaces: []report.Namespace{{Name: namespace, Rows: []report.Row{
			{Cluster: "east", Promised: []report.Span{span(1, 12)}, Could: []report.Span{span(1, 12)},
				Acted: []report.Span{span(1, 11)}},
			{Cluster: "west", Promised: []report.Span{span(15, 30)}, Could: []report.Span{span(15, 30)},
				Acted: []report.Span{span(16, 30)}},
			{Cluster: "south"},
		}}},
		Faults: []report.Fault{{Span: span(9, 20), Text: "east's API server is paused"}},
	}
	r.FindGaps(2 * second)
	r.Namespaces[0].Gaps[0].Earliest = 14 * second
	return r
}

// document is a page that was read again.
type document struct{ root *html.Node }

func write(t *testing.T, name string, r *report.Report) document {
	t.Helper()
	path := filepath.Join(t.TempDir(), "folder", "report.html")
	if *pages != "" {
		path = filepath.Join(*pages, name+".html")
	}
	if err := r.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	root, err := html.Parse(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return document{root}
}

// all returns the elements of a name that have a class, or any.
func (d document) all(name, class string) (found []*html.Node) {
	for n := range d.root.Descendants() {
		if n.Type == html.ElementNode && n.Data == name &&
			(class == "" || slices.Contains(strings.Fields(attribute(n, "class")), class)) {
			found = append(found, n)
		}
	}
	return found
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func text(n *html.Node) string {
	var all strings.Builder
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			all.WriteString(c.Data)
		}
	}
	return strings.Join(strings.Fields(all.String()), " ")
}

func texts(nodes []*html.Node) (all []string) {
	for _, n := range nodes {
		all = append(all, text(n))
	}
	return all
}

func TestThePageHasVerdictTimelineFaultsAndGaps(t *testing.T) {
	d := write(t, "failover", failover("shop"))
	const verdict = "✓ Kept. No two clusters acted at once; " +
		"nobody acted for 5.00 s at worst, in shop, 2.00 s above the floor."
	if got := text(d.all("p", "verdict")[0]); got != verdict {
		t.Errorf("verdict %q", got)
	}
	want := []string{"shop", "east → west", "5.00 s", "3.00 s", "2.00 s", "1, 7.00 s"}
	if got := texts(d.all("td", "")); !slices.Equal(got, want) {
		t.Errorf("gaps %q, want %q", got, want)
	}
	want = []string{"9.00 s to 20.00 s: east's API server is paused"}
	if got := texts(d.all("li", "")); !slices.Equal(got, want) {
		t.Errorf("faults %q", got)
	}
	var bars []string
	for _, n := range d.all("title", "")[1:] { // after the page's
		bars = append(bars, attribute(n.Parent, "class")+": "+text(n))
	}
	want = []string{
		"fault: 1: east's API server is paused, 9.00 s to 20.00 s",
		"could: east could act, 1.00 s to 12.00 s",
		"acted: east acted, 1.00 s to 11.00 s",
		"promised: promised to east, 1.00 s to 12.00 s",
		"could: west could act, 15.00 s to 30.00 s",
		"acted: west acted, 16.00 s to 30.00 s",
		"promised: promised to west, 15.00 s to 30.00 s",
		"floor: nobody may yet, 11.00 s to 14.00 s",
		"over: nobody, above the floor, 14.00 s to 16.00 s",
	}
	if !slices.Equal(bars, want) {
		t.Errorf("bars\n%s", strings.Join(bars, "\n"))
	}
	acted := d.all("rect", "acted")
	if last := acted[len(acted)-1]; attribute(last, "x") != "53.333" || attribute(last, "width") != "46.667" {
		t.Errorf("west acted from %s for %s of 100", attribute(last, "x"), attribute(last, "width"))
	}
}

func TestNothingOfThePageComesFromElsewhereOrRuns(t *testing.T) {
	const evil = `</title></svg><script src="https://example.com/x.js">alert(1)</script><img onerror=alert(1) src=x>` +
		"\u202e\x1b[2J"
	r := failover(evil)
	r.Title, r.Source, r.Problems = evil, evil, []string{evil}
	r.Faults[0].Text = evil
	for i := range r.Namespaces[0].Rows {
		r.Namespaces[0].Rows[i].Cluster += evil
	}
	r.FindGaps(0)
	d := write(t, "evil", r)
	for n := range d.root.Descendants() {
		if slices.Contains([]string{"script", "img", "link", "iframe", "object", "use", "image"}, n.Data) &&
			n.Type == html.ElementNode {
			t.Errorf("the page has an element %s", n.Data)
		}
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "href" || a.Key == "src" {
				t.Errorf("an element %s has an attribute %s", n.Data, a.Key)
			}
		}
		if strings.ContainsAny(n.Data, "\u202e\x1b") {
			t.Errorf("%q has what does not show", n.Data)
		}
	}
	if got := text(d.all("b", "")[1]); !strings.Contains(got, "<script src=") {
		t.Errorf("the name is shown as %q", got)
	}
}

// Each row is who could act when, and a part of the verdict.
func TestVerdict(t *testing.T) {
	row := func(cluster string, spans ...report.Span) report.Row {
		return report.Row{Cluster: cluster, Could: spans}
	}
	earliest := func(at time.Duration) func(*report.Report) {
		return func(r *report.Report) { r.Namespaces[0].Gaps[0].Earliest = at * second }
	}
	for name, test := range map[string]struct {
		rows   []report.Row
		change func(*report.Report)
		want   string
		kept   bool
	}{
		"nobody ever could": {[]report.Row{row("east")}, nil, "shop: nobody at the end, for 30.00 s so far", false},
		"one could all the time": {[]report.Row{row("east", span(0, 30))}, nil,
			"No two clusters could act at once, and one could act in each namespace all the time.", true},
		"a gap without a floor": {[]report.Row{row("east", span(0, 10)), row("west", span(14, 30))}, nil,
			"nobody could act for 4.00 s at worst, in shop.", true},
		"a gap of its floor": {[]report.Row{row("east", span(0, 10)), row("west", span(14, 30))}, earliest(14),
			"nobody could act for 4.00 s at worst, in shop, 0.00 s above the floor.", true},
		"a gap that is shorter than its floor": {[]report.Row{row("east", span(0, 10)), row("west", span(14, 30))},
			earliest(15), "shop: west is 1.00 s too early after east", false},
		"a floor that ends before the gap": {[]report.Row{row("east", span(0, 10)), row("west", span(14, 30))}, earliest(9),
			"4.00 s above the floor", true},
		"two at once": {[]report.Row{row("east", span(0, 10)), row("west", span(8, 30))}, nil,
			"shop: east and west at once for 2.00 s", false},
		"one within the term of another one": {[]report.Row{row("east", span(0, 30)), row("west", span(8, 9))}, nil,
			"shop: east and west at once for 1.00 s", false},
		"the same cluster again": {[]report.Row{row("east", span(0, 10), span(15, 30))}, nil, "for 5.00 s at worst", true},
		"a renewal that is seen twice": {[]report.Row{row("east", span(0, 20), span(5, 10), span(15, 30))}, nil,
			"all the time", true},
		"a change without a gap": {[]report.Row{row("east", span(0, 10)), row("west", span(10, 30))}, nil, "all the time",
			true},
		"nobody at the end": {[]report.Row{row("east", span(0, 10))}, nil,
			"shop: nobody at the end, for 20.00 s so far", false},
		"something else, and two at once": {[]report.Row{row("east", span(0, 10)), row("west", span(8, 30))},
			func(r *report.Report) { r.Problems = []string{"an epoch fell"} }, "an epoch fell; and 1 more.", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := &report.Report{Length: 30 * second, Namespaces: []report.Namespace{{Name: "shop", Rows: test.rows}}}
			r.FindGaps(2 * second)
			if test.change != nil {
				test.change(r)
			}
			if got, kept := r.Verdict(); kept != test.kept || !strings.Contains(got, test.want) {
				t.Errorf("kept %t, %s", kept, got)
			}
		})
	}
}

func TestAnEmptyReport(t *testing.T) {
	d := write(t, "empty", &report.Report{Title: "nothing"})
	if got := text(d.all("p", "verdict")[0]); got != "✗ Look. Nothing was seen: there was no namespace." {
		t.Errorf("verdict %q", got)
	}
	if len(d.all("details", ""))+len(d.all("table", "")) > 0 {
		t.Error("something is drawn")
	}
}

// What needs a look comes first, and the rest is folded.
func TestSixtyNamespaces(t *testing.T) {
	r := &report.Report{Title: "sixty", Length: 10 * time.Minute}
	for i := range 60 {
		n := failover(fmt.Sprintf("team-%02d", i)).Namespaces[0]
		n.Rows[1].Acted = append(n.Rows[1].Acted, span(30, 600))
		for at := time.Duration(30); at < 600; at++ { // a renewal a second
			n.Rows[1].Could = append(n.Rows[1].Could, span(at, at+15))
		}
		r.Namespaces = append(r.Namespaces, n)
	}
	r.Namespaces[41].Rows[1].Acted[0].From = 10 * second
	r.FindGaps(2 * second)
	d := write(t, "sixty", r)
	drawn := d.all("details", "namespace")
	if len(drawn) != 60 || !strings.HasPrefix(text(drawn[0]), "team-41") {
		t.Fatalf("%d namespaces, the first is %s", len(drawn), text(drawn[0]))
	}
	unfolded := slices.DeleteFunc(drawn, func(n *html.Node) bool {
		return !slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == "open" })
	})
	if len(unfolded) != 8 {
		t.Errorf("%d namespaces are unfolded", len(unfolded))
	}
	if bars := len(d.all("rect", "")); bars > 60*15 {
		t.Errorf("%d rectangles", bars)
	}
	if got := text(d.all("td", "")[0]); got != "team-41" {
		t.Errorf("the table begins with %s", got)
	}
}
