// Command controllerruntime is a manager of controller-runtime, which elects itself with a Lease of its cluster and
// works while it is elected. It knows nothing of our Leases.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"strconv"
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
	timeout := flag.Duration("timeout", 0, "of the program's clients; 0: none")
	release := flag.Bool("release", false, "release the lock that was lost")
	record := flag.String("record", "", "the file that gets a line for each act")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	mgr, err := ctrl.NewManager(&rest.Config{Host: *server, Timeout: *timeout}, ctrl.Options{
		LeaderElection: true, LeaderElectionNamespace: *namespace, LeaderElectionID: *name,
		LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry, LeaderElectionReleaseOnCancel: *release,
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return work(ctx, *record) })); err != nil {
		log.Fatal(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}

// work acts all the time. Each act is a line with the process and the time in nanoseconds.
func work(ctx context.Context, record string) error {
	file, err := os.OpenFile(record, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	for every := time.NewTicker(50 * time.Millisecond); ctx.Err() == nil; <-every.C {
		line := `{"process":` + strconv.Itoa(os.Getpid()) + `,"at":` + strconv.FormatInt(time.Now().UnixNano(), 10) + "}\n"
		if _, err := file.WriteString(line); err != nil {
			return err
		}
	}
	return nil
}
