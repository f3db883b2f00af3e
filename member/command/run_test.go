package command

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/leasecast/leasecast/member/internal/musttest"
	"github.com/leasecast/leasecast/member/membertest"
)

// The gate checks every 100 ms. SIGKILL at the deadline is exact, and the watchdog has the same deadline.
func TestRun_StopsAndKillsTheProgram(t *testing.T) {
	const never, deadline, s = -1, d - d/10, time.Second
	silence := func(*testGate) { pass(2 * d) }
	after1s := func(happens func(g *testGate)) func(g *testGate) {
		return func(g *testGate) { pass(s); happens(g); pass(2 * d) }
	}
	type row struct {
		stopAhead     time.Duration
		happens       func(g *testGate)
		asked, killed time.Duration // SIGTERM and SIGKILL, from the first renewTime on
	}
	musttest.Each(t, map[string]row{
		"by default":           {0, silence, d * 3 / 4, deadline},
		"stop-ahead":           {s, silence, d - s, d - s/2},
		"a long stop-ahead":    {time.Hour, silence, d * 2 / 3, deadline},
		"renewed":              {0, after1s(func(g *testGate) { g.lease(us, 1) }), s + d*3/4, s + deadline},
		"revoked":              {0, after1s(func(g *testGate) { g.lease("", 2) }), s, s + d/4},
		"the Lease is gone":    {0, after1s(func(g *testGate) { g.Delete(ns, "leasecast") }), s, s + d/4},
		"another leads":        {0, after1s(func(g *testGate) { g.lease(them, 2) }), never, s},
		"suspended":            {0, after1s(func(g *testGate) { g.clock.Suspend(time.Hour) }), never, time.Hour + s},
		"the wall clock steps": {0, after1s(func(g *testGate) { g.clock.Step(time.Hour) }), never, s},
		"suspended, and the wall clock steps back": {0, after1s(func(g *testGate) {
			g.clock.Suspend(time.Hour)
			g.clock.Step(-time.Hour)
		}), never, time.Hour + s},
		"renewed in time": {0, func(g *testGate) {
			for range 10 {
				pass(d / 3)
				g.lease(us, 1)
			}
		}, never, never},
		"an edit that promises more is reverted": {0, func(g *testGate) {
			g.Observe(leaseOf(g.t, g.clock.Now(), us, 1, time.Hour))
			after1s(func(g *testGate) { g.lease(us, 1) })(g)
		}, s + d*3/4, s + deadline},
	}, func(t *testing.T, row row) {
		g := newTestGate(t, row.stopAhead)
		began := g.clock.Now()
		g.lease(us, 1)
		f := g.group()
		row.happens(g)
		synctest.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		for what, at := range map[string]struct{ got, want time.Duration }{
			"SIGTERM": {f.asked, row.asked}, "SIGKILL": {f.killed, row.killed},
		} {
			switch {
			case at.want < 0 && at.got != 0:
				t.Errorf("%s comes after %v, want never", what, at.got-began.Boot)
			case at.want >= 0 && (at.got == 0 || (at.got-began.Boot-at.want).Abs() > look):
				t.Errorf("%s comes after %v, want after %v", what, at.got-began.Boot, at.want)
			}
		}
		if f.killed > began.Boot+row.killed && row.killed == deadline {
			t.Errorf("SIGKILL comes %v after its time", f.killed-began.Boot-row.killed)
		}
		if want := after(began, row.killed); row.asked >= 0 && !f.until.near(want) && f.until.in(began) > row.killed+look {
			t.Errorf("the watchdog kills %v after the start, want %v", f.until.in(began), row.killed)
		}
	})
}

