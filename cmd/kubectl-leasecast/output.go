package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/cmd/kubectl-leasecast/report"
)

// watchEvery is how often --watch shows a command's output again.
const watchEvery = 2 * time.Second

// watched runs a command once, or again and again, also when a later read fails.
func (p *plugin) watched(watch bool, show func() error) error {
	if !watch {
		return show()
	}
	again := time.NewTicker(watchEvery)
	defer again.Stop()
	for first := true; ; first = false {
		switch err := show(); {
		case err == nil, errors.Is(err, errAttention):
		case first, errors.Is(err, syscall.EPIPE):
			return err
		default:
			_, _ = fmt.Fprintln(p.ErrOut, "error:", report.Printable(err.Error()))
		}
		<-again.C
		_, _ = fmt.Fprintln(p.Out)
	}
}

// printed prints a value for programs, if --output asks for that.
func (p *plugin) printed(value any) (done bool, err error) {
	var text []byte
	switch p.output {
	case "", "wide":
		return false, nil
	case "json":
		text, err = json.MarshalIndent(value, "", "  ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(value)
	default:
		err = fmt.Errorf("--output=%q: choose json or yaml", p.output)
	}
	if err == nil {
		_, err = p.Out.Write(text)
	}
	return true, err
}

// table prints lines and columns. On a terminal no row is longer than it is wide.
type table struct {
	to    io.Writer
	width int // zero: there is no bound
	rows  strings.Builder
	err   error
}

// table is for the output of a command.
func (p *plugin) table() *table {
	t := &table{to: p.Out}
	if f, ok := p.Out.(*os.File); ok && p.output != "wide" {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			t.width = width
		}
	}
	return t
}

// line prints a line, however long it is, below the rows so far.
func (t *table) line(format string, args ...any) {
	if t.rows.Len() > 0 {
		t.end()
	}
	if t.err == nil {
		_, t.err = fmt.Fprintln(t.to, strings.TrimRight(report.Printable(fmt.Sprintf(format, args...)), " "))
	}
}

// row adds a row. The rows are printed by end.
func (t *table) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = strings.Join(strings.Fields(cell), " ") // a message may have any of them
	}
	t.rows.WriteString(strings.Join(cells, "\t") + "\n")
}

// end prints the rows, each column as wide as its widest cell.
func (t *table) end() {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = io.WriteString(w, t.rows.String()) // into memory
	_ = w.Flush()
	t.rows.Reset()
	for line := range strings.Lines(text.String()) {
		line = strings.TrimRight(line, "\n")
		if t.width > 0 && utf8.RuneCountInString(line) > t.width {
			line = string([]rune(line)[:t.width-1]) + "…"
		}
		t.line("%s", line)
	}
}
