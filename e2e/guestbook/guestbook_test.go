package guestbook

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webappv1 "github.com/leasecast/leasecast/e2e/guestbook/api"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/member"
)

const actEvery = 20 * time.Millisecond

// apart is how far two processes' readings of one clock can lie apart; see api/lease/clock.
const apart = 100 * time.Microsecond

// What was skipped in the follower is done on promotion, every object of it; what is
// done ends with the term, although the hub is silent and nothing notifies the process.
func TestGuestbookActsInItsTermAndOnlyThen(t *testing.T) {
	t.Parallel()
	ns := harness.NewNamespace(t, admin)
	names := books(t, ns, 20)
	write(t, ns, them, 1, time.Minute)
	p := start(t, user(t, ns, ns), "east", ns, "-act-every="+actEvery.String())
	await(t, "the process follows", p.logged("This cluster does not lead"))

	late := &webappv1.Guestbook{Spec: webappv1.GuestbookSpec{Book: "written while nobody listened"}}
	late.Namespace, late.Name = ns, "late"
	musttest.Do(t, admin.Create(t.Context(), late))
	musttest.Do(t, must.Stay(t.Context(), time.Second, "a follower does nothing", func(context.Context) error {
		n := len(p.acts())
		return must.ErrorIf(n > 0, "%d acts", n)
	}))

	began := harness.Now().Boot
	deadline := write(t, ns, us, 2, 10*time.Second)
	await(t, "everything is done on promotion", p.acted(append(names, "late"), 2))
	await(t, "the term is over", func(context.Context) error {
		left := deadline + time.Second - harness.Now().Boot
		return must.ErrorIf(left > 0, "%v are left", left)
	})
	all := p.acts()
	last := all[len(all)-1]
	for _, a := range all {
		// An act that was begun was allowed between its beginning and its end.
		if a.Begin < began-apart || a.Begin >= deadline+apart || a.Epoch != 2 {
			t.Errorf("act %+v lies outside the term of epoch 2, from %v to %v", a, began, deadline)
		}
		last.Begin = max(last.Begin, a.Begin)
	}
	if gap := deadline - last.Begin; gap > 3*time.Second {
		t.Errorf("the last act began %v before the deadline, although there is one every %v", gap, actEvery)
	}
	t.Logf("%d acts; the first began %v after the renewTime, the last %v before the deadline",
		len(all), all[0].Begin-began, deadline-last.Begin)

	write(t, ns, us, 3, time.Minute)
	await(t, "everything is done again in the next term", p.acted(append(names, "late"), 3))
	await(t, "and noted in the status", func(ctx context.Context) error {
		var list webappv1.GuestbookList
		must.Do(admin.List(ctx, &list, client.InNamespace(ns)))
		for _, g := range list.Items {
			if g.Status.Epoch != 3 || g.Status.Book != g.Spec.Book {
				return fmt.Errorf("status of %s is %+v", g.Name, g.Status)
			}
		}
		return nil
	})
}