// A full pipe blocks the log. The program must be stopped nonetheless.
func TestRun_StopsTheProgramWhileItsLogBlocks(t *testing.T) {
	type row struct {
		blocks  string // the line that does
		happens func(g *testGate)
	}
	musttest.Each(t, map[string]row{
		"the log of the stop":  {"Stops the program", func(*testGate) { pass(d*3/4 + look) }},
		"the log of the start": {"Runs the program", func(g *testGate) { g.signals <- syscall.SIGTERM }},
	}, func(t *testing.T, row row) {
		g, unblocked := newTestGate(t, 0), make(chan struct{})
		g.Logger = funcr.New(func(_, line string) {
			if strings.Contains(line, row.blocks) {
				<-unblocked
			}
		}, funcr.Options{})
		g.lease(us, 1)
		f := g.group()
		row.happens(g)
		synctest.Wait()
		f.set(func(f *fakeGroup) {
			if f.asked == 0 {
				t.Error("the program gets no SIGTERM")
			}
		})
		close(unblocked)
	})
}

// The gate reads its clock and the rest of its term. Between the two it may be paused.
func TestRun_PausedSetsNoLateDeadline(t *testing.T) {
	pauses := map[string]time.Duration{"not paused": 0, "paused": 200 * time.Millisecond}
	musttest.Each(t, pauses, func(t *testing.T, pause time.Duration) {
		g := newTestGate(t, 0)
		g.paused.pause = pause
		deadline := g.clock.Now().Boot + d
		g.lease(us, 1)
		for range 5 {
			pass(look)
			g.group().set(func(f *fakeGroup) {
				if f.until.Boot > deadline {
					t.Errorf("the watchdog kills %v after the deadline", f.until.Boot-deadline)
				}
			})
		}
	})
}

func TestRun_StartsTheProgramOnceInEachTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGate(t, 0)
		for _, step := range []struct {
			when    string
			happens func()
			want    int
		}{
			{"another cluster leads", func() { g.lease(them, 1) }, 0},
			{"promoted", func() { g.lease(us, 2) }, 1},
			{"renewed", func() { g.lease(us, 2) }, 1},
			{"another cluster leads again", func() { g.lease(them, 3) }, 1},
			{"promoted again", func() { g.lease(us, 4) }, 2},
			{"stopped, too little of the term is left", func() { pass(d * 3 / 4); g.group().exits(0) }, 2},
			{"renewed late", func() { g.lease(us, 4); pass(look) }, 3},
			{"revoked, a process is left", func() {
				g.group().set(func(f *fakeGroup) { f.lingers = time.Minute })
				g.lease("", 5)
				g.group().exits(0)
				pass(time.Minute - time.Second)
				g.lease(us, 6)
			}, 3},
			{"all processes are gone", func() { pass(time.Second) }, 4},
		} {
			step.happens()
			pass(look)
			synctest.Wait()
			if n := g.runs(); n != step.want {
				t.Errorf("%s: the program was started %d times, want %d", step.when, n, step.want)
			}
		}
	})
}

func TestRun_Ends(t *testing.T) {
	killed := func(g *testGate) { g.group().set(func(f *fakeGroup) { f.status = 137 }) }
	type row struct {
		leads   bool
		happens func(g *testGate)
		code    int
		err     error
	}
	musttest.Each(t, map[string]row{
		"the program exits": {true, func(g *testGate) { g.group().exits(7) }, 7, nil},
		"a signal, the program exits": {true, func(g *testGate) {
			g.signals <- syscall.SIGTERM
			g.group().exits(3)
		}, 3, nil},
		"a signal, no program runs":     {false, func(g *testGate) { g.signals <- syscall.SIGINT }, 0, nil},
		"a signal, the term ends first": {true, func(g *testGate) { killed(g); g.signals <- syscall.SIGTERM }, 137, nil},
		"a signal after the program was killed": {true, func(g *testGate) {
			killed(g)
			g.lease(them, 2)
			synctest.Wait()
			g.signals <- syscall.SIGTERM
		}, 0, nil},
		"the program cannot be started": {false, func(g *testGate) {
			g.starts = func() error { return errCannotExec }
			g.lease(us, 1)
		}, CannotExec, errCannotExec},
		"the watchdog gets no renewal": {true, func(g *testGate) {
			g.group().set(func(f *fakeGroup) { f.broken = syscall.EPIPE })
			pass(time.Second)
			g.lease(us, 1)
		}, Failed, errUnguarded},
		"the watchdog ends": {true, func(g *testGate) { close(g.group().left) }, Failed, errUnguarded},
	}, func(t *testing.T, row row) {
		g := newTestGate(t, 0)
		if row.leads {
			g.lease(us, 1)
			g.group()
		}
		row.happens(g)
		select {
		case <-g.ended:
		case <-time.After(2 * d):
			t.Fatal("the gate does not end")
		}
		if g.exit != row.code || !errors.Is(g.err, row.err) {
			t.Errorf("the gate ends with %d, %v; want %d, %v", g.exit, g.err, row.code, row.err)
		}
		if f := g.group(); f != nil && !f.done {
			t.Error("the gate has ended, and its program has not")
		}
	})
}

