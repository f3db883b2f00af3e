// Command demo leaves the fleet of the demo running, on real control planes. It needs what `make k8s build` builds;
// use it through make. The demo itself is a scenario of e2e/drill.
//
//	go run ./e2e/demo up      starts the fleet and leaves it running; kubeconfigs in out/
//	go run ./e2e/demo down    stops it
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
		commands := map[string]func(context.Context){"up": up, "down": down, serveArg: serve}
		command := commands[strings.Join(os.Args[1:], " ")]
		if command == nil {
			must.Fail("unknown arguments %q: want up or down", os.Args[1:])
		}
		command(ctx)
	})
}

// namespaces are the managed ones.
var namespaces = []string{"ledger", "shop"}

// cast is the fleet.
func cast(progress func(string)) harness.Options {
	o := harness.Options{Timings: harness.Fast, ActEvery: 5 * time.Second, Dir: filepath.Join(outDir, "up"),
		Progress: progress}
	for i, name := range []string{"east", "west", "south"} {
		o.Members = append(o.Members, harness.Member{Name: name, Priority: []int{100, 50, 10}[i], Namespaces: namespaces})
	}
	return o
}