// Of two replicas in the leading cluster the local election chooses one. When it
// goes, the other repeats everything in the same term. None acts in a follower.
func TestOneOfTwoReplicasActs(t *testing.T) {
	t.Parallel()
	ns := harness.NewNamespace(t, admin)
	names := books(t, ns, 10)
	write(t, ns, them, 1, time.Hour)
	args := []string{"-act-every=" + actEvery.String(), "-leader-elect", "-leader-election-namespace=" + ns}
	cfg := user(t, ns, ns)
	first := start(t, cfg, "replica-1", ns, args...)
	await(t, "the first wins the local election", first.logged("Starting Controller"))
	second := start(t, cfg, "replica-2", ns, args...)
	await(t, "the second is warm", second.logged("This cluster does not lead"))

	write(t, ns, us, 2, time.Hour)
	await(t, "the elected replica does everything", first.acted(names, 2))
	if n := len(second.acts()); n > 0 {
		t.Errorf("the replica that was not elected did %d acts", n)
	}
	first.terminate() // and gives up the local election
	await(t, "the other one does everything anew", second.acted(names, 2))

	write(t, ns, them, 3, time.Hour)
	await(t, "and stops when its cluster does", second.logged("west.fleet leads in epoch 3"))
	told := harness.Now().Boot + apart
	if err := must.Stay(t.Context(), time.Second, "it has stopped", func(context.Context) error {
		for _, a := range second.acts() {
			if a.Begin > told && a.Result == "ok" { // what was under way may end, and what is refused begins nothing
				return fmt.Errorf("act %+v was begun after %v", a, told)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	for _, v := range harness.Judge(append(first.acts(), second.acts()...)) {
		for _, b := range v.Breaches {
			if b.Rule == harness.TwoAtOnce {
				t.Errorf("two replicas at once: %v", b)
			}
		}
	}
}

// newMember returns a Member that runs until the test is over.
func newMember(t *testing.T, cfg *rest.Config, o member.Options) *member.Member {
	m, _ := harness.RunMember(t, cfg, o)
	return m
}

// leads is a condition.
func leads(m *member.Member, ns string, want bool) func(context.Context) error {
	return func(context.Context) error {
		_, got := m.Term(ns)
		return must.ErrorIf(got != want, "leads %s = %v", ns, got)
	}
}

// The watch of a follower in which nothing happens is alive. One behind a dead link is
// not, nor is one of an API server that is cut off from etcd; both come back by
// themselves.
func TestHealthzDistinguishesAQuietWatchFromADeadOne(t *testing.T) {
	const staleAfter = 10 * time.Second
	ns := harness.NewNamespace(t, admin)
	m := newMember(t, cluster.ViaProxy(cluster.AdminConfig()), member.Options{
		Namespaces: []string{ns},
		StaleAfter: staleAfter,
	})
	harness.AwaitSync(t, m)
	healthy := func(context.Context) error { return m.Healthz(nil) }
	musttest.Do(t, must.Stay(t.Context(), 2*staleAfter, "a quiet watch is healthy", healthy))
	faults := []struct {
		what         string
		begin, cease func() error
	}{
		{"etcd is paused", cluster.PauseEtcd, cluster.ResumeEtcd},
		{"the link is dead", nothingFails(cluster.Proxy().BlackHole), nothingFails(cluster.Proxy().Heal)},
	}
	for i, f := range faults {
		t.Cleanup(func() { _ = f.cease() }) // once more does no harm
		musttest.Do(t, f.begin())
		began := harness.Now().Boot
		await(t, f.what+", and Healthz fails", func(context.Context) error {
			return must.ErrorIf(m.Healthz(nil) == nil, "healthy")
		})
		if took := harness.Now().Boot - began; took > staleAfter+5*time.Second {
			t.Errorf("%s: noticed after %v, want %v, and a pause more at most", f.what, took, staleAfter)
		}
		musttest.Do(t, f.cease())
		ceased := harness.Now().Boot
		write(t, ns, us, int64(i)+1, 10*time.Minute)
		// A dead HTTP/2 connection lingers for 45 s in client-go.
		if err := must.Await(t.Context(), time.Minute, "the watch is back", func(context.Context) error {
			term, _ := m.Term(ns)
			if term.Epoch() != int64(i)+1 {
				return fmt.Errorf("epoch %d", term.Epoch())
			}
			return m.Healthz(nil)
		}); err != nil {
			t.Error(err)
		}
		t.Logf("%s: back after %v", f.what, harness.Now().Boot-ceased)
	}
}

func nothingFails(f func()) func() error {
	return func() error {
		f()
		return nil
	}
}

// CapWrites has the API server itself give up on a write that outlives its term, even
// if the client would wait on.
func TestServerGivesUpOnAWriteThatOutlivesItsTerm(t *testing.T) {
	ns := harness.NewNamespace(t, admin)
	m := newMember(t, cluster.AdminConfig(), member.Options{Namespaces: []string{ns}})
	deadline := write(t, ns, us, 1, 10*time.Second)
	await(t, "this cluster leads", leads(m, ns, true))
	cfg := cluster.AdminConfig()
	cfg.Timeout = time.Minute
	cfg.Wrap(member.CapWrites)
	c := musttest.Get(client.New(cfg, client.Options{}))(t)
	ctx, cancel, err := m.Context(t.Context(), ns)
	musttest.Do(t, err)
	defer cancel()
	musttest.Do(t, cluster.PauseEtcd())
	t.Cleanup(func() {
		if err := cluster.ResumeEtcd(); err != nil {
			t.Error(err)
		}
	})
	stubborn := context.WithoutCancel(ctx)
	err = c.Create(stubborn, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "late"}})
	over := harness.Now().Boot - deadline
	t.Logf("the server answered %v after the deadline: %v", over, err)
	if !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) || over > 5*time.Second || over < -time.Second {
		t.Errorf("the server answered %v after the deadline: %v; want a timeout about then", over, err)
	}
	later := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "later"}}
	if err := c.Create(stubborn, later); !errors.Is(err, member.ErrLost) {
		t.Errorf("a write after the term: %v, want ErrLost", err)
	}
}