// At its instant the watchdog kills the group and itself. The gate may observe both in any order, and goes on.
func TestRun_GoesOnAfterATerm(t *testing.T) {
	const until = d - d/10
	type row struct {
		starts  func() error
		happens func(g *testGate, f *fakeGroup) // f: nil if it was not started
	}
	musttest.Each(t, map[string]row{
		"that ends during a start": {func() error { pass(until); return errCannotExec },
			func(*testGate, *fakeGroup) { pass(until) }},
		"and the watchdog ends first": {nil, func(g *testGate, f *fakeGroup) { g.clock.Step(until); close(f.left) }},
		"and the program ends first":  {nil, func(g *testGate, f *fakeGroup) { g.clock.Step(until); f.exits(137) }},
		"and a renewal comes after it": {nil, func(g *testGate, f *fakeGroup) {
			f.set(func(f *fakeGroup) { f.broken = syscall.EPIPE })
			g.clock.Step(until)
			g.lease(us, 1)
			pass(look)
		}},
	}, func(t *testing.T, row row) {
		g := newTestGate(t, 0)
		g.starts = row.starts
		g.lease(us, 1)
		f, before := g.group(), g.runs()
		row.happens(g, f)
		synctest.Wait()
		g.starts = nil
		g.lease(us, 2)
		pass(2 * look)
		select {
		case <-g.ended:
			t.Fatalf("the gate ends with %d, %v", g.exit, g.err)
		default:
		}
		if n := g.runs(); n <= before {
			t.Errorf("the program was started %d times, want more", n)
		}
	})
}

func TestRun_PassesSignalsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGate(t, 0)
		g.lease(us, 1)
		synctest.Wait()
		want := []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}
		for _, s := range want {
			g.signals <- s
		}
		g.group().set(func(f *fakeGroup) {
			if !slices.Equal(f.signals, want) {
				t.Errorf("the program got %v, want %v", f.signals, want)
			}
		})
	})
}

func TestHandler_AnswersWhoLeads(t *testing.T) {
	const ok, unavailable = http.StatusOK, http.StatusServiceUnavailable
	const almost = membertest.Duration - time.Microsecond
	leads := Answer{Leads: true, Leader: "here.fake", Epoch: 1, RemainingMilliseconds: 14_000}
	over, follows := Answer{Leader: "here.fake", Epoch: 1}, Answer{Leader: "other.fake", Epoch: 1}
	for name, row := range map[string]struct {
		happens func(f *membertest.Fake)
		status  int
		want    Answer
	}{
		"no Lease":               {func(*membertest.Fake) {}, unavailable, Answer{}},
		"a leader":               {func(f *membertest.Fake) { f.Promote(ns); f.Advance(time.Second) }, ok, leads},
		"a follower":             {func(f *membertest.Fake) { f.Demote(ns) }, unavailable, follows},
		"it ran out":             {func(f *membertest.Fake) { f.Promote(ns); f.Expire() }, unavailable, over},
		"less than 1 ms is left": {func(f *membertest.Fake) { f.Promote(ns); f.Advance(almost) }, unavailable, over},
	} {
		f := membertest.New()
		row.happens(f)
		w := httptest.NewRecorder()
		Handler(f, ns).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/leader", nil))
		var got Answer
		musttest.Do(t, json.Unmarshal(w.Body.Bytes(), &got))
		if got.Why = ""; w.Code != row.status || got != row.want {
			t.Errorf("%s: %d %+v, want %d %+v", name, w.Code, got, row.status, row.want)
		}
	}
}
