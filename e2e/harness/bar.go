package harness

import (
	"slices"
	"time"
)

// Span is an interval on the boot clock.
type Span struct{ From, To time.Duration }

// Spans are drawn with a cell of their own.
type Spans struct {
	Cell rune
	All  []Span
}

// Bar draws spans as a line of text, a cell for each step. The first spans that touch a cell give it its look.
func Bar(from, to, step time.Duration, spans ...Spans) string {
	var line []rune
	for at := from; at < to; at += step {
		i := slices.IndexFunc(spans, func(drawn Spans) bool {
			return slices.ContainsFunc(drawn.All, func(s Span) bool { return s.From < at+step && s.To >= at })
		})
		cell := '·'
		if i >= 0 {
			cell = spans[i].Cell
		}
		line = append(line, cell)
	}
	return string(line)
}
