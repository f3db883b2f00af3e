package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/lines"
	"github.com/leasecast/leasecast/e2e/process"
	"github.com/leasecast/leasecast/member"
)

// What this program is when it starts itself as a process of its own.
const (
	candidateArg = "as-candidate" // one cluster's candidate for every namespace, by client-go's elector
	readerArg    = "as-reader"    // one cluster's reader of every namespace, by our library
)

// The peer's timings: those that every component of Kubernetes has by default.
const (
	peerDuration = 15 * time.Second
	peerDeadline = 10 * time.Second
	peerRetry    = 2 * time.Second
)

// child is the command line of a child process.
type child struct {
	kubeconfig, identity, lease, namespaces, changes string
}

func (c child) args(mode string) []string {
	return []string{
		mode, "-kubeconfig=" + c.kubeconfig, "-identity=" + c.identity, "-lease=" + c.lease,
		"-namespaces=" + c.namespaces, "-changes=" + c.changes,
	}
}

func parseChild(args []string) (child, error) {
	var c child
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "file that leads to the API server")
	flags.StringVar(&c.identity, "identity", "", "name of the candidate")
	flags.StringVar(&c.lease, "lease", "", "name of the Leases")
	flags.StringVar(&c.namespaces, "namespaces", "", "comma-separated namespaces of the Leases")
	flags.StringVar(&c.changes, "changes", "", "file to write the changes to")
	return c, flags.Parse(args[1:])
}

// runChild is this program as a candidate or a reader. It returns when ctx ends.
func runChild(ctx context.Context, args []string) (err error) {
	c, err := parseChild(args)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1            // a kubeconfig cannot say it; the peer must not wait for itself
	config.UserAgent = args[0] // not that of the benchmark, whose requests do not count
	out, err := os.OpenFile(c.changes, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := &changeWriter{out: lines.NewWriter(out)}
	defer func() { err = errors.Join(err, w.failure()) }()
	if args[0] == readerArg {
		return read(ctx, config, w)
	}
	return elect(ctx, config, c, w)
}

// read follows the Leases of one member by one watch, and writes when this cluster may act.
func read(ctx context.Context, config *rest.Config, w *changeWriter) error {
	m, err := member.New(config, member.Options{MaxClockSkew: harness.Default.Skew})
	if err != nil {
		return err
	}
	m.Listen(member.Listener{
		Promoted: func(namespace string, _ member.Term) { w.tell(namespace, true) },
		Demoted:  func(namespace string, _ error) { w.tell(namespace, false) },
	})
	return m.Start(ctx)
}

// elect is a candidate in every namespace. The electors begin at random within a retry period, like those of
// programs that have nothing to do with each other.
func elect(ctx context.Context, config *rest.Config, c child, w *changeWriter) error {
	config.Timeout = peerDeadline / 2 // as controller-runtime has it
	client, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return err
	}
	namespaces := strings.Split(c.namespaces, ",")
	failed := make([]error, len(namespaces))
	var all sync.WaitGroup
	for i, namespace := range namespaces {
		lock := &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: c.lease},
			Client:     client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: c.identity},
		}
		all.Go(func() {
			if process.Pass(ctx, rand.N(peerRetry)) == nil {
				failed[i] = campaign(ctx, lock, namespace, w)
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// campaign takes part in the election until ctx ends. A candidate that loses leadership takes part again.
func campaign(ctx context.Context, lock resourcelock.Interface, namespace string, w *changeWriter) error {
	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, Name: namespace,
			LeaseDuration: peerDuration, RenewDeadline: peerDeadline, RetryPeriod: peerRetry,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { w.tell(namespace, true) },
				OnStoppedLeading: func() { w.tell(namespace, false) },
				OnNewLeader: func(identity string) {
					if identity != lock.Identity() {
						w.tell(namespace, false)
					}
				},
			},
		})
		if err != nil {
			return fmt.Errorf("elector of %s: %w", namespace, err)
		}
		elector.Run(ctx)
	}
	return nil
}
