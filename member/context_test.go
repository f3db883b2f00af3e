package member_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/member"
)

// context returns a context of the namespace's term, which must stand.
func (c *cluster) context(namespace string) (context.Context, context.CancelFunc) {
	c.t.Helper()
	ctx, cancel, err := c.Context(context.Background(), namespace)
	if err != nil {
		c.t.Fatal(err)
	}
	return ctx, cancel
}

func TestContextEndsWithTheTermAndNotBefore(t *testing.T) {
	cases := map[string]struct {
		happens func(c *cluster)
		within  time.Duration // 0: ended when the call that ended it returns
		lives   bool
	}{
		"another cluster is chosen":     {happens: func(c *cluster) { c.write(ns, them, 8) }},
		"the term is revoked":           {happens: func(c *cluster) { c.write(ns, none, 8) }},
		"this cluster begins a new one": {happens: func(c *cluster) { c.write(ns, us, 8) }},
		"the Lease is deleted":          {happens: func(c *cluster) { c.Delete(ns, v1alpha1.DefaultLeaseName) }},
		"a list lacks the Lease":        {happens: func(c *cluster) { c.Replace("", nil) }},
		"the deadline is reached":       {happens: func(*cluster) { pass(duration) }},
		"a moment before the deadline":  {happens: func(*cluster) { pass(duration - time.Microsecond) }, lives: true},
		"a renewal comes in time": {happens: func(c *cluster) {
			for range 10 {
				pass(duration - time.Microsecond)
				c.write(ns, us, 7)
			}
		}, lives: true},
		"a renewal comes too late":   {happens: func(c *cluster) { c.clock.Suspend(duration); c.write(ns, us, 7) }},
		"the wall clock jumps ahead": {happens: func(c *cluster) { c.clock.Step(duration) }, within: recheck},
		"the machine was suspended":  {happens: func(c *cluster) { c.clock.Suspend(duration) }, within: recheck},
		"the machine was suspended a little": {
			happens: func(c *cluster) { c.clock.Suspend(duration / 2); pass(duration/2 - time.Microsecond) },
			lives:   true,
		},
		"suspended, and its wall clock slept": {
			happens: func(c *cluster) { c.clock.Suspend(duration); c.clock.Step(-duration) }, within: recheck},
		"the deadline of a renewal is reached": {happens: func(c *cluster) {
			pass(37 * time.Millisecond) // out of step with what is looked at every 100 ms
			c.write(ns, us, 7)
			pass(duration)
		}},
		"a deadline is taken back to one that has passed": {happens: func(c *cluster) {
			earlier := c.leaseOf(ns, us, 7)
			pass(duration / 2)
			c.write(ns, us, 7)
			pass(duration/2 + 37*time.Millisecond) // out of step with what is looked at every 100 ms
			c.Observe(earlier)
		}},
		"the wall clock is stepped back": {happens: func(c *cluster) { c.clock.Step(-time.Hour); pass(duration) }},
		"an older epoch is seen":         {happens: func(c *cluster) { c.write(ns, them, 6) }, lives: true},
		"another namespace loses its leader": {
			happens: func(c *cluster) { c.write("other", us, 7); c.write("other", them, 8) },
			lives:   true,
		},
		"another namespace's deadline is nearer": {
			happens: func(c *cluster) { pass(duration / 2); c.write("other", us, 7); pass(duration/2 - time.Microsecond) },
			lives:   true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.write(ns, us, 7)
				ctx, cancel := c.context(ns)
				defer cancel()
				tc.happens(c)
				pass(tc.within)
				synctest.Wait() // a timer that is due now has fired
				if lives := ctx.Err() == nil; lives != tc.lives {
					t.Fatalf("the context lives = %v, want %v", lives, tc.lives)
				}
				if cause := context.Cause(ctx); !tc.lives && !errors.Is(cause, member.ErrLost) {
					t.Errorf("cause = %v, want ErrLost", cause)
				}
			})
		})
	}
}

func TestContextOfALateLeaseEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		late := c.leaseOf(ns, us, 7)
		pass(duration - 37*time.Millisecond)
		c.write("other", us, 7) // has the clock looked at later than that
		c.Observe(late)
		ctx, cancel := c.context(ns)
		defer cancel()
		pass(37 * time.Millisecond)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("the context outlives the deadline")
		}
	})
}

func TestATermThatBeginsPutsTheEndOfNoOtherOff(t *testing.T) {
	const soon, sooner = 60 * time.Millisecond, 10 * time.Millisecond
	for name, left := range map[string]time.Duration{
		"it lasts long":    duration,
		"it ends soon too": soon - time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				first := c.leaseOf(ns, us, 7)
				pass(duration - soon)
				c.Observe(first)
				ctx, cancel := c.context(ns)
				defer cancel()
				pass(soon - sooner)
				next := c.leaseOf("other", us, 7)
				next.Spec.RenewTime.Time = next.Spec.RenewTime.Add(left - duration)
				c.Observe(next)
				pass(sooner)
				synctest.Wait()
				if ctx.Err() == nil {
					t.Error("the context outlives its deadline")
				}
			})
		})
	}
}

func TestContextEndsWhenItsWorkIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.write(ns, us, 7)
		ctx, cancel := c.context(ns)
		cancel()
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) || errors.Is(cause, member.ErrLost) {
			t.Errorf("cause = %v, want context.Canceled", cause)
		}
		cancel() // again does no harm, nor does it after the term
		c.write(ns, them, 8)
		cancel()
	})
}

func TestAnActBeginsOnlyInItsTerm(t *testing.T) {
	cases := map[string]struct {
		happens      func(c *cluster, cancel context.CancelFunc)
		begins, lost bool
	}{
		"the term stands": {func(*cluster, context.CancelFunc) {}, true, false},
		"it has been renewed": {
			happens: func(c *cluster, _ context.CancelFunc) { pass(duration / 2); c.write(ns, us, 7); pass(duration / 2) },
			begins:  true,
		},
		"a nanosecond before the deadline": {
			happens: func(c *cluster, _ context.CancelFunc) { c.clock.Suspend(duration - time.Nanosecond) },
			begins:  true,
		},
		"at the deadline, before the timer runs": {
			happens: func(c *cluster, _ context.CancelFunc) { c.clock.Suspend(duration) },
			lost:    true,
		},
		"another cluster leads": {
			happens: func(c *cluster, _ context.CancelFunc) { c.write(ns, them, 8) },
			lost:    true,
		},
		"the next term is ours too": {
			happens: func(c *cluster, _ context.CancelFunc) { c.write(ns, us, 8) },
			lost:    true,
		},
		"the work was told to stop": {func(_ *cluster, cancel context.CancelFunc) { cancel() }, false, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.write(ns, us, 7)
				ctx, cancel := c.context(ns)
				defer cancel()
				tc.happens(c, cancel)
				err := member.Check(ctx)
				if tc.begins != (err == nil) || tc.begins == errors.Is(err, member.ErrNotBegun) ||
					tc.lost != errors.Is(err, member.ErrLost) {
					t.Errorf("Check = %v; begins %v, lost %v", err, tc.begins, tc.lost)
				}
			})
		})
	}
}

func TestWorkOutsideOfATermIsAskedForItsOwnEndOnly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	if err := member.Check(ctx); err != nil {
		t.Errorf("Check = %v of a live context without a term", err)
	}
	cancel()
	if err := member.Check(ctx); !errors.Is(err, member.ErrNotBegun) || !errors.Is(err, context.Canceled) {
		t.Errorf("Check = %v of a cancelled context, want ErrNotBegun with context.Canceled", err)
	}
}

