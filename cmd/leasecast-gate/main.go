// Command leasecast-gate runs a program only where its cluster leads a namespace, and reports to scripts and sidecars
// who leads. Package member/command documents what is promised.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/command"
	"github.com/leasecast/leasecast/member/metrics"
)

// version is stamped by the linker (see Makefile).
var version = "devel"

// leastStopAhead leaves a program time between SIGTERM and SIGKILL, though the term is checked every 100 ms only.
const leastStopAhead = 500 * time.Millisecond

const usage = `leasecast-gate runs a program only where this cluster leads a namespace:
  leasecast-gate -namespace shop -- program arguments...    run it, and stop it in time
  leasecast-gate -namespace shop -listen 127.0.0.1:4040     run nothing, and serve /leader and /metrics
  leasecast-gate check -namespace shop                      exit code 0: leads, 1: does not, 2: cannot tell
`

func main() {
	args := os.Args[1:]
	if len(args) == 1 && args[0] == command.Watchdog {
		command.RunWatchdog()
	}
	code, err := run(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "leasecast-gate:", err)
	}
	os.Exit(code)
}

type flags struct {
	check      bool
	kubeconfig string
	namespace  string
	listen     string
	register   bool
	registerIn string
	stopAhead  time.Duration
	timeout    time.Duration
	command    []string
}

// run returns the exit code.
func run(args []string) (int, error) {
	f, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp) && f.check:
		return command.CannotTell, nil // 0 would mean that this cluster leads
	case errors.Is(err, flag.ErrHelp):
		return 0, nil
	case err != nil && f.check:
		return command.CannotTell, err
	case err != nil:
		return command.Failed, err
	case f.check:
		return check(f)
	}
	return gate(f)
}

func parse(args []string) (f flags, err error) {
	set := flag.NewFlagSet("leasecast-gate", flag.ContinueOnError)
	set.Usage = func() {
		_, _ = fmt.Fprintf(set.Output(), "%s\n%s %s/%s\n\n", usage, version, runtime.GOOS, runtime.GOARCH)
		set.PrintDefaults()
	}
	set.StringVar(&f.namespace, "namespace", "", "namespace that this cluster has to lead")
	set.StringVar(&f.kubeconfig, "kubeconfig", "",
		"kubeconfig of this cluster; empty: $KUBECONFIG, or the Pod's own account")
	if f.check = len(args) > 0 && args[0] == "check"; f.check {
		args = args[1:]
		set.DurationVar(&f.timeout, "timeout", 5*time.Second, "how long to wait for the API server")
	} else {
		set.StringVar(&f.listen, "listen", "", "host:port to serve /leader and /metrics on; empty: nowhere")
		set.BoolVar(&f.register, "register", true, "register the program, so that a planned change takes a moment")
		set.StringVar(&f.registerIn, "register-in", "", "namespace to register in; empty: the Pod's own")
		set.DurationVar(&f.stopAhead, "stop-ahead", 0,
			"how long before the deadline SIGTERM is sent, 500ms to a third of the term's duration; 0: a quarter of it; "+
				"unless -register=false the duration counts as 15s at most, so this is 5s at most")
	}
	if err := set.Parse(args); err != nil {
		return f, err
	}
	f.command = set.Args()
	switch {
	case f.namespace == "":
		err = errors.New("-namespace is empty: name the namespace that this cluster has to lead")
	case f.stopAhead != 0 && f.stopAhead < leastStopAhead:
		err = fmt.Errorf("-stop-ahead is %v: must be 0 or at least %v", f.stopAhead, leastStopAhead)
	case f.check && len(f.command) > 0:
		err = fmt.Errorf("check takes no program, and got %q", f.command)
	case !f.check && len(f.command) == 0 && f.listen == "":
		err = errors.New("there is nothing to do: name a program after --, or an address with -listen")
	}
	return f, err
}

