// Command guestbook runs the sample controller in one member cluster: it prints guestbooks, in the cluster that leads
// their namespace and in no other.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/leasecast/leasecast/e2e/guestbook/acts"
	webappv1 "github.com/leasecast/leasecast/e2e/guestbook/api"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/gate"
)

// workers is how many guestbooks are worked on at once: a write that hangs in one namespace does not keep the others
// waiting.
const workers = 4

// The flag -kubeconfig comes with controller-runtime.
var (
	cluster    = flag.String("cluster", "", "name of this cluster in the act log")
	namespaces = flag.String("namespaces", "", "comma-separated namespaces to work in")
	actLog     = flag.String("acts", "", "file to append the act log to, a JSON line before and after each act, "+
		"or, with a slash at its end, a folder for a new one")
	actEvery = flag.Duration("act-every", 0, "time between two prints of one guestbook; 0 prints on change only")
	maxSkew  = flag.Duration("max-clock-skew", time.Second, "the policy's maxClockSkewMilliseconds")
	register = flag.String("register", "",
		"namespace to register in as a reader that reports when it has stopped; default: does not register")
	elect      = flag.Bool("leader-elect", false, "elect one of several replicas in this cluster")
	electIn    = flag.String("leader-election-namespace", "default", "namespace of the Lease of that election")
	healthAddr = flag.String("health-probe-bind-address", "0", "address of /healthz and /readyz; 0 is off")
)

func main() {
	var log zap.Options
	log.BindFlags(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&log)))
	if err := must.Try(func() { run(ctrl.SetupSignalHandler()) }); err != nil {
		ctrl.Log.Error(err, "Stopped")
		os.Exit(1)
	}
}

func run(ctx context.Context) {
	cfg := must.Get(ctrl.GetConfig())
	file := openLog()
	defer func() { _ = file.Close() }()
	log := acts.NewLog(*cluster, file)
	cfg.Wrap(member.CapWrites)
	cfg.Wrap(log.Writes)
	scheme, cached := runtime.NewScheme(), map[string]cache.Config{}
	must.Do(webappv1.AddToScheme(scheme))
	in := strings.Split(*namespaces, ",")
	for _, ns := range in {
		cached[ns] = cache.Config{}
	}
	mgr := must.Get(ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                        scheme,
		Cache:                         cache.Options{DefaultNamespaces: cached},
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:        *healthAddr,
		LeaderElection:                *elect,
		LeaderElectionID:              "guestbook",
		LeaderElectionNamespace:       *electIn,
		LeaderElectionReleaseOnCancel: true,
	}))
	o := member.Options{Namespaces: in, MaxClockSkew: *maxSkew, Logger: ctrl.Log.WithName("member")}
	if *register != "" {
		o.Registration = &member.Registration{Namespace: *register, Client: mgr.GetHTTPClient()}
	}
	m := must.Get(member.New(cfg, o))
	must.Do(errors.Join(
		mgr.Add(m),
		mgr.AddHealthzCheck("ping", healthz.Ping), // a silent API server is no reason to restart this process
		mgr.AddReadyzCheck("leases", m.Healthz),
		// That the builder is package gate's is all that makes the controller act in the leader cluster only, and there
		// on everything that it skipped before.
		gate.ControllerManagedBy(mgr, m).For(&webappv1.Guestbook{}).
			WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
			Complete(&reconciler{mgr.GetClient(), log})))
	must.Do(mgr.Start(ctx))
}

// openLog opens the act log. In a folder it is a new file.
func openLog() *os.File {
	must.FailIf(*cluster == "", "-acts needs -cluster, the name of this cluster in the log")
	if strings.HasSuffix(*actLog, "/") {
		return must.Get(acts.Create(*actLog))
	}
	return must.Get(os.OpenFile(*actLog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644))
}

// reconciler prints each Guestbook's book and notes in its status what it printed.
type reconciler struct {
	client.Client
	log *acts.Log
}

// Reconcile is the controller's own logic. It knows nothing of clusters, except that it notes the term in which it
// printed.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	g := &webappv1.Guestbook{}
	if err := r.Get(ctx, req.NamespacedName, g); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.log.Do(ctx, "print", g.Namespace, g.Name, func() error { return printBook(ctx, g) }); err != nil {
		return ctrl.Result{}, err
	}
	was := g.DeepCopy()
	g.Status.Book = g.Spec.Book
	g.Status.Epoch, _ = member.EpochFrom(ctx)
	if g.Status != was.Status {
		if err := r.Status().Patch(ctx, g, client.MergeFrom(was)); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	return ctrl.Result{RequeueAfter: *actEvery}, nil
}

// printBook is what this controller does to the world.
func printBook(ctx context.Context, g *webappv1.Guestbook) error {
	if err := member.Check(ctx); err != nil {
		return err
	}
	_, err := fmt.Printf("%s/%s: %s\n", g.Namespace, g.Name, g.Spec.Book)
	return err
}
