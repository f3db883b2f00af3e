package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease/clock"
	"github.com/leasecast/leasecast/e2e/chaos/history"
	"github.com/leasecast/leasecast/e2e/chaos/register"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

// hubServer is the management cluster.
const hubServer = "hub"

// hubReplicas are the places of the hub's processes: when one ends, another takes its place.
var hubReplicas = []string{"hub-1", "hub-2"}

// cast are the members. Each namespace exists in two or in all three, so that the loss of a cluster moves some and
// leaves others alone, and there is no cluster that leads nothing.
var cast = []harness.Member{
	{Name: "east", Priority: 100, Namespaces: []string{"shop", "bank", "mint", "post", "stock"}},
	{Name: "west", Priority: 50, Namespaces: []string{"shop", "bank", "mail", "mint", "news"}},
	{Name: "south", Priority: 10, Namespaces: []string{"shop", "bank", "mail", "news", "post", "stock"}},
}

func memberNames() (names []string) {
	for _, m := range cast {
		names = append(names, m.Name)
	}
	return names
}

func namespacesOf(member string) []string {
	return cast[slices.Index(memberNames(), member)].Namespaces
}

// allNamespaces are those of all members, sorted.
func allNamespaces() (all []string) {
	for _, m := range cast {
		all = append(all, m.Namespaces...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// keeping is the wait before an ended process is started again.
const keeping = 500 * time.Millisecond

// readerRules are all that a reader may do.
var readerRules = []rbacv1.PolicyRule{
	{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "list", "watch"}},
}

// stage is a fleet on which schedules are played, one after the other.
type stage struct {
	d     *harness.Drill
	store *register.Server
	// keepers run the hub's replicas and the readers, by replica or member.
	keepers map[string]*process.Keeper
	dir     string
	running context.Context // ends with the stage
	stop    context.CancelFunc
	locks   sync.Map // of *sync.Mutex, by name

	mu        sync.Mutex
	histories map[string][]*told // by member
	counter   int                // for names and priorities that are used once
}

// told is the history of one reader process.
type told struct {
	*history.File
	process *process.Process
}

// start starts everything, and returns when all is well. After an error nothing is left running.
func start(ctx context.Context, dir string, progress func(string)) (*stage, error) {
	d, err := harness.Start(ctx, harness.Options{Members: cast, Timings: harness.Fast, Dir: dir, Progress: progress})
	if err != nil {
		return nil, err
	}
	st := &stage{d: d, dir: dir, store: register.Serve(&clock.System{}), keepers: map[string]*process.Keeper{},
		histories: map[string][]*told{}, counter: 1000}
	st.running, st.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := must.Try(func() { st.begin(ctx) }); err != nil {
		return nil, errors.Join(err, st.close())
	}
	return st, nil
}

// begin starts the hub's replicas and the readers.
func (st *stage) begin(ctx context.Context) {
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(st.dir, "reader"),
		"github.com/leasecast/leasecast/e2e/chaos/reader")
	if out, err := build.CombinedOutput(); err != nil {
		must.Fail("build the reader: %w: %s", err, out)
	}
	for _, m := range cast {
		config := must.Get(st.d.Fleet.Member(m.Name).ServiceAccountConfig(ctx, "readers", "reader", readerRules))
		must.Do(fleet.WriteKubeconfig(st.kubeconfig(m.Name), m.Name, config))
		again := func(run int) (*process.Process, error) { return st.startReader(m, run) }
		st.keepers[m.Name] = process.Keep(st.running, m.Name+" reader", must.Get(again(1)), again,
			process.KeepOptions{Wait: keeping})
	}
	for i, name := range hubReplicas {
		again := func(int) (*process.Process, error) { return st.d.StartHub() }
		first := st.d.LatestHub()
		if i > 0 {
			first = must.Get(again(1))
		}
		st.keepers[name] = process.Keep(st.running, name, first, again, process.KeepOptions{Wait: keeping, MayEnd: true})
	}
	o := &Outcome{}
	st.awaitWell(ctx, o)
	must.Do(st.check())
	must.FailIf(o.Failed(), "before the first schedule: %v", o.Verdict)
}

func (st *stage) kubeconfig(member string) string {
	return filepath.Join(st.dir, "reader-"+member+".kubeconfig")
}

// startReader starts a run of a member's reader. All values that it writes begin with its name: the member's, a dash
// and the run.
func (st *stage) startReader(m harness.Member, run int) (*process.Process, error) {
	name := fmt.Sprintf("%s-%d", m.Name, run)
	file := filepath.Join(st.dir, name+".history")
	p, err := process.Start("reader "+name, filepath.Join(st.dir, "reader-"+name+".log"), filepath.Join(st.dir, "reader"),
		"-kubeconfig="+st.kubeconfig(m.Name), "-namespaces="+strings.Join(m.Namespaces, ","),
		"-register="+st.store.URL, "-history="+file, "-name="+name, "-max-clock-skew="+harness.Fast.Skew.String())
	if err != nil {
		return nil, err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.histories[m.Name] = append(st.histories[m.Name], &told{history.Follow(file), p})
	return p, nil
}

// calls returns, by member, the calls of its readers that had not returned before the instant. Those of readers that
// were killed before it are left out: they have taken effect by then, or never will.
func (st *stage) calls(since time.Duration) map[string][]history.Call {
	st.mu.Lock()
	defer st.mu.Unlock()
	all := map[string][]history.Call{}
	for member, histories := range st.histories {
		for _, h := range histories {
			dead := false
			select {
			case <-h.process.Ended():
				dead = true
			default:
			}
			calls := must.Get(h.Calls(since))
			all[member] = append(all[member], slices.DeleteFunc(calls, func(c history.Call) bool {
				return dead && c.Returned == history.Pending && c.At < since
			})...)
		}
	}
	return all
}

// number returns a new number on each call.
func (st *stage) number() int {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.counter++
	return st.counter
}

// lock takes locks, which all callers take in the same order, and returns what releases them.
func (st *stage) lock(names []string) (unlock func()) {
	var taken []*sync.Mutex
	for _, name := range slices.Sorted(slices.Values(names)) {
		l, _ := st.locks.LoadOrStore(name, &sync.Mutex{})
		l.(*sync.Mutex).Lock()
		taken = append(taken, l.(*sync.Mutex))
	}
	return func() {
		for _, l := range taken {
			l.Unlock()
		}
	}
}

// server is that of a member or the hub's.
func (st *stage) server(name string) *fleet.Server {
	if name == hubServer {
		return st.d.Fleet.Hub()
	}
	return st.d.Fleet.Member(name)
}

// client is the administrator's, straight at the API server of a member or the hub.
func (st *stage) client(server string) client.Client {
	if server == hubServer {
		return st.d.Hub
	}
	return st.d.Members[server]
}

// check returns an error if a process ended that must not end.
func (st *stage) check() error {
	var errs []error
	for _, k := range st.keepers {
		errs = append(errs, k.Check())
	}
	return errors.Join(errs...)
}

// close ends everything and returns when all is gone.
func (st *stage) close() error {
	st.stop()
	var errs []error
	for _, k := range st.keepers {
		<-k.Done()
		errs = append(errs, k.Current().Kill())
	}
	errs = append(errs, st.d.Stop())
	st.store.Close()
	return errors.Join(errs...)
}
