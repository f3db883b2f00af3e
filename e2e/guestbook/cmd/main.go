// Command guestbook runs the sample controller in one member cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/leasecast/leasecast/e2e/guestbook/acts"
	webappv1 "github.com/leasecast/leasecast/e2e/guestbook/api"
	"github.com/leasecast/leasecast/e2e/guestbook/controller"
	"github.com/leasecast/leasecast/member"
)

type flags struct {
	cluster     string
	namespaces  string
	acts        string
	actEvery    time.Duration
	maxSkew     time.Duration
	register    string
	elect       bool
	electIn     string
	metricsAddr string
	healthAddr  string
	log         zap.Options
}

// parse adds to the flag -kubeconfig, which controller-runtime brings along.
func parse() flags {
	var f flags
	flag.StringVar(&f.cluster, "cluster", "", "name of this cluster in the act log")
	flag.StringVar(&f.namespaces, "namespaces", "", "comma-separated namespaces to work in; default: all")
	flag.StringVar(&f.acts, "acts", "",
		"file to append the act log to, a JSON line before and after each act, "+
			"or, with a slash at its end, a folder for a new one; default: none")
	flag.DurationVar(&f.actEvery, "act-every", 0, "time between two prints of one guestbook; 0 prints on change only")
	flag.DurationVar(&f.maxSkew, "max-clock-skew", time.Second, "the policy's maxClockSkewMilliseconds")
	flag.StringVar(&f.register, "register", "",
		"namespace to register in as a reader that reports when it has stopped; default: does not register")
	flag.BoolVar(&f.elect, "leader-elect", false, "elect one of several replicas in this cluster")
	flag.StringVar(&f.electIn, "leader-election-namespace", "default", "namespace of the Lease of that election")
	flag.StringVar(&f.metricsAddr, "metrics-bind-address", "0", "address of /metrics; 0 is off")
	flag.StringVar(&f.healthAddr, "health-probe-bind-address", "0", "address of /healthz and /readyz; 0 is off")
	f.log.BindFlags(flag.CommandLine)
	flag.Parse()
	return f
}

func main() {
	f := parse()
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&f.log)))
	if err := run(ctrl.SetupSignalHandler(), f); err != nil {
		ctrl.Log.Error(err, "Stopped")
		os.Exit(1)
	}
}

func run(ctx context.Context, f flags) (err error) {
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	log, closeLog, err := openLog(f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	cfg.Wrap(member.CapWrites)
	cfg.Wrap(log.Writes)

	mgr, err := manager(cfg, f)
	if err != nil {
		return err
	}
	m, err := member.New(cfg, member.Options{
		Namespaces:   split(f.namespaces),
		MaxClockSkew: f.maxSkew,
		Registration: registration(mgr, f),
		Logger:       ctrl.Log.WithName("member"),
	})
	if err != nil {
		return err
	}
	r := &controller.Reconciler{
		Client: mgr.GetClient(),
		Every:  f.actEvery,
		Print: func(ctx context.Context, g *webappv1.Guestbook) error {
			return log.Do(ctx, "print", g.Namespace, g.Name, func() error { return printBook(ctx, g) })
		},
	}
	if err := errors.Join(
		mgr.Add(m),
		mgr.AddHealthzCheck("ping", healthz.Ping), // a silent API server is no reason to restart this process
		mgr.AddReadyzCheck("leases", m.Healthz),
		r.SetupWithManager(mgr, m),
	); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// printBook is what this controller does to the world.
func printBook(ctx context.Context, g *webappv1.Guestbook) error {
	if err := member.Check(ctx); err != nil {
		return err
	}
	_, err := fmt.Printf("%s/%s: %s\n", g.Namespace, g.Name, g.Spec.Book)
	return err
}

func manager(cfg *rest.Config, f flags) (ctrl.Manager, error) {
	s := runtime.NewScheme()
	if err := webappv1.AddToScheme(s); err != nil {
		return nil, err
	}
	namespaces := map[string]cache.Config{}
	for _, ns := range split(f.namespaces) {
		namespaces[ns] = cache.Config{}
	}
	return ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                        s,
		Cache:                         cache.Options{DefaultNamespaces: namespaces},
		Metrics:                       metricsserver.Options{BindAddress: f.metricsAddr},
		HealthProbeBindAddress:        f.healthAddr,
		LeaderElection:                f.elect,
		LeaderElectionID:              "guestbook",
		LeaderElectionNamespace:       f.electIn,
		LeaderElectionReleaseOnCancel: true,
	})
}

func registration(mgr ctrl.Manager, f flags) *member.Registration {
	if f.register == "" {
		return nil
	}
	return &member.Registration{Namespace: f.register, Client: mgr.GetHTTPClient()}
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

// openLog opens the act log; without a file it goes nowhere. In a folder it is a new file.
func openLog(f flags) (*acts.Log, func() error, error) {
	if f.acts == "" {
		return acts.NewLog(f.cluster, io.Discard), func() error { return nil }, nil
	}
	if f.cluster == "" {
		return nil, nil, errors.New("-acts needs -cluster, the name of this cluster in the log")
	}
	open := func() (*os.File, error) { return os.OpenFile(f.acts, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644) }
	if strings.HasSuffix(f.acts, "/") {
		open = func() (*os.File, error) { return acts.Create(f.acts) }
	}
	file, err := open()
	if err != nil {
		return nil, nil, fmt.Errorf("act log: %w", err)
	}
	return acts.NewLog(f.cluster, file), file.Close, nil
}
