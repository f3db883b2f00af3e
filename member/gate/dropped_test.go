package gate_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/gate"
	"github.com/leasecast/leasecast/member/internal/fed"
	"github.com/leasecast/leasecast/member/membertest"
)

// leading is Terms by which this cluster leads for d.
func leading(t *testing.T, d time.Duration) (fed.Terms, *clocktest.Hand) {
	t.Helper()
	clock := clocktest.NewHand(clocktest.Start)
	terms, now, l := fed.New(clock, time.Second), clock.Now().Wall, &coordinationv1.Lease{}
	if err := wire.Write(lease.Content{
		Term:      lease.Term{Holder: "east", Epoch: 7, AcquireTime: now, RenewTime: now, Duration: d},
		Namespace: ns, Name: "leasecast", Cluster: "east",
	}, "", l); err != nil {
		t.Fatal(err)
	}
	terms.Observe(l)
	return terms, clock
}

// A reconciler that asks the clock may learn of the end before its context does.
func TestGateDropsTheErrorOfWorkThatFoundItsTermOver(t *testing.T) {
	for name, tc := range map[string]struct {
		passes time.Duration // while the reconciler works
		act    func(ctx context.Context) error
	}{
		"by a check": {16 * time.Second, member.Check},
		"by a client": {16 * time.Second, func(ctx context.Context) error {
			return gate.CapClient(fake.NewFakeClient()).Create(ctx, object(ns, "a"))
		}},
		"by a write": {16 * time.Second, write},
		"by a write that less than a millisecond is left for": {15*time.Second - time.Microsecond, write},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				terms, clock := leading(t, 15*time.Second)
				g := gate.NewGate(terms, reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
					clock.Advance(tc.passes)
					err := tc.act(ctx)
					if !errors.Is(err, member.ErrLost) {
						t.Errorf("the act says %v", err)
					}
					return again, fmt.Errorf("act: %w", err)
				}))
				if result, err := g.Reconcile(t.Context(), request); err != nil || !result.IsZero() {
					t.Errorf("Reconcile = %v, %v", result, err)
				}
			})
		})
	}
}

func write(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://nowhere", nil)
	if err != nil {
		return err
	}
	resp, err := member.CapWrites(http.DefaultTransport).RoundTrip(req)
	if err == nil {
		err = resp.Body.Close()
	}
	return err
}

// Another namespace's term is not the one that this work rests on.
func TestGateKeepsTheErrorOfAnotherTermThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := membertest.New()
		f.Promote(ns)
		other, _ := leading(t, time.Second)
		ctx, done, err := other.Context(t.Context(), ns)
		if err != nil {
			t.Fatal(err)
		}
		done()
		g := gate.NewGate(f, reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{}, fmt.Errorf("%w: %w", member.ErrLost, ctx.Err())
		}))
		if _, err := g.Reconcile(t.Context(), request); !errors.Is(err, member.ErrLost) {
			t.Errorf("err = %v, want it, so that the request is tried again", err)
		}
	})
}

func TestAListThatGoesOnFailingIsToldAtOnceAndEveryMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, q := membertest.New(), newQueue()
		r := &failing{Reader: fake.NewClientBuilder().Build()}
		r.fails.Store(1 << 40)
		ctx, told := lines(t.Context())
		ctx, cancel := context.WithCancel(ctx)
		if err := gate.NewResync(f, r, &corev1.ConfigMap{}).Start(ctx, q); err != nil {
			t.Fatal(err)
		}
		f.Promote(ns)
		<-time.After(30 * time.Second)
		if got := told(); len(got) != 1 || !strings.Contains(got[0], "Could not list what to resync after a promotion") ||
			r.lists.Load() < 5 {
			t.Errorf("in 30 s and %d lists it says\n%s", r.lists.Load(), strings.Join(got, "\n"))
		}
		<-time.After(4*time.Minute + 20*time.Second)
		if got := told(); len(got) < 4 || len(got) > 5 {
			t.Errorf("%d lines in five minutes, want one a minute", len(got))
		}
		cancel()
		synctest.Wait()
		q.ShutDown()
	})
}

// deaf is a reader whose lists end with their context, as those of a cache do that never fills.
type deaf struct{ client.Reader }

func (deaf) List(ctx context.Context, _ client.ObjectList, _ ...client.ListOption) error {
	<-ctx.Done()
	return errors.New("timeout: failed waiting for the informer to sync")
}

func TestAListThatEndsWithItsTermIsNoTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, q := membertest.New(), newQueue()
		ctx, told := lines(t.Context())
		ctx, cancel := context.WithCancel(ctx)
		if err := gate.NewResync(f, deaf{}, &corev1.ConfigMap{}).Start(ctx, q); err != nil {
			t.Fatal(err)
		}
		f.Promote(ns)
		synctest.Wait()
		f.Demote(ns)
		synctest.Wait()
		f.Promote(ns)
		synctest.Wait()
		cancel()
		synctest.Wait()
		if got := told(); len(got) > 0 {
			t.Errorf("it says %q", got)
		}
		q.ShutDown()
	})
}

// A Member that is not made by New is a mistake that no retry mends.
func TestGateRefusesAMemberThatWasNotMade(t *testing.T) {
	_, err := gate.NewGate(&member.Member{}, reconcile.Func(nil)).Reconcile(t.Context(), request)
	if !errors.Is(err, reconcile.TerminalError(nil)) || !errors.Is(err, member.ErrMisused) {
		t.Errorf("err = %v", err)
	}
}

// The logger that a Member was given is that of all that is built on it.
func TestResyncLogsByTheLoggerOfTheMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		with, told := lines(context.Background())
		f, q := &logging{membertest.New(), logr.FromContextOrDiscard(with)}, newQueue()
		ctx, cancel := context.WithCancel(t.Context())
		if err := gate.NewResync(f, fake.NewFakeClient(), &corev1.ConfigMap{}).Start(ctx, q); err != nil {
			t.Fatal(err)
		}
		f.Promote(ns)
		synctest.Wait()
		if got := told(); len(got) != 1 || !strings.Contains(got[0], "Resynced after a promotion") {
			t.Errorf("it says %q", got)
		}
		cancel()
		synctest.Wait()
		q.ShutDown()
	})
}

// logging gives contexts that carry a logger, as a Member does.
type logging struct {
	*membertest.Fake
	logger logr.Logger
}

func (l *logging) Context(ctx context.Context, namespace string) (context.Context, context.CancelFunc, error) {
	work, done, err := l.Fake.Context(ctx, namespace)
	if err != nil {
		return nil, nil, err
	}
	return logr.NewContext(work, l.logger), done, nil
}
