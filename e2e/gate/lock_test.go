package gate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	clientlock "k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/e2e/process"
	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/resourcelock"
)

// renewDeadline is how long an elector alone goes on after its last renewal.
const renewDeadline = 8 * time.Second

// pods are all candidates of a test, and who of them is elected.
type pods struct {
	t       *testing.T
	mu      sync.Mutex
	elected map[string]bool
	worst   int // how many were elected at one instant
}

func (p *pods) set(name string, elected bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if delete(p.elected, name); elected {
		p.elected[name] = true
	}
	p.worst = max(p.worst, len(p.elected))
}

// most is how many were elected at one instant.
func (p *pods) most() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.worst
}

// winner is the one Pod that is elected; empty if none is.
func (p *pods) winner() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.elected {
		return name
	}
	return ""
}

// start starts a Pod: a Member and, again and again, as a restarted process would, an election. ns plays the cluster.
func (p *pods) start(name, ns string) (stop func()) {
	cfg := cluster.AdminConfig()
	cfg.Wrap(member.CapWrites)
	clients := musttest.Get(kubernetes.NewForConfig(cfg))(p.t)
	m := musttest.Get(member.New(cfg, member.Options{Namespaces: []string{ns}}))(p.t)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { _ = m.Start(ctx) })
	all.Go(func() {
		for ctx.Err() == nil {
			p.elect(ctx, m, name, ns, clients)
		}
	})
	stop = func() { cancel(); all.Wait() }
	p.t.Cleanup(stop)
	return stop
}

func (p *pods) elect(ctx context.Context, m *member.Member, name, ns string, clients *kubernetes.Clientset) {
	lock, ctx, done := resourcelock.New(ctx, m, ns, &clientlock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: ns, Name: "shopkeeper"}, Client: clients.CoordinationV1(),
		LockConfig: clientlock.ResourceLockConfig{Identity: name},
	})
	defer done()
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   10 * time.Second,
		RenewDeadline:   renewDeadline,
		RetryPeriod:     500 * time.Millisecond,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				p.set(name, true)
				<-ctx.Done()
				p.set(name, false)
			},
			OnStoppedLeading: func() {},
		},
	})
}

// won is a condition: one of these Pods is elected.
func (p *pods) won(names ...string) func(context.Context) error {
	return func(context.Context) error {
		winner := p.winner()
		for _, name := range names {
			if winner == name {
				return nil
			}
		}
		return fmt.Errorf("%q is elected", winner)
	}
}

// none is a condition: nobody is elected.
func (p *pods) none(context.Context) error {
	if winner := p.winner(); winner != "" {
		return errors.New(winner + " is elected")
	}
	return nil
}

// A manager of controller-runtime runs what needs the election in its cluster's terms only, and returns after one.
func TestAManagerIsElectedInTheLeaderOnly(t *testing.T) {
	ns := harness.NewNamespace(t, admin)
	cfg := cluster.AdminConfig()
	cfg.Wrap(member.CapWrites)
	clients := musttest.Get(kubernetes.NewForConfig(cfg))(t)
	m := musttest.Get(member.New(cfg, member.Options{Namespaces: []string{ns}}))(t)
	lock, ctx, done := resourcelock.New(t.Context(), m, ns, &clientlock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: ns, Name: "shopkeeper"}, Client: clients.CoordinationV1(),
		LockConfig: clientlock.ResourceLockConfig{Identity: "east-1"},
	})
	defer done()
	mgr := musttest.Get(ctrl.NewManager(cfg, ctrl.Options{
		LeaderElection: true, LeaderElectionResourceLockInterface: lock, LeaderElectionReleaseOnCancel: true,
		Metrics: metricsserver.Options{BindAddress: "0"},
	}))(t)
	p := &pods{t: t, elected: map[string]bool{}}
	musttest.Do(t, mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		p.set("east-1", true)
		<-ctx.Done()
		p.set("east-1", false)
		return nil
	})))
	go func() { _ = m.Start(t.Context()) }()
	write(t, ns, them, 1, time.Minute)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	musttest.Do(t, must.Stay(t.Context(), 3*time.Second, "it does nothing in a follower", p.none))
	write(t, ns, us, 2, time.Minute)
	await(t, "it is elected", p.won("east-1"))
	write(t, ns, them, 3, time.Minute)
	await(t, "another cluster leads", p.none)
	musttest.Do(t, <-ended)
	held := musttest.Get(clients.CoordinationV1().Leases(ns).Get(t.Context(), "shopkeeper", metav1.GetOptions{}))(t)
	if *held.Spec.HolderIdentity != "" {
		t.Errorf("%s still holds the lock", *held.Spec.HolderIdentity)
	}
}

