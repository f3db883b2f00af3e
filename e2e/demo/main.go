// Command demo shows Leasecast at work on real control planes. It needs the programs that `make k8s
// build` builds; use it through make.
//
//	go run ./e2e/demo         a fleet elects leaders, loses one and hands over; writes out/demo.json
//	go run ./e2e/demo up      starts the same fleet and leaves it running; kubeconfigs in out/
//	go run ./e2e/demo down    stops that fleet
//
// It exits with 1 if two clusters ever acted at once, or if a change of leader does not come.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
)

// outDir is where everything goes that the demo leaves behind, below the current folder.
const outDir = "out"

func main() {
	harness.Quiet()
	harness.Run("demo", func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 0:
		return demo(ctx)
	case len(args) == 1 && args[0] == "up":
		return up(ctx)
	case len(args) == 1 && args[0] == "down":
		return down(ctx)
	case len(args) == 1 && args[0] == serveArg:
		return serve(ctx)
	default:
		return fmt.Errorf("unknown arguments %q: want none, up or down", args)
	}
}

// cast is the fleet of the demo.
func cast(folder string, actEvery time.Duration, progress func(string)) harness.Options {
	o := harness.Options{
		Timings:  harness.Fast,
		ActEvery: actEvery,
		Dir:      filepath.Join(outDir, folder),
		Progress: progress,
	}
	for i, name := range wantLeaders {
		o.Members = append(o.Members, harness.Member{Name: name, Priority: []int{100, 50, 10}[i], Namespaces: namespaces})
	}
	return o
}

// namespaces are the managed ones.
var namespaces = []string{"ledger", "shop"}

// demo plays all scenes, and judges what came of them, also after a failure.
func demo(ctx context.Context) (err error) {
	if err := os.RemoveAll(resultFile()); err != nil {
		return fmt.Errorf("remove the last result: %w", err)
	}
	n := newNarrator()
	n.say("A hub and three members, each a real etcd, kube-apiserver and controller manager.")
	d, err := harness.Start(ctx, cast("demo", 100*time.Millisecond, n.step))
	if err != nil {
		return err
	}
	defer func() {
		n.step("cleaning up")
		err = errors.Join(err, d.Stop())
	}()
	v, err := d.Look(ctx)
	if err != nil {
		return err
	}
	defer v.Close()
	p := &play{narrator: n, d: d, View: v}
	played := p.play(ctx)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return errors.Join(played, p.judge())
}

func resultFile() string { return filepath.Join(outDir, "demo.json") }

// narrator prints what happens while it happens.
type narrator struct {
	zero  time.Duration   // boot reading of the demo's start
	marks []time.Duration // when the demo did something
}

func newNarrator() *narrator { return &narrator{zero: harness.Now().Boot} }

// say begins a scene.
func (n *narrator) say(text string) { fmt.Print("\n" + text + "\n") }

// step reports progress within a scene.
func (n *narrator) step(text string) {
	fmt.Printf("  %6.1f s  %s\n", (harness.Now().Boot - n.zero).Seconds(), text)
}

// do announces something that the demo did at an instant.
func (n *narrator) do(at time.Duration, text string) {
	n.marks = append(n.marks, at)
	fmt.Printf("  %6.1f s  ▶ %s\n", (at - n.zero).Seconds(), text)
}
