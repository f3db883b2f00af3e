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
	// mostDrawn is how many namespaces a page draws, and mostOpen how many it shows unfolded. Those with the worst gaps
	// come first.
	mostDrawn, mostOpen = 500, 8
	// mostRows bounds each list.
	mostRows = 200
	// wide is the width of a drawing, in units that the browser stretches. Closer spans are drawn as one.
	wide = 1000
	// tall is the height of a row, in pixels.
	tall = 22
	// mostTicks is how many instants the axis names at most.
	mostTicks = 8
)

// steps are what the ticks of the axis may be apart.
var steps = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute,
	5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour,
}

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"text": printable, "seconds": seconds, "add": func(a, b int) int { return a + b },
}).Parse(pageText))

// printable replaces what does not show, or changes the direction of a text: names and messages come from members.
func printable(text string) string {
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
	Ticks   []tick
	Events  []event
	Drawn   []drawing
	Table   []entry
	// MoreNamespaces, MoreGaps and MoreEvents are left out.
	MoreNamespaces, MoreGaps, MoreEvents int
}

// tick is an instant on the axis, at a percentage of its width.
type tick struct {
	At   float64
	Text string
}

// event is a fault with its place on the axis.
type event struct {
	Fault
	At float64
}

// drawing shows a namespace.
type drawing struct {
	Name, Worst string
	Clusters    []string
	Bars        []bar
	Height      int
	Open        bool
}

// bar is a rectangle with an explanation.
type bar struct {
	Class string
	X, W  float64
	Y, H  int
	Title string
}

// entry is a gap in the table.
type entry struct {
	Gap
	Namespace string
	// Cause is the number of the latest fault that had begun, from one, and Since the time from its beginning.
	Cause int
	Since time.Duration
}

// Write writes the page. It needs nothing but itself.
func (r *Report) Write(to io.Writer) error {
	p := &page{Report: r}
	p.Verdict, p.Kept = r.Verdict()
	p.axis()
	sorted := slices.SortedStableFunc(slices.Values(r.Namespaces), func(a, b Namespace) int {
		return cmp.Or(cmp.Compare(b.worst(), a.worst()), strings.Compare(a.Name, b.Name))
	})
	for i, n := range sorted {
		if i < mostDrawn {
			p.Drawn = append(p.Drawn, p.draw(n, i < mostOpen))
		}
		for _, g := range n.Gaps {
			p.Table = append(p.Table, p.entry(n.Name, g))
		}
	}
	slices.SortStableFunc(p.Table, func(a, b entry) int { return cmp.Compare(b.weight(), a.weight()) })
	p.MoreNamespaces = len(sorted) - len(p.Drawn)
	p.Table, p.MoreGaps = most(p.Table)
	p.Events, p.MoreEvents = most(p.Events)
	return pageTemplate.Execute(to, p)
}

func most[T any](all []T) (shown []T, more int) {
	shown = all[:min(len(all), mostRows)]
	return shown, len(all) - len(shown)
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

// weight orders gaps: one that breaks a promise has more than all others.
func (g Gap) weight() time.Duration {
	if g.problem("") != "" {
		return math.MaxInt64
	}
	return g.Length()
}

// worst is the largest weight of a gap, or zero.
func (n Namespace) worst() (worst time.Duration) {
	for _, g := range n.Gaps {
		worst = max(worst, g.weight())
	}
	return worst
}

// summary is what is shown of a namespace that is folded.
func (n Namespace) summary() string {
	if len(n.Gaps) == 0 {
		return "no gap"
	}
	worst := slices.MaxFunc(n.Gaps, func(a, b Gap) int { return cmp.Compare(a.weight(), b.weight()) })
	if problem := worst.problem(n.Name); problem != "" {
		return strings.TrimPrefix(problem, n.Name+": ")
	}
	if len(n.Gaps) == 1 {
		return "a gap of " + seconds(worst.Length())
	}
	return fmt.Sprintf("%d gaps, the longest %s", len(n.Gaps), seconds(worst.Length()))
}

// x is the place of an instant in a drawing.
func (p *page) x(at time.Duration) float64 {
	return math.Round(min(max(0, float64(at)/float64(max(p.Length, 1))), 1)*wide*100) / 100
}

// percent is the same on the axis.
func (p *page) percent(at time.Duration) float64 { return math.Round(p.x(at)*100/wide*100) / 100 }

func (p *page) axis() {
	i := slices.IndexFunc(steps, func(s time.Duration) bool { return p.Length/s <= mostTicks })
	step := 24 * time.Hour * max(1, p.Length/(24*time.Hour)/mostTicks)
	if i >= 0 {
		step = steps[i]
	}
	for at := time.Duration(0); at <= p.Length; at += step {
		p.Ticks = append(p.Ticks, tick{p.percent(at), duration.HumanDuration(at)})
	}
	for _, f := range p.Faults {
		p.Events = append(p.Events, event{f, p.percent(f.From)})
	}
}

func (p *page) entry(namespace string, g Gap) entry {
	e := entry{Gap: g, Namespace: namespace}
	for i, f := range p.Faults {
		if f.From <= g.To {
			e.Cause, e.Since = i+1, g.To-f.From
		}
	}
	return e
}

// draw draws the clusters below each other, and what nobody did below them.
func (p *page) draw(n Namespace, open bool) drawing {
	d := drawing{Name: n.Name, Open: open, Height: tall * (len(n.Rows) + 1), Worst: n.summary()}
	add := func(class string, y, h int, s Span, format string, args ...any) {
		title := fmt.Sprintf("%s, %.2f s to %.2f s", fmt.Sprintf(format, args...), s.From.Seconds(), s.To.Seconds())
		x := p.x(s.From)
		d.Bars = append(d.Bars, bar{Class: class, X: x, W: max(2, math.Round((p.x(s.To)-x)*100)/100), Y: y, H: h, Title: title})
	}
	for i, f := range p.Faults[:min(len(p.Faults), mostRows)] {
		add("fault", 0, d.Height, f.Span, "%d: %s", i+1, f.Text)
	}
	pixel := p.Length / wide
	for i, row := range n.Rows {
		d.Clusters = append(d.Clusters, row.Cluster)
		y := i * tall
		for _, s := range Join(row.Could, pixel) {
			add("could", y+2, tall-7, s, "%s could act", row.Cluster)
		}
		for _, s := range Join(row.Acted, pixel) {
			add("acted", y+6, tall-15, s, "%s acted", row.Cluster)
		}
		for _, s := range Join(row.Promised, pixel) {
			add("promised", y+tall-4, 2, s, "promised to %s", row.Cluster)
		}
	}
	y := len(n.Rows) * tall
	for _, g := range n.Gaps {
		if g.Length() < 0 {
			add("overlap", 0, d.Height, Span{From: g.To, To: g.From}, "%s and %s at once", g.Before, g.After)
			continue
		}
		if g.Earliest == 0 {
			add("nobody", y+5, tall-10, g.Span, "nobody")
			continue
		}
		floor := min(g.To, g.From+g.Floor())
		if floor > g.From {
			add("floor", y+5, tall-10, Span{From: g.From, To: floor}, "nobody may yet")
		}
		if g.To > floor {
			add("over", y+5, tall-10, Span{From: floor, To: g.To}, "nobody, above the floor")
		}
	}
	return d
}
