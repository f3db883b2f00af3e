package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/duration"
)

const (
	// tall is the height of a row, in pixels.
	tall = 22
	// mostTicks is how many instants the axis names at most.
	mostTicks = 8
	// finest is the part of a report that is no wider than a pixel. Closer spans are drawn as one.
	finest = 1000
)

// ticks are what the instants of the axis may be apart, in seconds.
var ticks = []int{1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400}

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"text": Printable, "seconds": seconds, "coarse": duration.HumanDuration, "add": func(a, b int) int { return a + b },
}).Parse(pageText))

// Printable replaces what does not show, what a terminal would act on, and what changes the direction of a text: names
// and messages come from members, and from whoever annotates objects.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, text)
}

// page is what the template shows.
type page struct {
	*Report
	Verdict string
	Kept    bool
	Ticks   []time.Duration
	Drawn   []drawing
	Table   []entry
}

// drawing shows a namespace.
type drawing struct {
	Namespace
	Summary string
	Bars    []bar
	Height  int
}

// bar is a rectangle with an explanation.
type bar struct {
	Span
	Class, Title string
	Y, H         int
}

// entry is a gap in the table.
type entry struct {
	Gap
	Namespace, Cause string
}

// Write writes the page. It needs nothing but itself.
func (r *Report) Write(to io.Writer) error {
	p := &page{Report: r}
	p.Verdict, p.Kept = r.Verdict()
	step := max(time.Second, r.Length/mostTicks)
	for _, s := range slices.Backward(ticks) {
		if apart := time.Duration(s) * time.Second; apart >= r.Length/mostTicks {
			step = apart
		}
	}
	for at := time.Duration(0); at <= r.Length; at += step {
		p.Ticks = append(p.Ticks, at)
	}
	for _, n := range slices.SortedStableFunc(slices.Values(r.Namespaces), func(a, b Namespace) int {
		return cmp.Or(cmp.Compare(b.worst().weight(), a.worst().weight()), cmp.Compare(a.Name, b.Name))
	}) {
		p.Drawn = append(p.Drawn, p.draw(n))
		for _, g := range n.Gaps {
			p.Table = append(p.Table, entry{g, n.Name, r.cause(g)})
		}
	}
	slices.SortStableFunc(p.Table, func(a, b entry) int { return cmp.Compare(b.weight(), a.weight()) })
	return pageTemplate.Execute(to, p)
}

// WriteFile writes the page into a file in place of the one before, and makes its folder.
func (r *Report) WriteFile(path string) error {
	var text bytes.Buffer
	if err := r.Write(&text); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Percent is the place of an instant.
func (r *Report) Percent(at time.Duration) float64 {
	part := float64(at) / float64(max(r.Length, 1))
	return math.Round(min(max(0, part), 1)*1e5) / 1e3
}

// Width is the width of a span, wide enough to be seen.
func (r *Report) Width(s Span) float64 {
	return max(0.2, math.Round((r.Percent(s.To)-r.Percent(s.From))*1e3)/1e3)
}

// cause is the number of the latest fault before the end of a gap, from one, and the time between the two.
func (r *Report) cause(g Gap) (cause string) {
	for i, f := range r.Faults {
		if f.From <= g.To {
			cause = fmt.Sprintf("%d, %s", i+1, seconds(g.To-f.From))
		}
	}
	return cause
}

// draw draws the clusters below each other, and what nobody did below them.
func (r *Report) draw(n Namespace) drawing {
	d := drawing{Namespace: n, Height: tall * (len(n.Rows) + 1), Summary: n.summary()}
	add := func(class string, y, h int, s Span, text string) {
		if s.Length() == 0 && class != "fault" {
			return
		}
		title := fmt.Sprintf("%s, %.2f s to %.2f s", text, s.From.Seconds(), s.To.Seconds())
		d.Bars = append(d.Bars, bar{s, class, title, y, h})
	}
	for i, f := range r.Faults {
		add("fault", 0, d.Height, f.Span, fmt.Sprintf("%d: %s", i+1, f.Text))
	}
	for i, row := range n.Rows {
		for _, s := range Join(row.Could, r.Length/finest) {
			add("could", i*tall+2, tall-7, s, row.Cluster+" could act")
		}
		for _, s := range Join(row.Acted, r.Length/finest) {
			add("acted", i*tall+6, tall-15, s, row.Cluster+" acted")
		}
		for _, s := range Join(row.Promised, r.Length/finest) {
			add("promised", i*tall+tall-4, 2, s, "promised to "+row.Cluster)
		}
	}
	y, h := len(n.Rows)*tall+5, tall-10
	for _, g := range n.Gaps {
		floor := min(g.To, g.From+g.Floor())
		switch {
		case g.Length() < 0:
			add("overlap", 0, d.Height, Span{From: g.To, To: g.From}, g.Before+" and "+g.After+" at once")
		case g.Earliest == 0:
			add("nobody", y, h, g.Span, "nobody")
		default:
			add("floor", y, h, Span{From: g.From, To: floor}, "nobody may yet")
			add("over", y, h, Span{From: floor, To: g.To}, "nobody, above the floor")
		}
	}
	return d
}
