package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/leasecast/leasecast/e2e/chaos/history"
)

//go:embed timeline.html.tmpl
var timelineSource string

var timelineTemplate = template.Must(template.New("timeline").Parse(timelineSource))

// Sizes of the drawing, in its own units.
const (
	labelWidth = 150
	plotWidth  = 1150
	faultRow   = 18
	laneRow    = 16
	sectionGap = 26
	axisHeight = 24
	margins    = 10
)

// box is a rectangle with a tooltip and, if there is room, a label.
type box struct {
	X, Y, W, H   float64
	Class, Title string
	Label        string
}

// label is a text.
type label struct {
	X, Y        float64
	Class, Text string
}

// drawing is what the template fills in.
type drawing struct {
	Seed           uint64
	Failed         bool
	Verdict        []string
	Facts          []string
	Width, Height  float64
	Top            float64
	Boxes          []box
	Labels         []label
	Grid           []float64
	Over           float64
	Ticks          []label
	Faults         []faultLine
	plotFrom, upTo time.Duration
}

type faultLine struct {
	Began, Lasted, Kind, Target, Effect, Class string
}

// writeTimeline draws an outcome into the folder and returns the file.
func writeTimeline(dir string, o *Outcome) (string, error) {
	var page bytes.Buffer
	if err := timelineTemplate.Execute(&page, newDrawing(o)); err != nil {
		return "", fmt.Errorf("timeline of seed %d: %w", o.Seed, err)
	}
	file := filepath.Join(dir, fmt.Sprintf("seed-%d.html", o.Seed))
	if err := os.WriteFile(file, page.Bytes(), 0o644); err != nil {
		return "", fmt.Errorf("timeline of seed %d: %w", o.Seed, err)
	}
	return file, nil
}

func newDrawing(o *Outcome) *drawing {
	d := &drawing{
		Seed: o.Seed, Failed: o.Failed(), Verdict: o.verdict(), Width: labelWidth + plotWidth + margins,
		plotFrom: o.Began - time.Second, upTo: o.Ended,
		Facts: []string{
			fmt.Sprintf("%d faults, %d acts, %d changes of leader", len(o.Faults), o.Acts, o.Changes),
			fmt.Sprintf("least margin between a leader's last deadline and the next one's first permit: %.3f s", o.Margin.Seconds()),
			fmt.Sprintf("longest time without an act: %.1f s, in %s", o.Gap.Seconds(), o.GapNamespace),
			fmt.Sprintf("everybody led again %.1f s after the last fault", o.Recovery.Seconds()),
			fmt.Sprintf("readers that slept past their term: %d; a write of that term then reached a plain store %d times, a fenced one %d times",
				o.Slept.Pauses, o.Slept.Unfenced, o.Slept.Fenced),
		},
	}
	y := d.faults(o, axisHeight+margins)
	y = d.elections(o, y)
	for _, namespace := range allNamespaces() {
		y = d.namespace(o, namespace, y)
	}
	d.Height, d.Top = y+margins, axisHeight
	d.Over = d.x(o.Over)
	for at := time.Duration(0); o.Began+at <= o.Ended; at += time.Second {
		x := d.x(o.Began + at)
		d.Grid = append(d.Grid, x)
		if at%(2*time.Second) == 0 {
			d.Ticks = append(d.Ticks, label{X: x, Y: 16, Text: fmt.Sprintf("%.0f s", at.Seconds())})
		}
	}
	for _, f := range o.Faults {
		d.Faults = append(d.Faults, faultLine{
			Began: fmt.Sprintf("%.2f s", (f.Began - o.Began).Seconds()), Lasted: fmt.Sprintf("%.2f s", (f.Ended - f.Began).Seconds()),
			Kind: string(f.Kind), Target: strings.TrimSpace(f.Target + " " + f.Namespace), Effect: f.Effect, Class: family(f.Kind),
		})
	}
	return d
}

// x is where an instant is; what is not in the picture is at its edge.
func (d *drawing) x(at time.Duration) float64 {
	at = min(max(at, d.plotFrom), d.upTo)
	return labelWidth + plotWidth*float64(at-d.plotFrom)/float64(d.upTo-d.plotFrom)
}

func (d *drawing) box(from, to time.Duration, y, h float64, class, title, text string) {
	if to < d.plotFrom || from > d.upTo {
		return
	}
	x := d.x(from)
	b := box{X: x, Y: y, W: max(d.x(to)-x, 1.5), H: h, Class: class, Title: title}
	if b.W > 6.2*float64(len(text)) {
		b.Label = text
	}
	d.Boxes = append(d.Boxes, b)
}

// family is what a kind of fault hits; it has a colour.
func family(k Kind) string {
	name, _, _ := strings.Cut(string(k), "-")
	switch name {
	case "late":
		return "link"
	case "apiserver", "etcd":
		return "server"
	case "lease", "kubeconfig", "namespace", "priority":
		return "object"
	}
	return name
}

