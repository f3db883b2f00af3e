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
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr/funcr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/leasecast/leasecast/api/lease/clock"
	"github.com/leasecast/leasecast/e2e/chaos/history"
	"github.com/leasecast/leasecast/e2e/chaos/register"
	"github.com/leasecast/leasecast/e2e/lines"
	"github.com/leasecast/leasecast/member"
)

// requestTimeout bounds a call of the register.
const requestTimeout = 2 * time.Second

// readEvery is how many rounds pass between two reads of the register, which need no right.
const readEvery = 10

type flags struct {
	kubeconfig, namespaces, register, history, name string

	every, work, skew time.Duration
}

func main() {
	var f flags
	flag.StringVar(&f.kubeconfig, "kubeconfig", "", "how to reach the cluster that this reader lives in")
	flag.StringVar(&f.namespaces, "namespaces", "", "comma-separated namespaces to act in")
	flag.StringVar(&f.register, "register", "", "URL of the register")
	flag.StringVar(&f.history, "history", "", "file to append the history to")
	flag.StringVar(&f.name, "name", "", "what values begin with; no other process has it")
	flag.DurationVar(&f.every, "every", 50*time.Millisecond, "time between two acts in a namespace")
	flag.DurationVar(&f.work, "work", 10*time.Millisecond, "time between the question and the act")
	flag.DurationVar(&f.skew, "max-clock-skew", time.Second, "the policy's maxClockSkewMilliseconds")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, f)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "reader:", err)
		os.Exit(1)
	}
}

// reader is the process.
type reader struct {
	flags
	member *member.Member
	store  register.Client
	tell   *lines.Writer
	clock  clock.System
	lastID atomic.Int64
}

func run(ctx context.Context, f flags) (err error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(f.history, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	namespaces := strings.Split(f.namespaces, ",")
	log := funcr.New(func(_, line string) {
		fmt.Println(time.Now().UTC().Format(time.RFC3339Nano), line)
	}, funcr.Options{})
	m, err := member.New(cfg, member.Options{Namespaces: namespaces, MaxClockSkew: f.skew, Logger: log})
	if err != nil {
		return err
	}
	r := &reader{flags: f, tell: lines.NewWriter(file), member: m}
	transport := &http.Transport{MaxIdleConnsPerHost: 2 * len(namespaces)}
	r.store = register.Client{URL: f.register, HTTP: http.Client{Timeout: requestTimeout, Transport: transport}}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return m.Start(ctx) })
	for _, namespace := range namespaces {
		all.Go(func() error { return r.act(ctx, namespace) })
	}
	return all.Wait()
}

// act acts in a namespace, again and again, until ctx ends or nobody could judge it any more.
func (r *reader) act(ctx context.Context, namespace string) error {
	ticker := time.NewTicker(r.every)
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
	case <-time.After(r.work):
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
