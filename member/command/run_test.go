package command

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func pass(d time.Duration) { <-time.After(d) }

// When the signals come, counted from the first renewTime. Looks are up to 100 ms apart, and only SIGKILL is exact.
func TestWhenTheProgramIsStoppedAndKilled(t *testing.T) {
	const never = -1
	deadline := d - d/10
	cases := map[string]struct {
		stopAhead      time.Duration
		happens        func(s *stage)
		asked, killed  time.Duration
		killedIsNotYet bool
	}{
		"a quarter of the duration before the deadline, and at it": {
			0, func(*stage) {}, d * 3 / 4, deadline, false},
		"as long before as is asked for": {
			time.Second, func(*stage) {}, d - time.Second, d - time.Second/2, false},
		"a third of the duration before at most, because renewals come later than that": {
			time.Hour, func(*stage) {}, d * 2 / 3, deadline, false},
		"not while it is renewed": {
			0, func(s *stage) {
				for range 10 {
					pass(d / 3)
					s.lease(us, 1)
				}
			}, never, never, true},
		"counted from the last renewal": {
			0, func(s *stage) { pass(d / 2); s.lease(us, 1) }, d/2 + d*3/4, d/2 + deadline, false},
		"at once when the term is revoked, and a quarter later": {
			0, func(s *stage) { pass(time.Second); s.lease("", 2) }, time.Second, time.Second + d/4, false},
		"at once when the Lease is gone, and a quarter later": {
			0, func(s *stage) { pass(time.Second); s.Delete(ns, "leasecast") }, time.Second, time.Second + d/4, false},
		"at once when another cluster leads": {
			0, func(s *stage) { pass(time.Second); s.lease(them, 2) }, never, time.Second, false},
		"earlier when an edit that promised more is repaired": {
			0, func(s *stage) {
				l, _ := leaseOf(s.clock.Now(), us, 1, time.Hour)
				s.Observe(l)
				pass(time.Second)
				s.lease(us, 1)
			}, time.Second + d*3/4, time.Second + deadline, false},
		"after a suspend past the deadline at once": {
			0, func(s *stage) { pass(time.Second); s.clock.Suspend(time.Hour) }, never, time.Hour + time.Second, false},
		"after a suspend that a step back of the wall clock hides at once": {
			0, func(s *stage) {
				pass(time.Second)
				s.clock.Suspend(time.Hour)
				s.clock.Step(-time.Hour)
			}, never, time.Hour + time.Second, false},
		"after a step of the wall clock past the deadline at once": {
			0, func(s *stage) { pass(time.Second); s.clock.Step(time.Hour) }, never, time.Second, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, Options{StopAhead: tc.stopAhead})
				began := s.clock.Now().Boot
				s.lease(us, 1)
				synctest.Wait()
				_, g := s.runs()
				tc.happens(s)
				synctest.Wait()
				if !tc.killedIsNotYet {
					pass(2 * d)
				}
				asked, killed := g.seen()
				expect(t, "SIGTERM", asked, began, tc.asked, look)
				expect(t, "SIGKILL", killed, began, tc.killed, look)
				if killed > began+tc.killed && tc.killed == deadline {
					t.Errorf("SIGKILL comes %v after its time", killed-began-tc.killed)
				}
			})
		})
	}
}

func expect(t *testing.T, what string, got, began, want, slack time.Duration) {
	t.Helper()
	switch {
	case want < 0 && got != 0:
		t.Errorf("%s comes after %v, want never", what, got-began)
	case want >= 0 && got == 0:
		t.Errorf("%s never comes, want after %v", what, want)
	case want >= 0 && (got-began < want-slack || got-began > want+slack):
		t.Errorf("%s comes after %v, want after %v", what, got-began, want)
	}
}

// The watchdog knows the same deadline as the gate.
func TestTheWatchdogIsToldEveryDeadline(t *testing.T) {
	cases := map[string]struct {
		happens func(s *stage)
		want    time.Duration // from the start on
	}{
		"of the first Lease": {func(*stage) {}, d - d/10},
		"of a renewal":       {func(s *stage) { pass(d / 2); s.lease(us, 1) }, d/2 + d - d/10},
		"of a revocation":    {func(s *stage) { pass(time.Second); s.lease("", 2) }, time.Second + d/4},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, Options{})
				began := s.clock.Now()
				s.lease(us, 1)
				synctest.Wait()
				tc.happens(s)
				pass(look)
				synctest.Wait()
				_, g := s.runs()
				g.mu.Lock()
				defer g.mu.Unlock()
				if want := after(began, tc.want); !g.until.near(want) {
					t.Errorf("the watchdog kills %v after the start, want %v", g.until.in(began), want.in(began))
				}
			})
		})
	}
}

func TestTheProgramRunsInEachTermAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options{})
		steps := []struct {
			what   string
			holder string
			epoch  int64
			want   int
		}{
			{"another cluster leads", them, 1, 0},
			{"promoted", us, 2, 1},
			{"renewed", us, 2, 1},
			{"another cluster leads again", them, 3, 1},
			{"promoted again", us, 4, 2},
		}
		for _, step := range steps {
			s.lease(step.holder, step.epoch)
			pass(look)
			synctest.Wait()
			if n, _ := s.runs(); n != step.want {
				t.Errorf("%s: the program was started %d times, want %d", step.what, n, step.want)
			}
		}
	})
}

// A renewal that came late finds a program that was told to stop: it is started again.
func TestAProgramThatWasStoppedInVainRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options{})
		s.lease(us, 1)
		pass(d*3/4 + look)
		_, g := s.runs()
		g.exits(0)
		pass(look)
		if n, _ := s.runs(); n != 1 {
			t.Errorf("the program was started %d times while too little of the term was left, want 1", n)
		}
		s.lease(us, 1)
		pass(2 * look)
		if n, _ := s.runs(); n != 2 {
			t.Errorf("the program was started %d times, want 2", n)
		}
	})
}

