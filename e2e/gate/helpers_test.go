// Package gate tests leasecast-gate, the drop-in lock and the rule for readers in other languages on a real API server.
// No hub runs: the tests write the Leases, so they know every deadline exactly.
package gate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

const (
	us       = "east.fleet"
	them     = "west.fleet"
	patience = 30 * time.Second // for what takes milliseconds on an idle machine
)

var (
	cluster *fleet.Server
	admin   client.Client
	program string // the built gate
	access  string // a kubeconfig of the cluster
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(zap.New())
	os.Exit(fleet.Main(m, nil, func(ctx context.Context, f *fleet.Fleet, dir string) (err error) {
		cluster, access = f.Hub(), filepath.Join(dir, "kubeconfig")
		if program, err = harness.Program(ctx, "leasecast-gate", "cmd/leasecast-gate"); err != nil {
			return err
		}
		cfg := cluster.AdminConfig()
		cfg.Timeout = patience
		admin, err = client.New(cfg, client.Options{})
		return errors.Join(err, fleet.WriteKubeconfig(access, "east", cluster.AdminConfig()))
	}))
}

// write writes the Lease in this cluster as the hub does, and returns its deadline.
func write(t *testing.T, ns, holder string, epoch int64, d time.Duration) (deadline time.Time) {
	return writeIn(t, us, ns, holder, epoch, d)
}

// writeIn is write for a namespace that plays another cluster.
func writeIn(t *testing.T, cluster, ns, holder string, epoch int64, d time.Duration) (deadline time.Time) {
	return harness.PutLease(t, admin, ns, cluster, holder, epoch, d).Wall.Add(d)
}

// await fails the test if the condition does not come about.
func await(t *testing.T, what string, condition func(context.Context) error) {
	musttest.Eventually(t, patience, what, condition)
}

type condition = func(context.Context) error

// renewing returns a condition that holds when another does, and renews the Lease until then. On a busy machine the
// other condition may take longer than one term.
func renewing(t *testing.T, ns string, epoch int64, d time.Duration, holds condition) condition {
	return renewingIn(t, us, ns, us, epoch, d, holds)
}

// renewingIn is renewing for a namespace that plays another cluster, and for any holder.
func renewingIn(t *testing.T, cluster, ns, holder string, epoch int64, d time.Duration, holds condition) condition {
	var deadline time.Time
	return func(ctx context.Context) error {
		if time.Until(deadline) < d*2/3 {
			deadline = writeIn(t, cluster, ns, holder, epoch, d)
		}
		return holds(ctx)
	}
}

// acts are the times in a file, in nanoseconds since 1970.
func acts(t *testing.T, file string) (at []time.Time) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for field := range strings.FieldsSeq(string(text)) {
		ns := musttest.Get(strconv.ParseInt(field, 10, 64))(t)
		at = append(at, time.Unix(0, ns))
	}
	return at
}

// actedAfter is a condition.
func actedAfter(t *testing.T, file string, instant time.Time) func(context.Context) error {
	return func(context.Context) error {
		all := acts(t, file)
		return must.ErrorIf(len(all) == 0 || all[len(all)-1].Before(instant),
			"%d acts, none of them since %v", len(all), instant)
	}
}
