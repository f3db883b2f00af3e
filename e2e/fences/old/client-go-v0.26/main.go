// Command client-go-v0.26 elects itself with a Lease of its cluster, as the example of client-go does, and works while
// it is elected. It knows nothing of our Leases.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func main() {
	server := flag.String("server", "", "the address of the API server")
	namespace, name := flag.String("namespace", "", "the namespace of the lock"),
		flag.String("name", "", "the name of the lock")
	lease, renew, retry := flag.Duration("lease", 0, "the lease duration"),
		flag.Duration("renew", 0, "the renew deadline"), flag.Duration("retry", 0, "the retry period")
	timeout := flag.Duration("timeout", 0, "of the elector's client; 0: none")
	release := flag.Bool("release", false, "release the lock that was lost")
	record := flag.String("record", "", "the file that gets a line for each act")
	flag.Parse()
	client, err := coordinationv1.NewForConfig(&rest.Config{Host: *server, Timeout: *timeout})
	if err != nil {
		log.Fatal(err)
	}
	leaderelection.RunOrDie(context.Background(), leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: *namespace, Name: *name}, Client: client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: strconv.Itoa(os.Getpid())},
		},
		LeaseDuration: *lease, RenewDeadline: *renew, RetryPeriod: *retry, ReleaseOnCancel: *release,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { work(ctx, *record) },
			OnStoppedLeading: func() { os.Exit(0) },
		},
	})
}

// work acts all the time. Each act is a line with the process and the time in nanoseconds.
func work(ctx context.Context, record string) {
	file, err := os.OpenFile(record, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		log.Fatal(err)
	}
	for every := time.NewTicker(50 * time.Millisecond); ctx.Err() == nil; <-every.C {
		line := `{"process":` + strconv.Itoa(os.Getpid()) + `,"at":` + strconv.FormatInt(time.Now().UnixNano(), 10) + "}\n"
		if _, err := file.WriteString(line); err != nil {
			log.Fatal(err)
		}
	}
}