func TestContextSaysWhyItEnded(t *testing.T) {
	const (
		over   = "the term is over: namespace shop, epoch 7: "
		ranOut = "it ran out: the last Lease was 0.0 s old on arrival, and lasts 15 s"
	)
	cases := map[string]struct {
		happens func(c *cluster)
		want    string
	}{
		"another cluster": {func(c *cluster) { c.write(ns, them, 8) }, "west.fleet leads in epoch 8"},
		"nobody":          {func(c *cluster) { c.write(ns, none, 8) }, "no cluster leads in epoch 8"},
		"a new term":      {func(c *cluster) { c.write(ns, us, 8) }, "the next one has begun in epoch 8"},
		"deleted":         {func(c *cluster) { c.Delete(ns, v1alpha1.DefaultLeaseName) }, "its Lease is gone"},
		"ran out":         {func(*cluster) { pass(duration + recheck) }, ranOut},
		"ran out, renewed late": {func(c *cluster) {
			late := c.leaseOf(ns, us, 7)
			pass(8400 * time.Millisecond)
			late.Spec.RenewTime.Time = late.Spec.RenewTime.Add(time.Second)
			c.Observe(late)
			pass(duration)
		}, "it ran out: the last Lease was 7.4 s old on arrival, and lasts 15 s"},
		"ran out, and the clock was ahead": {func(c *cluster) {
			c.clock.Step(10 * time.Second)
			late := c.leaseOf(ns, us, 7)
			late.Spec.RenewTime.Time = late.Spec.RenewTime.Add(-9 * time.Second)
			c.Observe(late)
			pass(duration)
		}, "it ran out: the last Lease was 9.0 s old on arrival, and lasts 15 s; " +
			"this machine's clock is ahead of the hub's, or Leases are late"},
		"ran out, and nobody looked": {func(c *cluster) { c.clock.Suspend(duration); c.write(ns, them, 8) }, ranOut},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.write(ns, us, 7)
				ctx, cancel := c.context(ns)
				defer cancel()
				tc.happens(c)
				if got := context.Cause(ctx); got == nil || got.Error() != over+tc.want {
					t.Errorf("cause = %v, want %s", got, over+tc.want)
				}
			})
		})
	}
}

func TestContextIsRefusedToFollowers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		for name, happens := range map[string]func(){
			"unknown":  func() {},
			"follower": func() { c.write(ns, them, 7) },
			"ran out":  func() { c.write(ns, us, 8); c.clock.Suspend(duration) },
		} {
			happens()
			if _, _, err := c.Context(t.Context(), ns); !errors.Is(err, member.ErrNotLeader) {
				t.Errorf("%s: err = %v, want ErrNotLeader", name, err)
			}
		}
	})
}

func TestContextCarriesTheEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.write(ns, us, 7)
		ctx, cancel := c.context(ns)
		defer cancel()
		if epoch, ok := member.EpochFrom(ctx); epoch != 7 || !ok {
			t.Errorf("EpochFrom = %d, %v, want 7, true", epoch, ok)
		}
		if term, ok := member.TermFrom(ctx); !ok || !term.Holds() || term.Remaining() != duration ||
			c.State(ns).Duration != duration {
			t.Errorf("TermFrom: holds %v for %v, of %v, want the new term", term.Holds(), term.Remaining(), c.State(ns).Duration)
		}
		if _, ok := member.TermFrom(context.Background()); ok {
			t.Error("TermFrom finds a term in a context without one")
		}
		if epoch, ok := member.EpochFrom(context.Background()); epoch != 0 || ok {
			t.Errorf("EpochFrom = %d, %v of a context without a term, want 0, false", epoch, ok)
		}
	})
}

func TestContextEndsWithItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.write(ns, us, 7)
		stop := errors.New("stop")
		parent, cancelParent := context.WithCancelCause(context.Background())
		ctx, cancel, err := c.Context(parent, ns)
		if err != nil {
			t.Fatal(err)
		}
		defer cancel()
		cancelParent(stop)
		if got := context.Cause(ctx); !errors.Is(got, stop) {
			t.Errorf("cause = %v, want %v", got, stop)
		}
	})
}

