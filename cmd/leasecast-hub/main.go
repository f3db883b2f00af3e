// Command leasecast-hub runs the hub on a Cluster API management cluster.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/leasecast/leasecast/hub"
)

func main() {
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "leasecast-hub:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var o hub.Options
	var fleets string
	var verbose int
	flag.StringVar(&o.Namespace, "namespace", os.Getenv("POD_NAMESPACE"), "namespace that the hub runs in and holds its election in; default: $POD_NAMESPACE")
	flag.StringVar(&fleets, "fleet-namespaces", "", "comma-separated namespaces whose Clusters are served; empty: all, which takes the right to read every Secret")
	flag.StringVar(&o.MetricsAddress, "metrics-address", ":8080", "host:port of the metrics; 0 turns them off")
	flag.StringVar(&o.ProbeAddress, "probe-address", ":8081", "host:port of /healthz and /readyz; 0 turns them off")
	flag.IntVar(&verbose, "v", 0, "verbosity of the log; 0 tells of changes only")
	flag.Parse() // --kubeconfig is registered by controller-runtime
	if fleets != "" {
		o.FleetNamespaces = strings.Split(fleets, ",")
	}

	zapConfig := zap.NewProductionConfig()
	zapConfig.Level = zap.NewAtomicLevelAt(zapcore.Level(-verbose))
	zapConfig.Sampling = nil
	zapConfig.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	zl, err := zapConfig.Build()
	if err != nil {
		return err
	}
	defer func() { _ = zl.Sync() }()
	logger := zapr.NewLogger(zl)
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)

	cfg, err := config.GetConfig()
	if err != nil {
		return fmt.Errorf("no kubeconfig: pass --kubeconfig, or run in a cluster: %w", err)
	}
	cfg.QPS = -1 // API priority and fairness limits the hub, not its own client
	mgr, err := hub.NewManager(ctx, cfg, o)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}
