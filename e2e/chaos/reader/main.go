// Command reader is a program in a member cluster that may act where its cluster leads, by the rule of package member.
// It asks all the time, and logs each answer that lets it act.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr/funcr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/leasecast/leasecast/api/lease/clock"
	"github.com/leasecast/leasecast/e2e/chaos/permit"
	"github.com/leasecast/leasecast/e2e/lines"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/member"
)

// every is the time between two questions about a namespace.
const every = 50 * time.Millisecond

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the cluster that this reader lives in")
	namespaces := flag.String("namespaces", "", "comma-separated namespaces to act in")
	file := flag.String("permits", "", "file to append the answers to")
	skew := flag.Duration("max-clock-skew", time.Second, "the policy's maxClockSkewMilliseconds")
	flag.Parse()
	must.Run("reader", func(ctx context.Context) {
		run(ctx, *kubeconfig, *file, strings.Split(*namespaces, ","), *skew)
	})
}

func run(ctx context.Context, kubeconfig, path string, namespaces []string, skew time.Duration) {
	cfg := must.Get(clientcmd.BuildConfigFromFlags("", kubeconfig))
	file := must.Get(os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644))
	log := funcr.New(func(_, line string) {
		fmt.Println(time.Now().UTC().Format(time.RFC3339Nano), line)
	}, funcr.Options{})
	r := &reader{
		member:  must.Get(member.New(cfg, member.Options{Namespaces: namespaces, MaxClockSkew: skew, Logger: log})),
		permits: lines.NewWriter(file),
	}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return r.member.Start(ctx) })
	for _, namespace := range namespaces {
		all.Go(func() error { return r.askAgainAndAgain(ctx, namespace) })
	}
	must.Do(errors.Join(all.Wait(), file.Close()))
}

// reader is the process.
type reader struct {
	member  *member.Member
	permits *lines.Writer
	clock   clock.System
}

// askAgainAndAgain returns when ctx ends, or when an answer cannot be logged.
func (r *reader) askAgainAndAgain(ctx context.Context, namespace string) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		if err := r.ask(namespace); err != nil {
			return err
		}
	}
}

func (r *reader) ask(namespace string) error {
	asked := r.clock.Now().Boot
	term, ok := r.member.Term(namespace)
	left := term.Remaining()
	answered := r.clock.Now().Boot
	if !ok || left <= 0 {
		return nil
	}
	return r.permits.Write(permit.Line{
		Namespace: namespace, Epoch: term.Epoch(), Asked: asked, Answered: answered, Left: left,
	})
}