// A context that showed the deadline of its term would keep WithTimeout from
// setting one, and renewals would then move it away.
func TestTimeoutBelowATermsContextEndsAlthoughTheTermGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.write(ns, us, 7)
		ctx, cancel := c.context(ns)
		defer cancel()
		short, cancelShort := context.WithTimeout(ctx, 2*duration)
		defer cancelShort()
		for range 6 {
			pass(duration / 3)
			c.write(ns, us, 7)
		}
		synctest.Wait()
		if short.Err() == nil || ctx.Err() != nil {
			t.Errorf("after its timeout: %v; the term: %v; want it ended and the term not", short.Err(), ctx.Err())
		}
	})
}

// Thousands of short requests in one long term must leave nothing behind.
func TestFinishedContextsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.write(ns, us, 7)
		if grew := heapGrowth(func() {
			for range 10_000 {
				_, cancel := c.context(ns)
				cancel()
			}
		}); grew > 200_000 {
			t.Errorf("10,000 finished contexts left %d bytes behind", grew)
		}
	})
}

func TestContextAndLeadRefuseANamespaceThatIsNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t, "ledger", ns)
		defer r.start(t)()
		_, _, err := r.Context(t.Context(), "typo")
		const want = "the namespace is not watched: namespace typo: the Options.Namespaces of this Member are ledger, shop"
		if !errors.Is(err, member.ErrNotWatched) || errors.Is(err, member.ErrNotLeader) || err.Error() != want {
			t.Errorf("Context says %v, want %s", err, want)
		}
		err = r.Lead(within(t), "typo", func(context.Context) error { return nil })
		if !errors.Is(err, member.ErrNotWatched) || err.Error() != want {
			t.Errorf("Lead says %v, want %s", err, want)
		}
		if s := r.State("typo"); s.Why != member.ErrNotWatched.Error() {
			t.Errorf("State = %+v", s)
		}
	})
}

func TestWhoDoesNotLeadIsToldWhoDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.write(ns, them, 7)
		_, _, err := c.Context(t.Context(), ns)
		var not *member.NotLeaderError
		want := member.State{
			Namespace: ns,
			Cluster:   us,
			Leader:    them,
			Epoch:     7,
			Duration:  duration,
			Why:       "west.fleet leads in epoch 7",
		}
		if !errors.As(err, &not) || !errors.Is(err, member.ErrNotLeader) || not.State != want || c.State(ns) != want {
			t.Errorf("err = %v, State = %+v, want %+v", err, c.State(ns), want)
		}
		c.write(ns, us, 8)
		want = member.State{
			Namespace: ns,
			Cluster:   us,
			Leads:     true,
			Leader:    us,
			Epoch:     8,
			Duration:  duration,
			Terms:     1,
		}
		if got := c.State(ns); got != want {
			t.Errorf("State = %+v, want %+v", got, want)
		}
		ctx, done, err := c.Context(t.Context(), ns)
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		term, _ := c.Term(ns)
		if cluster, ok := member.ClusterFrom(ctx); cluster != us || !ok || term.Cluster() != us {
			t.Errorf("the context is of %q (%v), the term of %q, want %s", cluster, ok, term.Cluster(), us)
		}
		if cluster, ok := member.ClusterFrom(t.Context()); cluster != "" || ok || (member.Term{}).Cluster() != "" {
			t.Errorf("without a term: %q, %v", cluster, ok)
		}
		c.Delete(ns, v1alpha1.DefaultLeaseName)
		want = member.State{
			Namespace: ns,
			Cluster:   us,
			Epoch:     8,
			Duration:  duration,
			Terms:     1,
			Why:       "its Lease is gone",
		}
		if got := c.State(ns); got != want {
			t.Errorf("State = %+v, want %+v", got, want)
		}
	})
}