func TestTheTermGoesOnUntilTheWholeGroupIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options{})
		s.lease(us, 1)
		synctest.Wait()
		_, g := s.runs()
		g.mu.Lock()
		g.lingers = time.Minute
		g.mu.Unlock()
		s.lease("", 2)
		synctest.Wait()
		g.exits(0)
		pass(time.Minute - time.Second)
		s.lease(us, 3)
		pass(look)
		if n, _ := s.runs(); n != 1 {
			t.Error("the next term has begun while a process of the last one was there")
		}
		pass(2 * time.Second)
		if n, _ := s.runs(); n != 2 {
			t.Error("the next term has not begun, although all processes of the last one are gone")
		}
	})
}

func TestHowTheGateEnds(t *testing.T) {
	cases := map[string]struct {
		happens func(s *stage, signals chan<- os.Signal)
		code    int
		err     error
	}{
		"with the code of a program that has ended by itself": {func(s *stage, _ chan<- os.Signal) {
			s.lease(us, 1)
			synctest.Wait()
			_, g := s.runs()
			g.exits(7)
		}, 7, nil},
		"with that of one that was asked to end by a signal to the gate": {func(s *stage, signals chan<- os.Signal) {
			s.lease(us, 1)
			synctest.Wait()
			signals <- syscall.SIGTERM
			synctest.Wait()
			_, g := s.runs()
			g.exits(3)
		}, 3, nil},
		"with 0 when it is asked to end and runs nothing": {func(_ *stage, signals chan<- os.Signal) {
			signals <- syscall.SIGINT
		}, 0, nil},
		"with 0 when it is asked to end after its program was stopped": {func(s *stage, signals chan<- os.Signal) {
			s.lease(us, 1)
			synctest.Wait()
			_, g := s.runs()
			g.endsWith(137)
			s.lease(them, 2)
			synctest.Wait()
			signals <- syscall.SIGTERM
		}, 0, nil},
		"with that of the last run when the term is over before a program has heeded a signal": {func(s *stage, signals chan<- os.Signal) {
			s.lease(us, 1)
			synctest.Wait()
			_, g := s.runs()
			g.endsWith(137)
			signals <- syscall.SIGTERM
		}, 137, nil},
		"with an error when the program cannot be started": {func(s *stage, _ chan<- os.Signal) {
			s.starts = func() error { return errCannotExec }
			s.lease(us, 1)
		}, CannotExec, errCannotExec},
		"with an error when the watchdog does not hear of a renewal": {func(s *stage, _ chan<- os.Signal) {
			s.lease(us, 1)
			synctest.Wait()
			_, g := s.runs()
			g.hearsNothing()
			pass(time.Second)
			s.lease(us, 1)
		}, Failed, errUnguarded},
		"with an error when the watchdog has ended": {func(s *stage, _ chan<- os.Signal) {
			s.lease(us, 1)
			synctest.Wait()
			_, g := s.runs()
			close(g.left)
		}, Failed, errUnguarded},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				signals := make(chan os.Signal)
				s := newStage(t, Options{Signals: signals})
				tc.happens(s, signals)
				select {
				case <-s.ended:
				case <-time.After(2 * d):
					t.Fatal("the gate does not end")
				}
				if s.exit != tc.code || !errors.Is(s.err, tc.err) {
					t.Errorf("the gate ends with %d, %v; want %d, %v", s.exit, s.err, tc.code, tc.err)
				}
				if n, g := s.runs(); n > 0 && !g.done {
					t.Error("the gate has ended, and its program has not")
				}
			})
		})
	}
}

// At its instant the watchdog kills the group, and itself. The gate may see that in any order, and goes on.
func TestTheGateOutlivesTheEndOfATerm(t *testing.T) {
	const until = d - d/10
	cases := map[string]struct {
		starts  func() error
		happens func(s *stage, g *fakeGroup) // g: nil if it was not started
	}{
		"that comes while the program is started": {func() error { pass(until); return errCannotExec }, func(*stage, *fakeGroup) { pass(until) }},
		"where the watchdog's end is seen first":  {nil, func(s *stage, g *fakeGroup) { s.clock.Step(until); close(g.left) }},
		"where the program's end is seen first":   {nil, func(s *stage, g *fakeGroup) { s.clock.Step(until); g.exits(137) }},
		"where a renewal comes after that": {nil, func(s *stage, g *fakeGroup) {
			g.hearsNothing()
			s.clock.Step(until)
			s.lease(us, 1)
			pass(look)
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, Options{})
				s.starts = tc.starts
				s.lease(us, 1)
				synctest.Wait()
				before, g := s.runs()
				tc.happens(s, g)
				synctest.Wait()
				s.starts = nil
				s.lease(us, 2)
				pass(2 * look)
				select {
				case <-s.ended:
					t.Fatalf("the gate ends with %d, %v", s.exit, s.err)
				default:
				}
				if n, _ := s.runs(); n <= before {
					t.Errorf("the program was started %d times, want more: it runs again", n)
				}
			})
		})
	}
}

func TestSignalsArePassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal)
		s := newStage(t, Options{Signals: signals})
		s.lease(us, 1)
		synctest.Wait()
		want := []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}
		for _, sig := range want {
			signals <- sig
		}
		synctest.Wait()
		_, g := s.runs()
		g.mu.Lock()
		defer g.mu.Unlock()
		if !slices.Equal(g.signals, want) {
			t.Errorf("the program got %v, want %v", g.signals, want)
		}
	})
}
