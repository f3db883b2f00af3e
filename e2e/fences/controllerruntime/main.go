// Command controllerruntime is a manager of controller-runtime, which elects itself with a Lease of its cluster and
// works while it is elected. It does not read our Leases.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	server := flag.String("server", "", "the address of the API server")
	namespace, name := flag.String("namespace", "", "the namespace of the lock"),
		flag.String("name", "", "the name of the lock")
	lease, renew, retry := flag.Duration("lease", 0, "the lease duration"),
		flag.Duration("renew", 0, "the renew deadline"), flag.Duration("retry", 0, "the retry period")
	release := flag.Bool("release", false, "release the lock that was lost")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	mgr, err := ctrl.NewManager(&rest.Config{Host: *server}, ctrl.Options{
		Metrics:        metricsserver.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionNamespace: *namespace, LeaderElectionID: *name,
		LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry, LeaderElectionReleaseOnCancel: *release,
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := mgr.Add(manager.RunnableFunc(work)); err != nil {
		log.Fatal(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}

// work acts all the time. Each act is a line of JSON with the time in milliseconds.
func work(ctx context.Context) error {
	for every := time.NewTicker(50 * time.Millisecond); ctx.Err() == nil; <-every.C {
		fmt.Printf("{\"ts\":%f,\"msg\":\"act\"}\n", float64(time.Now().UnixMicro())/1000)
	}
	return nil
}
