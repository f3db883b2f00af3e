package member_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/member"
)

const staleAfter = 40 * time.Second

// reader is a Member of a server, in a bubble.
type reader struct {
	*member.Member
	*server
	cluster *cluster // makes Leases by the same clock
}

func newReader(t *testing.T, namespaces ...string) *reader {
	t.Helper()
	return newReaderWith(t, member.Options{Namespaces: namespaces, StaleAfter: staleAfter})
}

func newReaderWith(t *testing.T, o member.Options) *reader {
	t.Helper()
	r := &reader{server: newServer(), cluster: newCluster(t)}
	o.Clock = r.cluster.clock
	m, err := member.New(r.config(), o)
	if err != nil {
		t.Fatal(err)
	}
	r.Member = m
	return r
}

// start runs the Member until the test is over.
func (r *reader) start(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Start(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestMemberFollowsItsCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t)
		leads := func(want bool, when string) {
			t.Helper()
			synctest.Wait()
			if _, got := r.Term(ns); got != want {
				t.Errorf("%s: leads = %v, want %v", when, got, want)
			}
		}
		r.put(r.cluster.leaseOf(ns, us, 7))
		leads(false, "before Start")
		stop := r.start(t)
		if err := r.WaitForSync(within(t)); err != nil {
			t.Fatal(err)
		}
		leads(true, "listed")
		r.put(r.cluster.leaseOf(ns, them, 8))
		leads(false, "another cluster was chosen")
		r.put(r.cluster.leaseOf(ns, us, 9))
		leads(true, "chosen again")
		r.remove(ns, v1alpha1.DefaultLeaseName)
		leads(false, "deleted")
		r.put(r.cluster.leaseOf(ns, us, 9))
		leads(true, "repaired")
		ctx, cancel, err := r.Context(t.Context(), ns)
		if err != nil {
			t.Fatal(err)
		}
		defer cancel()
		stop()
		leads(false, "stopped")
		r.Terms().Observe(r.cluster.leaseOf(ns, us, 10))
		leads(false, "whatever is seen after that")
		if !errors.Is(context.Cause(ctx), member.ErrLost) {
			t.Errorf("after Start returned, cause = %v, want ErrLost", context.Cause(ctx))
		}
		if err := r.Start(within(t)); err == nil {
			t.Error("the second Start did not fail")
		}
	})
}

func TestMemberKeepsItsTermWhileTheWatchIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t)
		r.put(r.cluster.leaseOf(ns, us, 7))
		defer r.start(t)()
		if err := r.WaitForSync(within(t)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel, err := r.Context(t.Context(), ns)
		if err != nil {
			t.Fatal(err)
		}
		defer cancel()
		for range 60 { // five minutes, in which each watch lasts at most 20 s
			pass(5 * time.Second)
			r.put(r.cluster.leaseOf(ns, us, 7))
		}
		if ctx.Err() != nil {
			t.Errorf("the term ended: %v", context.Cause(ctx))
		}
	})
}

func TestStartWaitsForItsListeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t)
		r.put(r.cluster.leaseOf(ns, us, 7))
		told := false
		defer r.Listen(member.Listener{Demoted: func(string, error) { pass(time.Minute); told = true }})()
		stop := r.start(t)
		if err := r.WaitForSync(within(t)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		stop()
		if !told {
			t.Error("Start returned while a listener was being told that its term is over")
		}
	})
}

func TestStartEndsAtOnceWhateverItWaitsFor(t *testing.T) {
	for name, m := range map[string]mode{"a list": hangs, "the next try": refuses, "a watch": answers} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReader(t)
				r.become(m)
				stop := r.start(t)
				pass(time.Minute)
				began := time.Now()
				stop()
				if took := time.Since(began); took != 0 {
					t.Errorf("Start returned %v after its context ended", took)
				}
			})
		})
	}
}

func TestStartReturnsWhenWhatItBeganHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t)
		r.become(clings)
		stop := r.start(t)
		pass(time.Millisecond)
		began := time.Now()
		stop()
		if took := time.Since(began); took != time.Second {
			t.Errorf("Start returned %v after its context ended, and a request ends a second after it", took)
		}
	})
}

func TestWaitForSyncSaysWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t, "shop")
		r.become(hangs)
		defer r.start(t)()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := r.WaitForSync(ctx)
		if !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "the Leases of namespace shop have not been listed yet") {
			t.Errorf("err = %v, want a deadline that names the namespace", err)
		}
	})
}

