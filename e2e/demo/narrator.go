package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
)

// narrator prints what happens while it happens, and keeps the headlines for the timeline.
type narrator struct {
	zero time.Duration // boot reading of the demo's start

	mu        sync.Mutex
	out       io.Writer
	headlines []headline
}

// headline is something that the demo did, at a boot reading.
type headline struct {
	at   time.Duration
	text string
}

func newNarrator(out io.Writer) *narrator { return &narrator{out: out, zero: harness.Now().Boot} }

// redirect sends what follows elsewhere.
func (n *narrator) redirect(out io.Writer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.out = out
}

// say begins a scene.
func (n *narrator) say(text string) { n.print("\n" + text + "\n") }

// step reports progress within a scene.
func (n *narrator) step(text string) {
	n.print(fmt.Sprintf("  %6.1f s  %s\n", n.since(harness.Now().Boot), text))
}

// do announces something that the demo does, and remembers when.
func (n *narrator) do(at time.Duration, text string) {
	n.mu.Lock()
	n.headlines = append(n.headlines, headline{at, text})
	n.mu.Unlock()
	n.print(fmt.Sprintf("  %6.1f s  ▶ %s\n", n.since(at), text))
}

// since is the time of the demo at a boot reading, in seconds.
func (n *narrator) since(at time.Duration) float64 { return (at - n.zero).Seconds() }

func (n *narrator) print(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, _ = io.WriteString(n.out, text) // what is printed is also in the files
}
