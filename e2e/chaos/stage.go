package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/leasecast/leasecast/api/lease/clock"
	"github.com/leasecast/leasecast/e2e/chaos/history"
	"github.com/leasecast/leasecast/e2e/chaos/register"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/process"
)

// restarts is the wait before a process is started again, as after a crash in a Deployment.
var restarts = process.Backoff{First: 500 * time.Millisecond, Most: 500 * time.Millisecond}

// readerRules are all that a reader may do.
var readerRules = []rbacv1.PolicyRule{
	{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "list", "watch"}},
}

// stage is a fleet on which schedules are played, one after the other.
type stage struct {
	d       *harness.Drill
	store   *register.Server
	hubs    map[string]*process.Keeper
	readers map[string]*process.Keeper
	dir     string
	program string // the reader

	running context.Context // ends with the stage
	stop    context.CancelFunc

	locks map[string]chan struct{} // a token each, while nobody has the lock

	mu        sync.Mutex
	histories map[string][]*told // by member
	counter   int                // for names and priorities that nobody had before
}

// start starts everything. After an error nothing is left running.
func start(ctx context.Context, dir string, progress func(string)) (st *stage, err error) {
	d, err := harness.Start(ctx, harness.Options{Members: cast, Timings: harness.Fast, Dir: dir, Progress: progress})
	if err != nil {
		return nil, err
	}
	st = &stage{
		d: d, dir: dir, hubs: map[string]*process.Keeper{}, readers: map[string]*process.Keeper{},
		histories: map[string][]*told{}, locks: map[string]chan struct{}{}, counter: 1000,
	}
	st.running, st.stop = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			err = errors.Join(err, st.close())
		}
	}()
	if st.store, err = register.Serve(&clock.System{}); err != nil {
		return nil, err
	}
	st.program = filepath.Join(dir, "reader")
	build := exec.CommandContext(ctx, "go", "build", "-o", st.program, "github.com/leasecast/leasecast/e2e/chaos/reader")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the reader: %w: %s", err, out)
	}
	for _, m := range cast {
		if err := st.addReader(ctx, m.Name); err != nil {
			return nil, err
		}
	}
	for i, name := range hubReplicas {
		first := d.Hubs()[0]
		if i > 0 {
			if first, err = d.StartHub(); err != nil {
				return nil, err
			}
		}
		again := func(int) (*process.Process, error) { return d.StartHub() }
		st.hubs[name] = process.Keep(st.running, name, first, again, process.KeepOptions{Backoff: restarts, MayEnd: true})
	}
	return st, nil
}

// addReader gives a reader an account in its member, and starts it.
func (st *stage) addReader(ctx context.Context, member string) error {
	server := st.d.Fleet.Member(member)
	config, err := server.ServiceAccountConfig(ctx, "readers", "reader", readerRules)
	if err != nil {
		return err
	}
	if err := fleet.WriteKubeconfig(st.readerKubeconfig(member), member, config); err != nil {
		return err
	}
	start := func(run int) (*process.Process, error) {
		return st.startReader(member, fmt.Sprintf("%s-%d", member, run))
	}
	first, err := start(1)
	if err != nil {
		return err
	}
	st.readers[member] = process.Keep(st.running, member+" reader", first, start, process.KeepOptions{Backoff: restarts})
	return nil
}

func (st *stage) readerKubeconfig(member string) string {
	return filepath.Join(st.dir, "reader-"+member+".kubeconfig")
}

// startReader starts a reader. All values that it writes begin with its name: the member's, a dash and a part of its
// own.
func (st *stage) startReader(member, name string) (*process.Process, error) {
	file := filepath.Join(st.dir, name+".history")
	p, err := process.Start("reader "+name, filepath.Join(st.dir, "reader-"+name+".log"), st.program,
		"-kubeconfig="+st.readerKubeconfig(member),
		"-namespaces="+strings.Join(namespacesOf(member), ","),
		"-register="+st.store.URL(),
		"-history="+file,
		"-name="+name,
		"-every="+actEvery.String(),
		"-work="+work.String(),
		"-max-clock-skew="+harness.Fast.Skew.String(),
	)
	if err != nil {
		return nil, err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.histories[member] = append(st.histories[member], &told{history.Follow(file), file, p})
	return p, nil
}

// told is the history of one process.
type told struct {
	*history.File
	path    string
	process *process.Process
}

// calls returns, by member, the calls of its readers that had not returned before the instant. Without those of readers
// that were killed before it: they have taken effect by then, or never will.
func (st *stage) calls(since time.Duration) (map[string][]history.Call, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	all := map[string][]history.Call{}
	for member, histories := range st.histories {
		var kept []*told
		for _, h := range histories {
			dead := false
			select {
			case <-h.process.Ended():
				dead = true
			default:
			}
			calls, err := h.Calls(since)
			if err != nil {
				return nil, err
			}
			calls = slices.DeleteFunc(calls, func(c history.Call) bool {
				return dead && c.Returned == history.Pending && c.At < since
			})
			all[member] = append(all[member], calls...)
			if dead && len(calls) == 0 {
				if err := os.Remove(h.path); err != nil {
					return nil, err
				}
				continue
			}
			kept = append(kept, h)
		}
		st.histories[member] = kept
	}
	return all, nil
}

// number returns a new number on each call.
func (st *stage) number() int {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.counter++
	return st.counter
}

// lock takes the locks, which all callers name in the same order, and returns what releases them.
func (st *stage) lock(ctx context.Context, names []string) (unlock func(), err error) {
	var taken []chan struct{}
	unlock = func() {
		for _, l := range taken {
			l <- struct{}{}
		}
	}
	for _, name := range names {
		st.mu.Lock()
		l, ok := st.locks[name]
		if !ok {
			l = make(chan struct{}, 1)
			l <- struct{}{}
			st.locks[name] = l
		}
		st.mu.Unlock()
		select {
		case <-l:
			taken = append(taken, l)
		case <-ctx.Done():
			unlock()
			return nil, context.Cause(ctx)
		}
	}
	return unlock, nil
}

// server is that of a member or the hub's.
func (st *stage) server(name string) *fleet.Server {
	if name == hubServer {
		return st.d.Fleet.Hub()
	}
	return st.d.Fleet.Member(name)
}

// kept are all our processes.
func (st *stage) kept() []*process.Keeper {
	var all []*process.Keeper
	for _, name := range hubReplicas {
		all = append(all, st.hubs[name])
	}
	for _, name := range memberNames() {
		all = append(all, st.readers[name])
	}
	return all
}

// check returns an error if a process ended that must not end.
func (st *stage) check() error {
	var errs []error
	for _, s := range st.kept() {
		errs = append(errs, s.Check())
	}
	return errors.Join(errs...)
}

// close ends everything and returns when all is gone.
func (st *stage) close() error {
	st.stop()
	var errs []error
	for _, k := range st.kept() {
		if k != nil {
			<-k.Done()
			errs = append(errs, k.Current().Kill())
		}
	}
	errs = append(errs, st.d.Stop())
	if st.store != nil {
		errs = append(errs, st.store.Close())
	}
	return errors.Join(errs...)
}
