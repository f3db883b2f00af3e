// Command clientgo elects itself with a Lease of its cluster, as the example of client-go does, and works while it
// is elected. It does not read our Leases.
package main

import (
	"context"
	"flag"
	"fmt"
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
	release := flag.Bool("release", false, "release the lock that was lost")
	flag.Parse()
	client, err := coordinationv1.NewForConfig(&rest.Config{Host: *server})
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
			OnStartedLeading: work,
			OnStoppedLeading: func() { os.Exit(0) },
		},
	})
}

// work acts all the time. Each act is a line of JSON with the time in milliseconds.
func work(ctx context.Context) {
	for every := time.NewTicker(50 * time.Millisecond); ctx.Err() == nil; <-every.C {
		fmt.Printf("{\"ts\":%f,\"msg\":\"act\"}\n", float64(time.Now().UnixMicro())/1000)
	}
}
