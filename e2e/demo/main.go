// Command demo shows Leasecast at work on real control planes. It needs the programs that `make k8s
// build` builds; use it through make.
//
//	go run ./e2e/demo         a fleet elects leaders, loses one and hands over; writes out/demo.json and out/report.html
//	go run ./e2e/demo up      starts the same fleet and leaves it running; kubeconfigs in out/
//	go run ./e2e/demo down    stops that fleet
//
// It exits with 1 if two clusters ever acted at once, or if a change of leader does not come.
package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

// outDir is the folder of everything that the demo leaves behind, below the current one.
const outDir = "out"

func main() {
	harness.Quiet()
	must.Run("demo", func(ctx context.Context) {
		commands := map[string]func(context.Context){"": demo, "up": up, "down": down, serveArg: serve}
		command := commands[strings.Join(os.Args[1:], " ")]
		if command == nil {
			must.Fail("unknown arguments %q: want none, up or down", os.Args[1:])
		}
		command(ctx)
	})
}

var (
	// leaders are the members. They must act in this order, in every namespace.
	leaders = []string{"east", "west", "south"}
	// namespaces are the managed ones.
	namespaces = []string{"ledger", "shop"}
)

// cast is the fleet of the demo.
func cast(folder string, actEvery time.Duration, progress func(string)) harness.Options {
	o := harness.Options{Timings: harness.Fast, ActEvery: actEvery, Dir: filepath.Join(outDir, folder), Progress: progress}
	for i, name := range leaders {
		o.Members = append(o.Members, harness.Member{Name: name, Priority: []int{100, 50, 10}[i], Namespaces: namespaces})
	}
	return o
}