func TestMemberAsksForNoMoreThanItsNamespaces(t *testing.T) {
	for name, tc := range map[string]struct{ namespaces, want []string }{
		"none given: all": {nil, []string{
			"/apis/coordination.k8s.io/v1/leases?leasecast.dev/managed=true",
			"/apis/coordination.k8s.io/v1/leases?leasecast.dev/managed=true",
		}},
		"each given one, once": {[]string{"b", "a", "b"}, []string{
			"/apis/coordination.k8s.io/v1/namespaces/a/leases?leasecast.dev/managed=true",
			"/apis/coordination.k8s.io/v1/namespaces/a/leases?leasecast.dev/managed=true",
			"/apis/coordination.k8s.io/v1/namespaces/b/leases?leasecast.dev/managed=true",
			"/apis/coordination.k8s.io/v1/namespaces/b/leases?leasecast.dev/managed=true",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReader(t, tc.namespaces...)
				defer r.start(t)()
				if err := r.WaitForSync(within(t)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				asked := r.requests() // a list and a watch each
				slices.Sort(asked)
				if !slices.Equal(asked, tc.want) {
					t.Errorf("asked for %q, want %q", asked, tc.want)
				}
			})
		})
	}
}

func TestHealthz(t *testing.T) {
	synced := func(r *reader) { _ = r.WaitForSync(context.Background()) }
	cases := map[string]struct {
		first   mode // of the server when the Member starts
		happens func(r *reader)
		stale   bool
	}{
		"a follower of a quiet cluster stays healthy": {happens: func(r *reader) { synced(r); pass(24 * time.Hour) }},
		"starting may take a while":                   {first: hangs, happens: func(*reader) { pass(staleAfter) }},
		"but no longer": {
			first:   hangs,
			happens: func(*reader) { pass(staleAfter + 1) },
			stale:   true,
		},
		"a server that refuses the watch": {
			first:   refuses,
			happens: func(*reader) { pass(staleAfter + 1) },
			stale:   true,
		},
		"a server that falls silent is noticed in time": {
			happens: func(r *reader) { synced(r); r.become(hangs); pass(2 * staleAfter) },
			stale:   true,
		},
		"one that comes back is trusted again": {happens: func(r *reader) {
			synced(r)
			r.become(hangs)
			pass(2 * staleAfter)
			r.become(answers)
			pass(staleAfter)
		}},
		"permission taken away later is noticed": {
			happens: func(r *reader) { synced(r); r.become(refuses); pass(2 * staleAfter) },
			stale:   true,
		},
		"a watch that begins but says nothing hides nothing": {happens: func(r *reader) {
			synced(r)
			r.become(deaf)
			pass(2 * staleAfter)
		}},
		"lists are signs of life, where watches are refused": {
			first:   lists,
			happens: func(r *reader) { synced(r); pass(2 * staleAfter) },
		},
		"a suspend longer than that is staleness": {
			happens: func(r *reader) { synced(r); r.cluster.clock.Suspend(staleAfter + 1) },
			stale:   true,
		},
		"until the server is heard again": {happens: func(r *reader) {
			synced(r)
			r.cluster.clock.Suspend(time.Hour)
			pass(staleAfter)
		}},
		"a step of the wall clock alone is none": {happens: func(r *reader) {
			synced(r)
			r.cluster.clock.Step(time.Hour)
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReader(t)
				r.become(tc.first)
				defer r.start(t)()
				tc.happens(r)
				synctest.Wait()
				if err := r.Healthz(nil); (err != nil) != tc.stale {
					t.Errorf("Healthz = %v, want an error: %v", err, tc.stale)
				}
			})
		})
	}
}

func TestHealthzSaysWhatIsWrongAndWhatToDo(t *testing.T) {
	const neverListed = "the leases in namespace shop were never listed, "
	synced := func(t *testing.T, r *reader, then mode) (stop func()) {
		stop = r.start(t)
		_ = r.WaitForSync(context.Background())
		r.become(then)
		return stop
	}
	for name, tc := range map[string]struct {
		begins     func(t *testing.T, r *reader) (stop func())
		want       string
		registered bool
	}{
		"it was not started": {
			begins: func(*testing.T, *reader) func() { return func() {} },
			want:   neverListed + "because the Member is not started: add it to the manager by mgr.Add, or call Start",
		},
		"it was not started, and is to register": {
			begins:     func(*testing.T, *reader) func() { return func() {} },
			want:       neverListed + "because the Member is not started: add it to the manager by mgr.Add, or call Start",
			registered: true,
		},
		"never listed, without rights": {
			begins: func(t *testing.T, r *reader) func() { r.become(refuses); return r.start(t) },
			want:   neverListed + "for 1m20s by now; " + bindReader,
		},
		"never listed, without an answer": {
			begins: func(t *testing.T, r *reader) func() { r.become(hangs); return r.start(t) },
			want:   neverListed + "for 1m20s by now; the API server does not answer, check the way to it: list leases: ",
		},
		"listed once, and without rights since": {
			begins: func(t *testing.T, r *reader) func() { return synced(t, r, refuses) },
			want: "the watch of leases in namespace shop is stale: " +
				"nothing was seen for 1m20s, want at most 40s; bind leasecast-reader",
		},
		"listed once, and without an answer since": {
			begins: func(t *testing.T, r *reader) func() { return synced(t, r, hangs) },
			want:   "the watch of leases in namespace shop is dead: the API server has not answered for ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReader(t, "shop")
				if tc.registered {
					r = newRegistered(t, "shop")
				}
				stop := tc.begins(t, r)
				defer stop()
				pass(2 * staleAfter)
				err := r.Healthz(nil)
				if err == nil || !strings.HasPrefix(err.Error(), "member: "+tc.want) {
					t.Errorf("Healthz = %v\nwant       member: %s", err, tc.want)
				}
			})
		})
	}
}

