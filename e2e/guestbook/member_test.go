package guestbook

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/member"
)

// newMember returns a Member that runs until the test is over.
func newMember(t *testing.T, cfg *rest.Config, o member.Options) *member.Member {
	m := harness.Get(member.New(cfg, o))(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return m
}

// leads is a condition.
func leads(m *member.Member, ns string, want bool) func(context.Context) error {
	return func(context.Context) error {
		if _, got := m.Term(ns); got != want {
			return fmt.Errorf("leads %s = %v", ns, got)
		}
		return nil
	}
}

func TestMemberFollowsARealCluster(t *testing.T) {
	ns := namespace(t)
	write(t, ns, us, 1, time.Minute)
	m := newMember(t, cluster.AdminConfig(), member.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	harness.Must(t, m.WaitForSync(ctx))
	if err := leads(m, ns, true)(ctx); err != nil {
		t.Error("after the first list:", err)
	}
	write(t, ns, them, 2, time.Minute)
	await(t, "another cluster leads", leads(m, ns, false))
	write(t, ns, us, 3, time.Minute)
	await(t, "this one leads again", leads(m, ns, true))

	l := copyIn(t, ns)
	delete(l.Labels, v1alpha1.ManagedLabel)
	harness.Must(t, admin.Update(t.Context(), l))
	await(t, "a Lease without its label is none", leads(m, ns, false))
	write(t, ns, us, 3, time.Minute)
	await(t, "the Lease is repaired", leads(m, ns, true))
	harness.Must(t, admin.Delete(t.Context(), copyIn(t, ns)))
	await(t, "a missing Lease means no", leads(m, ns, false))
}

// With Namespaces, a Role in each is enough. Without, it is not: so this test would
// notice if the one asked for more, or the other for less.
func TestNamespacedRightsSuffice(t *testing.T) {
	a, b, secret := namespace(t), namespace(t), namespace(t)
	cfg := user(t, a, a, b)
	for _, ns := range []string{a, b, secret} {
		write(t, ns, us, 1, time.Minute)
	}
	m := newMember(t, cfg, member.Options{Namespaces: []string{a, b}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	harness.Must(t, m.WaitForSync(ctx))
	for ns, want := range map[string]bool{a: true, b: true, secret: false} {
		if err := leads(m, ns, want)(ctx); err != nil {
			t.Error(err)
		}
	}

	greedy := newMember(t, cfg, member.Options{})
	short, cancelShort := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancelShort()
	err := greedy.WaitForSync(short)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "all namespaces") {
		t.Errorf("without Namespaces: err = %v, want none listed", err)
	}
}

// The watch of a follower in which nothing happens is alive. One behind a dead link is
// not, nor is one of an API server that is cut off from etcd; both come back by
// themselves.
func TestHealthzTellsAQuietWatchFromADeadOne(t *testing.T) {
	const staleAfter = 10 * time.Second
	ns := namespace(t)
	m := newMember(t, cluster.ViaProxy(cluster.AdminConfig()), member.Options{
		Namespaces: []string{ns},
		StaleAfter: staleAfter,
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	harness.Must(t, m.WaitForSync(ctx))
	healthy := func(context.Context) error { return m.Healthz(nil) }
	harness.Must(t, harness.Stay(t.Context(), 2*staleAfter, "a quiet watch is healthy", healthy))
	faults := []struct {
		what         string
		begin, cease func() error
	}{
		{"etcd is paused", cluster.PauseEtcd, cluster.ResumeEtcd},
		{"the link is dead", nothingFails(cluster.Proxy().BlackHole), nothingFails(cluster.Proxy().Heal)},
	}
	for i, f := range faults {
		t.Cleanup(func() { _ = f.cease() }) // once more does no harm
		harness.Must(t, f.begin())
		began := clocks.Now().Boot
		await(t, f.what+", and Healthz fails", func(context.Context) error {
			if m.Healthz(nil) == nil {
				return errors.New("healthy")
			}
			return nil
		})
		if took := clocks.Now().Boot - began; took > staleAfter+5*time.Second {
			t.Errorf("%s: noticed after %v, want %v, and a pause more at most", f.what, took, staleAfter)
		}
		harness.Must(t, f.cease())
		ceased := clocks.Now().Boot
		write(t, ns, us, int64(i)+1, 10*time.Minute)
		// A dead HTTP/2 connection lingers for 45 s in client-go.
		if err := harness.Await(t.Context(), time.Minute, "the watch is back", func(context.Context) error {
			term, _ := m.Term(ns)
			if term.Epoch() != int64(i)+1 {
				return fmt.Errorf("epoch %d", term.Epoch())
			}
			return m.Healthz(nil)
		}); err != nil {
			t.Error(err)
		}
		t.Logf("%s: back after %v", f.what, clocks.Now().Boot-ceased)
	}
}

func nothingFails(f func()) func() error {
	return func() error {
		f()
		return nil
	}
}

// A member learns who leads as soon as its API server is back.
func TestMemberComesBackWithItsAPIServer(t *testing.T) {
	ns := namespace(t)
	m := newMember(t, cluster.AdminConfig(), member.Options{Namespaces: []string{ns}})
	var deadline time.Duration
	await(t, "this cluster leads", func(ctx context.Context) error {
		// A busy machine may take longer than one term.
		if deadline-clocks.Now().Boot < 3*time.Second {
			deadline = write(t, ns, us, 1, 5*time.Second)
		}
		return leads(m, ns, true)(ctx)
	})
	harness.Must(t, cluster.Kill())
	await(t, "the term runs out", leads(m, ns, false))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	harness.Must(t, cluster.Restart(ctx))
	write(t, ns, us, 2, time.Minute)
	written := clocks.Now().Boot
	await(t, "this cluster leads again", leads(m, ns, true))
	took := clocks.Now().Boot - written
	t.Logf("leads again %v after the Lease was written", took)
	if took > 10*time.Second {
		t.Errorf("leads again %v after the Lease was written, want less than 10s: retries wait at most 4.5s", took)
	}
}

// CapWrites has the API server itself give up on a write that outlives its term, even
// if the client would wait on.
func TestServerGivesUpOnAWriteThatOutlivesItsTerm(t *testing.T) {
	ns := namespace(t)
	m := newMember(t, cluster.AdminConfig(), member.Options{Namespaces: []string{ns}})
	deadline := write(t, ns, us, 1, 10*time.Second)
	await(t, "this cluster leads", leads(m, ns, true))
	cfg := cluster.AdminConfig()
	cfg.Timeout = time.Minute
	cfg.Wrap(member.CapWrites)
	c := harness.Get(client.New(cfg, client.Options{}))(t)
	ctx, cancel, err := m.Context(t.Context(), ns)
	harness.Must(t, err)
	defer cancel()
	harness.Must(t, cluster.PauseEtcd())
	t.Cleanup(func() {
		if err := cluster.ResumeEtcd(); err != nil {
			t.Error(err)
		}
	})
	stubborn := context.WithoutCancel(ctx)
	err = c.Create(stubborn, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "late"}})
	over := clocks.Now().Boot - deadline
	t.Logf("the server answered %v after the deadline: %v", over, err)
	if !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) || over > 5*time.Second || over < -time.Second {
		t.Errorf("the server answered %v after the deadline: %v; want a timeout about then", over, err)
	}
	later := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "later"}}
	if err := c.Create(stubborn, later); !errors.Is(err, member.ErrLost) {
		t.Errorf("a write after the term: %v, want ErrLost", err)
	}
}