// The scenario of gke-labs/multicluster-leader-election: a first election, one winner, and a failover. Two clusters
// have two Pods each.
func TestOnePodIsElectedAndItIsInTheLeader(t *testing.T) {
	east, west := harness.NewNamespace(t, admin), harness.NewNamespace(t, admin)
	p := &pods{t: t, elected: map[string]bool{}}
	stops := map[string]func(){}
	for name, ns := range map[string]string{"east-1": east, "east-2": east, "west-1": west, "west-2": west} {
		stops[name] = p.start(name, ns)
	}
	musttest.Do(t, must.Stay(t.Context(), 2*time.Second, "nobody is elected before a cluster leads", p.none))

	const d = 6 * time.Second
	renewed := func(condition func(context.Context) error) func(context.Context) error {
		return renewing(t, east, 1, d, renewingIn(t, them, west, us, 1, d, condition))
	}
	await(t, "first election: a Pod of east", renewed(p.won("east-1", "east-2")))

	first := p.winner()
	stops[first]()
	await(t, "another Pod takes over from one that has ended", renewed(func(ctx context.Context) error {
		if p.winner() == first {
			return errors.New("it has not ended")
		}
		return p.won("east-1", "east-2")(ctx)
	}))

	deadline := write(t, east, us, 1, d)
	await(t, "the hub is lost, and nobody is elected", p.none) // no renewal comes
	if over := time.Since(deadline); over > renewDeadline/2 {  // an elector alone goes on for longer
		t.Errorf("a Pod was elected until %v after the deadline", over)
	}
	writeIn(t, them, west, them, 2, time.Minute)
	began := time.Now()
	await(t, "failover: a Pod of west", p.won("west-1", "west-2"))
	t.Logf("elected %v after the grant", time.Since(began))
	writeIn(t, us, east, them, 2, time.Minute)

	second := p.winner()
	musttest.Do(t, must.Stay(t.Context(), 2*time.Second, "it stays", p.won(second)))
	writeIn(t, them, west, "", 3, time.Minute)
	await(t, "revoked, and nobody is elected", p.none)
	writeIn(t, us, east, us, 4, time.Minute)
	await(t, "back in east, where the lock was released", p.won("east-1", "east-2"))
	if worst := p.most(); worst > 1 {
		t.Errorf("%d Pods were elected at one instant, want 1 at most", worst)
	}
}

// acting asks the rule in a loop and acts while it holds. Its arguments: namespace, file of acts, file of refusals.
const acting = `
while :; do
  if leads "$1"; then date +%s%N >>"$2"; else date +%s%N >>"$3"; fi
  sleep 0.1
done
`

// rule is the shell function in the README of the member library.
func rule(t *testing.T) string {
	t.Helper()
	text := musttest.Get(os.ReadFile("../../member/README.md"))(t)
	found := regexp.MustCompile("(?ms)^```sh\n(leads\\(\\).*?)^```$").FindSubmatch(text)
	if found == nil {
		t.Fatal("member/README.md has no function leads in a snippet of sh")
	}
	return string(found[1])
}

// What people copy out of the README obeys the reader's rule, with nothing but kubectl.
func TestTheRuleInShellActsInItsTermsOnly(t *testing.T) {
	ns, dir := harness.NewNamespace(t, admin), t.TempDir()
	script, yes, no := filepath.Join(dir, "script"), filepath.Join(dir, "yes"), filepath.Join(dir, "no")
	musttest.Do(t, os.WriteFile(script, []byte(rule(t)+acting), 0o600))
	t.Setenv("KUBECONFIG", access)
	t.Setenv("PATH", os.Getenv("KUBEBUILDER_ASSETS")+":"+os.Getenv("PATH"))
	p := musttest.Get(process.Start("script", filepath.Join(dir, "log"), "bash", script, ns, yes, no))(t)
	t.Cleanup(func() { musttest.Do(t, p.Kill()) })
	refuses := func(what string) { // two answers, so that one of them was asked for now
		for range 2 {
			await(t, what, actedAfter(t, no, time.Now()))
		}
	}
	none := func(what string, since time.Time) {
		t.Helper()
		if all := acts(t, yes); len(all) > 0 && all[len(all)-1].After(since) {
			t.Errorf("%s: it acts %v later", what, all[len(all)-1].Sub(since))
		}
	}

	refuses("no Lease")
	write(t, ns, them, 1, time.Minute)
	refuses("another cluster leads")
	write(t, ns, "", 2, time.Minute)
	refuses("nobody leads")
	none("nobody led here yet", time.Time{})

	await(t, "this cluster leads", renewing(t, ns, 3, 5*time.Second, actedAfter(t, yes, time.Time{})))
	deadline := write(t, ns, us, 3, 5*time.Second)
	refuses("the hub is lost")
	<-time.After(time.Until(deadline))
	refuses("the hub is lost for good")
	none("the hub is lost", deadline)

	write(t, ns, us, 3, time.Hour)
	await(t, "the hub is back", actedAfter(t, yes, time.Now()))
	snapshot := musttest.Get(cluster.Snapshot(t.Context()))(t)
	write(t, ns, them, 4, time.Hour)
	refuses("failed over")
	moved := time.Now()
	refuses("failed over for some time")
	musttest.Do(t, cluster.Restore(t.Context(), snapshot))
	refuses("the member is restored from a snapshot of when it led")
	none("another cluster leads since epoch 4", moved)
}
