// Command kind runs the hub and its members on kind, installed as users install them, and breaks them. Use it through
// make; see kind-configs/README.md.
//
//	go run ./e2e/kind up                  clusters, hub, guestbooks; reuses what runs
//	go run ./e2e/kind -rounds 20 drill    breaks them; writes out/kind-drill.json
//	go run ./e2e/kind down                deletes the clusters that up has made
//	go run ./e2e/kind stock               succeeds if kind's own node image can be used on this machine
//	go run ./e2e/kind ready               succeeds if up can make all clusters anew; else one line tells why not
//
// The drill exits with 1 if two clusters ever acted at once, or if something does not come back.
package main

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"

	"github.com/leasecast/leasecast/e2e/harness"
)

func main() {
	rounds := flag.Int("rounds", len(faults), "how many faults the drill makes, one after the other")
	flag.Parse()
	harness.Quiet()
	harness.Run("kind", func(ctx context.Context) error { return run(ctx, *rounds, flag.Args()) })
}

func run(ctx context.Context, rounds int, args []string) error {
	if len(args) != 1 || rounds < 1 {
		return fmt.Errorf("want one of up, drill, down, stock, ready, and at least one round; got %q, %d", args, rounds)
	}
	p, err := newPlace()
	if err != nil {
		return err
	}
	switch args[0] {
	case "up":
		return up(ctx, p)
	case "drill":
		return drill(ctx, p, rounds)
	case "down":
		return down(ctx, p)
	case "stock":
		return stock(ctx, p)
	case "ready":
		return ready(ctx, p)
	default:
		return fmt.Errorf("unknown argument %q: want up, drill, down, stock or ready", args[0])
	}
}

// outDir is where everything goes that is left behind, below the current folder.
const outDir = "out"

func resultFile() string { return filepath.Join(outDir, "kind-drill.json") }