// config is the configuration of the cluster that this program runs in.
func config(f flags) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("no kubeconfig: pass -kubeconfig, or run in a cluster: %w", err)
	}
	if cfg.ExecProvider != nil && len(f.command) > 0 { // the gate would reap the plugin's process
		return nil, fmt.Errorf("the kubeconfig gets its credentials from the program %s, beside which the gate runs no "+
			"other: use a kubeconfig with a token or a certificate", cfg.ExecProvider.Command)
	}
	return cfg, nil
}

// begin starts a Member. stop returns when the Member has stopped.
func begin(f flags, o member.Options) (m *member.Member, stop func(), err error) {
	cfg, err := config(f)
	if err != nil {
		return nil, nil, err
	}
	if o.Registration != nil {
		cfg.Wrap(member.CapWrites)
		if o.Registration.Client, err = rest.HTTPClientFor(cfg); err != nil {
			return nil, nil, err
		}
	}
	o.Namespaces = []string{f.namespace}
	if m, err = member.New(cfg, o); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	return m, func() {
		cancel()
		<-ended
	}, nil
}

func check(f flags) (int, error) {
	m, stop, err := begin(f, member.Options{Logger: zapr.NewLogger(zap.NewNop())}) // it prints its result
	if err != nil {
		return command.CannotTell, err
	}
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), f.timeout)
	defer cancel()
	code, text := command.Check(ctx, m, f.namespace)
	fmt.Println(text)
	return code, nil
}

func gate(f flags) (int, error) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals,
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	log, err := logger()
	if err != nil {
		return command.Failed, err
	}
	o := member.Options{Logger: log}
	if f.register && len(f.command) > 0 { // a sidecar that only asks does not report when it has stopped
		o.Registration = &member.Registration{Namespace: f.registerIn}
	}
	m, stop, err := begin(f, o)
	if err != nil {
		return command.Failed, err
	}
	defer stop()
	var failed <-chan error
	if f.listen != "" {
		listener, err := net.Listen("tcp", f.listen)
		if err != nil {
			return command.Failed, err
		}
		failed = serve(listener, handler(m, f.namespace), log)
	}
	if len(f.command) == 0 { // then parse has required -listen
		return wait(signals, failed)
	}
	return command.Run(context.Background(), m, command.Options{
		Namespace: f.namespace, Command: f.command, StopAhead: f.stopAhead, Signals: signals, Logger: log,
	})
}

// handler serves /leader, and the metrics of the namespace.
func handler(m *member.Member, namespace string) http.Handler {
	collector, registry, mux := metrics.New(), prometheus.NewRegistry(), http.NewServeMux()
	collector.Add(m)
	registry.MustRegister(collector)
	mux.Handle("GET /leader", command.Handler(m, namespace))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

// serve serves until the program ends. The channel gets the error that ended it before.
func serve(listener net.Listener, h http.Handler, log logr.Logger) <-chan error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 90 * time.Second}
	failed := make(chan error, 1)
	log.Info("Serves /leader", "address", listener.Addr().String())
	go func() {
		err := fmt.Errorf("/leader at %s is served no more: %w", listener.Addr(), server.Serve(listener))
		log.Error(err, "Nobody learns who leads any more: restart the gate")
		failed <- err
	}()
	return failed
}

// wait waits for the end of a gate that runs no program, and returns the exit code.
func wait(signals <-chan os.Signal, failed <-chan error) (int, error) {
	for {
		select {
		case sig := <-signals:
			if sig == syscall.SIGTERM || sig == syscall.SIGINT || sig == syscall.SIGQUIT {
				return 0, nil
			}
		case err := <-failed:
			return command.Failed, err
		}
	}
}

// logger writes to standard error, because standard output is the program's.
func logger() (logr.Logger, error) {
	c := zap.NewProductionConfig()
	c.Sampling = nil
	c.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	zl, err := c.Build()
	if err != nil {
		return logr.Logger{}, err
	}
	log := zapr.NewLogger(zl)
	klog.SetLogger(log)
	return log, nil
}