func TestARenewTimeMayLieASecondInTheFutureByDefault(t *testing.T) {
	for ahead, want := range map[time.Duration]bool{time.Second: true, time.Second + time.Millisecond: false} {
		synctest.Test(t, func(t *testing.T) {
			r := newReaderWith(t, member.Options{})
			defer r.start(t)()
			r.cluster.clock.Step(ahead)
			l := r.cluster.leaseOf(ns, us, 7)
			r.cluster.clock.Step(-ahead)
			r.put(l)
			if r.leads(ns) != want {
				t.Errorf("a renewTime %v ahead: leads = %v, want %v", ahead, !want, want)
			}
		})
	}
}

func TestNewRefusesAConfigurationByWhichNobodyConnects(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "ca.crt")
	cfg := &rest.Config{Host: "https://member", TLSClientConfig: rest.TLSClientConfig{CAFile: missing}}
	_, err := member.New(cfg, member.Options{})
	if err == nil || !strings.Contains(err.Error(), "member: connect to the API server") ||
		!strings.Contains(err.Error(), missing) {
		t.Errorf("err = %v, want one that names %s", err, missing)
	}
}

func TestListsOfAQuietClusterAreAQuarterToHalfOfStaleAfterApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t)
		defer r.start(t)()
		pass(time.Hour)
		if got, most := r.asks(), int(time.Hour/(staleAfter/4)); got > most || got < most/2 {
			t.Errorf("%d lists in an hour, want %d to %d", got, most/2, most)
		}
		lists, since := r.listed(), time.Duration(0)
		for range 2 * time.Hour / time.Second {
			if pass(time.Second); r.listed() > lists {
				lists, since = r.listed(), 0
			} else if since += time.Second; since >= staleAfter/2 {
				t.Fatalf("no list for %v, want less than %v between two", since, staleAfter/2)
			}
		}
	})
}

// Where a watch does not do, lists must.
func TestMemberFollowsWithoutAWorkingWatch(t *testing.T) {
	for name, tc := range map[string]struct {
		mode   mode
		within time.Duration
	}{
		"watches are refused":           {lists, 5 * time.Second},
		"watches end at once":           {hasty, 5 * time.Second},
		"watches say nothing, for ever": {deaf, staleAfter/2 + staleAfter/8},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReader(t)
				r.become(tc.mode)
				r.put(r.cluster.leaseOf(ns, them, 7))
				defer r.start(t)()
				if err := r.WaitForSync(within(t)); err != nil {
					t.Fatal(err)
				}
				pass(time.Hour) // so that retries are as slow as they get
				l := r.cluster.leaseOf(ns, us, 8)
				*l.Spec.LeaseDurationSeconds = 3600
				r.put(l)
				pass(tc.within)
				if _, ok := r.Term(ns); !ok {
					t.Errorf("does not lead %v after it was chosen", tc.within)
				}
				if asked, limit := len(r.requests()), 2*3600; asked > limit {
					t.Errorf("%d requests in an hour, want at most %d", asked, limit)
				}
			})
		})
	}
}

func TestMemberStartsOverAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t)
		r.put(r.cluster.leaseOf(ns, us, 7))
		defer r.start(t)()
		if err := r.WaitForSync(within(t)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		term, _ := r.Term(ns)
		for range 3 {
			r.fail()
			pass(5 * time.Second)
			r.put(r.cluster.leaseOf(ns, us, 7))
			synctest.Wait()
			if got := term.Remaining(); got != duration {
				t.Errorf("%v remain after the renewal, want %v", got, duration)
			}
		}
	})
}
