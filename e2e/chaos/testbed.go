package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/lines"
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

// testbed is a fleet on which schedules are played, one after the other.
type testbed struct {
	d *harness.Drill
	// keepers run the hub's replicas and the readers, by replica or member.
	keepers map[string]*process.Keeper
	dir     string
	reader  string          // the program
	running context.Context // ends with the testbed
	stop    context.CancelFunc
	locks   sync.Map // of *sync.Mutex, by name

	mu      sync.Mutex
	logs    map[string][]*lines.File // of all readers that ran, by member
	answers []answer                 // of all readers, in the order in which they had them
	counter int                      // for names and priorities that are used once
}

// start starts everything, and returns when all is well. After an error nothing is left running.
func start(ctx context.Context, dir string, progress func(string)) (*testbed, error) {
	d, err := harness.Start(ctx, harness.Options{Members: cast, Timings: harness.Fast, Dir: dir, Progress: progress})
	if err != nil {
		return nil, err
	}
	st := &testbed{d: d, dir: dir, keepers: map[string]*process.Keeper{}, logs: map[string][]*lines.File{}, counter: 1000}
	st.running, st.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := must.Try(func() { st.begin(ctx) }); err != nil {
		return nil, errors.Join(err, st.close())
	}
	return st, nil
}

// begin starts the hub's replicas and the readers.
func (st *testbed) begin(ctx context.Context) {
	st.reader = must.Get(harness.Program(ctx, "chaos-reader", "e2e/chaos/reader"))
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

func (st *testbed) kubeconfig(member string) string {
	return filepath.Join(st.dir, "reader-"+member+".kubeconfig")
}

// startReader starts a run of a member's reader.
func (st *testbed) startReader(m harness.Member, run int) (*process.Process, error) {
	name := fmt.Sprintf("%s-%d", m.Name, run)
	file := filepath.Join(st.dir, name+".permits")
	p, err := process.Start("reader "+name, filepath.Join(st.dir, "reader-"+name+".log"), st.reader,
		"-kubeconfig="+st.kubeconfig(m.Name), "-namespaces="+strings.Join(m.Namespaces, ","),
		"-permits="+file, "-max-clock-skew="+harness.Fast.Skew.String())
	if err != nil {
		return nil, err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.logs[m.Name] = append(st.logs[m.Name], lines.Follow(file))
	return p, nil
}

// answersSince returns the answers that readers had so far, in order. Those whose deadline was before the instant are
// dropped.
func (st *testbed) answersSince(since time.Duration) []answer {
	st.mu.Lock()
	defer st.mu.Unlock()
	for member, logs := range st.logs {
		for _, log := range logs {
			must.Do(log.News(func(raw []byte) error {
				a := answer{cluster: member}
				err := json.Unmarshal(raw, &a.Line)
				st.answers = append(st.answers, a)
				return err
			}))
		}
	}
	st.answers = slices.DeleteFunc(st.answers, func(a answer) bool { return a.Deadline() < since })
	slices.SortStableFunc(st.answers, func(a, b answer) int { return cmp.Compare(a.Answered, b.Answered) })
	return slices.Clone(st.answers)
}

// number returns a new number on each call.
func (st *testbed) number() int {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.counter++
	return st.counter
}

// lock takes locks, which all callers take in the same order, and returns what releases them.
func (st *testbed) lock(names []string) (unlock func()) {
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
func (st *testbed) server(name string) *fleet.Server {
	if name == hubServer {
		return st.d.Fleet.Hub()
	}
	return st.d.Fleet.Member(name)
}

// client is the administrator's, straight at the API server of a member or the hub.
func (st *testbed) client(server string) client.Client {
	if server == hubServer {
		return st.d.Hub
	}
	return st.d.Members[server]
}

// check returns an error if a process ended that must not end.
func (st *testbed) check() error {
	var errs []error
	for _, k := range st.keepers {
		errs = append(errs, k.Check())
	}
	return errors.Join(errs...)
}

// close ends everything and returns when all is gone.
func (st *testbed) close() error {
	st.stop()
	var errs []error
	for _, k := range st.keepers {
		<-k.Done()
		errs = append(errs, k.Current().Kill())
	}
	return errors.Join(append(errs, st.d.Stop())...)
}