// rows are where a fault is drawn.
func (a *Applied) rows() []string {
	switch a.Kind {
	case LeaseDelete, LeaseEdit, NamespaceDelete:
		return []string{a.Target + " objects"}
	case KubeconfigSwap, Priority:
		return []string{a.Target + " objects"}
	}
	return a.locks()
}

// faults draws a row for each thing that was hit.
func (d *drawing) faults(o *Outcome, y float64) float64 {
	var rows []string
	for _, f := range o.Faults {
		rows = append(rows, f.rows()...)
	}
	slices.Sort(rows)
	y = d.section("What was done", y)
	for _, row := range slices.Compact(rows) {
		d.Labels = append(d.Labels, label{X: labelWidth - 8, Y: y + faultRow - 6, Class: "name", Text: row})
		for _, f := range o.Faults {
			if slices.Contains(f.rows(), row) {
				title := fmt.Sprintf("%s of %s %s, %.2f s to %.2f s: %s", f.Kind, f.Target, f.Namespace,
					(f.Began - o.Began).Seconds(), (f.Ended - o.Began).Seconds(), f.Effect)
				d.box(f.Began, f.Ended, y+2, faultRow-4, "fault "+family(f.Kind), title, string(f.Kind))
			}
		}
		y += faultRow
	}
	return y
}

func (d *drawing) section(name string, y float64) float64 {
	d.Labels = append(d.Labels, label{X: margins, Y: y + sectionGap - 9, Class: "section", Text: name})
	return y + sectionGap
}

// elections draws which process held the hub's election.
func (d *drawing) elections(o *Outcome, y float64) float64 {
	y = d.section("Which replica of the hub was elected", y)
	d.Labels = append(d.Labels, label{X: labelWidth - 8, Y: y + laneRow - 4, Class: "name", Text: "election"})
	seen, shade := o.evidence.elected, 0
	for i := 0; i < len(seen); {
		j := i
		for j+1 < len(seen) && seen[j+1].holder == seen[i].holder {
			j++
		}
		end := o.Ended
		if j+1 < len(seen) {
			end = seen[j+1].at
		}
		if holder := seen[i].holder; holder != "" {
			d.box(seen[i].at, end, y+2, laneRow-4, fmt.Sprintf("elected shade%d", shade%2), holder, holder[max(0, len(holder)-6):])
			shade++
		}
		i = j + 1
	}
	return y + laneRow
}

// namespace draws a lane for each cluster that may lead in a namespace.
func (d *drawing) namespace(o *Outcome, namespace string, y float64) float64 {
	y = d.section("Namespace "+namespace+": who could act, and who did", y)
	top := y
	for _, member := range homes(namespace) {
		d.Labels = append(d.Labels, label{X: labelWidth - 8, Y: y + laneRow - 4, Class: "name", Text: member})
		d.Boxes = append(d.Boxes, box{X: labelWidth, Y: y + 1, W: plotWidth, H: laneRow - 2, Class: "lane"})
		for _, f := range o.Faults {
			hits := f.Target == member && f.Kind != Priority && (family(f.Kind) != "object" || f.Namespace == namespace || f.Kind == KubeconfigSwap)
			if hits {
				d.box(f.Began, f.Ended, y+1, laneRow-2, "shadow "+family(f.Kind), string(f.Kind)+" of "+member, "")
			}
		}
		for _, s := range o.evidence.permits {
			if s.Cluster != member || s.Namespace != namespace {
				continue
			}
			title := fmt.Sprintf("%s could act in epoch %d from %.3f s to %.3f s", member, s.Epoch, (s.Begin - o.Began).Seconds(), (s.End - o.Began).Seconds())
			d.box(s.Begin, s.End, y+3, laneRow-6, "permit", title, fmt.Sprint(s.Epoch))
		}
		d.acts(o, member, namespace, y)
		y += laneRow
	}
	for _, b := range o.Overlaps {
		if b.Later.Namespace == namespace {
			d.box(b.Later.Begin, max(b.Later.Begin, min(b.Earlier.End, b.Later.End)), top, y-top, "overlap", relative(b, o.Began).String(), "")
		}
	}
	return y
}

// acts draws a tick for each write of a member's readers.
func (d *drawing) acts(o *Outcome, member, namespace string, y float64) {
	for _, c := range o.evidence.calls[member] {
		if c.Right == nil || c.Namespace != namespace || c.At < d.plotFrom {
			continue
		}
		class := "act"
		if c.Result == history.Refused {
			class = "act refused"
		}
		x := d.x(c.At)
		d.Boxes = append(d.Boxes, box{X: x, Y: y + 5, W: 0.7, H: laneRow - 10, Class: class})
		if c.Result == history.Refused {
			d.box(c.At, c.At, y+1, laneRow-2, "act refused", fmt.Sprintf("a write in epoch %d at %.3f s: the fenced register refused it", c.Epoch, (c.At-o.Began).Seconds()), "")
		}
	}
}
