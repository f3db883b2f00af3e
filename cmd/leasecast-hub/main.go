// Command leasecast-hub runs the hub on a Cluster API management cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	stdlog "log"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/leasecast/leasecast/hub"
)

// version is stamped by the linker (see Makefile).
var version = "devel"

func main() {
	began, ctx := time.Now(), ctrl.SetupSignalHandler()
	err := run(ctx)
	if hub.LostElection(err) && ctx.Err() == nil {
		ctrl.Log.Info("The election is lost: the hub begins again")
		err = errors.Join(err, beginAgain(time.Since(began)))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "leasecast-hub:", err)
		os.Exit(1)
	}
}

// maxVerbosity is as much as any message of the hub asks for. From 8 on client-go logs bodies, and so Secrets.
const maxVerbosity = 5

// namespaces returns names that are separated by commas. Empty text means all namespaces; other text names at least
// one.
func namespaces(list string) ([]string, error) {
	names := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
	if list != "" && len(names) == 0 {
		return nil, fmt.Errorf("--namespace=%q names no namespace: give names, or leave it out for all", list)
	}
	return names, nil
}

func run(ctx context.Context) error {
	// net/http logs here what a member sends unasked. That may repeat the hub's own token, or fill the disk.
	stdlog.SetOutput(io.Discard)
	o := hub.Options{Metrics: metrics.Registry, Version: version}
	var fleets string
	var verbose int
	var showVersion bool
	flag.StringVar(&o.Namespace, "hub-namespace", os.Getenv("POD_NAMESPACE"),
		"namespace that the hub runs in and holds its election in; default: $POD_NAMESPACE")
	flag.StringVar(&fleets, "namespace", "",
		"comma-separated namespaces whose Clusters are served; empty: all in which the hub may use Secrets")
	flag.StringVar(&o.MetricsAddress, "metrics-address", ":8443", "host:port of the metrics, by HTTPS; 0 turns them off")
	flag.StringVar(&o.MetricsCertDir, "metrics-cert-dir", "",
		"folder with tls.crt and tls.key for the metrics; empty: the hub signs its certificates itself")
	flag.StringVar(&o.ProbeAddress, "probe-address", ":8081", "host:port of /healthz and /readyz; 0 turns them off")
	flag.BoolVar(&o.LocalAddresses, "allow-local-addresses", false,
		"let kubeconfigs name loopback and link-local addresses; for fleets on one machine")
	flag.BoolVar(&showVersion, "version", false, "print the version and end")
	flag.IntVar(&verbose, "v", 0, "verbosity of the log, up to 5; 0 logs changes only")
	flag.Parse() // controller-runtime registers --kubeconfig
	if flag.NArg() > 0 {
		return fmt.Errorf("%q is no flag, and the flags after it would not count", flag.Arg(0))
	}
	if showVersion {
		fmt.Println("leasecast-hub", version, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH)
		return nil
	}
	var err error
	if o.FleetNamespaces, err = namespaces(fleets); err != nil {
		return err
	}

	zapConfig := zap.NewProductionConfig()
	zapConfig.Level = zap.NewAtomicLevelAt(zapcore.Level(-min(max(verbose, 0), maxVerbosity)))
	o.Verbosity, zapConfig.Sampling = zapConfig.Level.ServeHTTP, nil
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
	if ctx.Err() != nil {
		return nil // stopped while it waited for the API server
	}
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}
