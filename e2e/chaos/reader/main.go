// Command reader is a program in a member cluster that acts where its cluster leads: it writes to the register of the
// fault drills, by the rule of package member, and tells what it does.
//
// Between its question and its write lies some work, as in any real program. That is where a pause makes a
// write late, which only the fenced register refuses.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr/funcr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/leasecast/leasecast/api/lease/clock"
	"github.com/leasecast/leasecast/e2e/chaos/history"
	"github.com/leasecast/leasecast/e2e/chaos/register"
	"github.com/leasecast/leasecast/e2e/lines"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/member"
)

const (
	// requestTimeout bounds a call of the register.
	requestTimeout = 2 * time.Second
	// every is the time between two acts in a namespace, work the part of it between the question and the act.
	every, work = 50 * time.Millisecond, 10 * time.Millisecond
	// readEvery is how many rounds pass between two reads of the register, which need no right.
	readEvery = 10
)

func main() {
	r := &reader{}
	kubeconfig := flag.String("kubeconfig", "", "how to reach the cluster that this reader lives in")
	namespaces := flag.String("namespaces", "", "comma-separated namespaces to act in")
	flag.StringVar(&r.store.URL, "register", "", "URL of the register")
	historyFile := flag.String("history", "", "file to append the history to")
	flag.StringVar(&r.name, "name", "", "what values begin with; no other process has it")
	skew := flag.Duration("max-clock-skew", time.Second, "the policy's maxClockSkewMilliseconds")
	flag.Parse()
	must.Run("reader", func(ctx context.Context) {
		r.run(ctx, *kubeconfig, *historyFile, strings.Split(*namespaces, ","), *skew)
	})
}

// reader is the process.
type reader struct {
	name   string
	member *member.Member
	store  register.Client
	tell   *lines.Writer
	clock  clock.System
	lastID atomic.Int64
}

func (r *reader) run(ctx context.Context, kubeconfig, historyFile string, namespaces []string, skew time.Duration) {
	cfg := must.Get(clientcmd.BuildConfigFromFlags("", kubeconfig))
	file := must.Get(os.OpenFile(historyFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644))
	r.tell = lines.NewWriter(file)
	log := funcr.New(func(_, line string) {
		fmt.Println(time.Now().UTC().Format(time.RFC3339Nano), line)
	}, funcr.Options{})
	r.member = must.Get(member.New(cfg, member.Options{Namespaces: namespaces, MaxClockSkew: skew, Logger: log}))
	transport := &http.Transport{MaxIdleConnsPerHost: 2 * len(namespaces)}
	r.store.HTTP = http.Client{Timeout: requestTimeout, Transport: transport}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return r.member.Start(ctx) })
	for _, namespace := range namespaces {
		all.Go(func() error { return r.act(ctx, namespace) })
	}
	must.Do(errors.Join(all.Wait(), file.Close()))
}

// act acts in a namespace, again and again, until ctx ends or the history cannot be written.
func (r *reader) act(ctx context.Context, namespace string) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for round := 0; ; round++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		if err := r.write(ctx, namespace); err != nil {
			return err
		}
		if round%readEvery == 0 {
			if err := r.read(ctx, namespace); err != nil {
				return err
			}
		}
	}
}

// write asks, works, and writes.
func (r *reader) write(ctx context.Context, namespace string) error {
	right := &history.Right{Asked: r.clock.Now().Boot}
	term, ok := r.member.Term(namespace)
	right.Left = term.Remaining()
	right.Told = r.clock.Now().Boot
	if !ok || right.Left <= 0 {
		return nil
	}
	select {
	case <-time.After(work):
	case <-ctx.Done():
		return nil
	}
	id := r.lastID.Add(1)
	state := register.State{Epoch: term.Epoch(), Value: fmt.Sprintf("%s/%d", r.name, id)}
	return r.call(history.Line{ID: id, Namespace: namespace, Right: right, State: state}, func() (register.State, error) {
		return register.State{}, r.store.Write(ctx, namespace, state)
	})
}

func (r *reader) read(ctx context.Context, namespace string) error {
	return r.call(history.Line{ID: r.lastID.Add(1), Namespace: namespace}, func() (register.State, error) {
		return r.store.Read(ctx, namespace)
	})
}

// call does what it is given between two lines. If the first cannot be written it is not done.
func (r *reader) call(line history.Line, do func() (register.State, error)) error {
	line.At = r.clock.Now().Boot
	if err := r.tell.Write(line); err != nil {
		return err
	}
	state, err := do()
	after := history.Line{ID: line.ID, Result: history.Unknown, State: state, At: r.clock.Now().Boot}
	switch {
	case err == nil:
		after.Result = history.OK
	case errors.Is(err, register.ErrRefused):
		after.Result = history.Refused
	}
	return r.tell.Write(after)
}
