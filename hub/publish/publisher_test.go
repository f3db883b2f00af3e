package publish

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
)

func TestPublisher(t *testing.T) {
	bubble(t, map[string]func(*world){
		"renews every r": func(w *world) {
			w.start()
			w.assignLead("a", 20)
			after(0)
			w.leads("a")
			began := time.Now()
			after(60 * second)
			w.leads("a")
			if n := count(w.member.since(began), "update"); n < 12 || n > 13 {
				w.t.Errorf("%d renewals in a minute", n)
			}
		},
		"reads before a renewal if nothing was answered within 200 ms": func(w *world) {
			w.start()
			w.assignLead("a", 20)
			after(20 * second)
			began := time.Now()
			after(5 * second)
			if rs := w.member.since(began); len(rs) != 2 || rs[0].verb != "get" || rs[1].verb != "update" {
				w.t.Errorf("a lone renewal took %v", rs)
			}
			due := time.Now()
			for len(w.member.since(due)) == 0 {
				after(10 * time.Millisecond)
			}
			renewed := time.Now()
			after(5*second - 160*time.Millisecond)
			began = time.Now()
			w.assignFollow("b")
			after(165 * time.Millisecond)
			if rs := w.member.since(began); len(rs) != 3 || rs[2].verb != "update" || rs[2].key.Namespace != "a" {
				w.t.Errorf("a renewal %v after the last, and 160 ms after an answer to another, took %v", time.Since(renewed), rs)
			}
		},
		"reads before a renewal if the last request was not answered": func(w *world) {
			w.start()
			w.assignFollow("b")
			w.assignLead("a", 20)
			after(20 * second)
			failed := make(chan struct{}, 1)
			w.member.becomes(func(_ context.Context, r request) error {
				if r.verb != "update" {
					return nil
				}
				select {
				case failed <- struct{}{}:
				default:
				}
				return errors.New("connection reset")
			}, nil)
			<-failed
			synctest.Wait()
			began := time.Now()
			w.assignLead("b", 21)
			after(0)
			rs := slices.DeleteFunc(w.member.since(began), func(r request) bool { return r.key.Namespace != "b" })
			if len(rs) == 0 || rs[0].verb != "get" {
				w.t.Errorf("sent %v", rs)
			}
		},
		"promises nothing on a dead link": func(w *world) {
			w.start()
			w.assignLead("a", 20)
			after(20 * second)
			w.member.becomes(swallow, nil)
			after(time.Millisecond)
			before := w.promised("a")
			after(10 * second)
			if now := w.promised("a"); now != before {
				w.t.Errorf("promised %+v, then %+v", before, now)
			}
		},
		"sends nothing without the right to write, until it is back": func(w *world) {
			w.start()
			w.assignLead("a", 20)
			w.assignFollow("b")
			after(4 * second)
			w.mayWrite(false)
			began := time.Now()
			after(5 * second)
			if rs := w.member.since(began.Add(1)); len(rs) > 0 {
				w.t.Errorf("sent %v", rs)
			}
			w.mayWrite(true)
			after(100 * time.Millisecond)
			if n := count(w.member.since(began), "update"); n != 1 {
				w.t.Errorf("%d renewals within 100 ms", n)
			}
		},
		"renews within r after the wall clock was stepped back and corrected": func(w *world) {
			w.start()
			w.assignLead("a", 20)
			after(time.Millisecond)
			w.clock.Step(-time.Hour)
			after(6 * second)
			w.clock.Step(time.Hour)
			after(5 * second)
			w.leads("a")
		},
		"removes a Lease that is not assigned any more": func(w *world) {
			w.start()
			w.assignFollow("a")
			after(0)
			w.Assign(keyOf("a"), assign.Assignment{Role: assign.Absent}, testTimings)
			after(0)
			if _, there := w.member.has(keyOf("a")); there {
				w.t.Errorf("it is there; facts %+v", w.SyncStatus(keyOf("a")))
			}
		},
	})
}

// A silent member costs one request at a time. When it answers again, all are renewed at once.
func TestSilentMember(t *testing.T) {
	const led = 60
	lead := func(w *world) {
		w.start()
		for _, ns := range namespaces(led) {
			w.assignLead(ns, 20)
		}
		after(20 * second)
	}
	all := func(w *world, since time.Time) {
		w.t.Helper()
		renewed := map[string]bool{}
		for _, r := range w.member.since(since) {
			if r.verb == "update" {
				renewed[r.key.Namespace] = true
			}
		}
		if len(renewed) != led {
			w.t.Errorf("%d of %d were renewed", len(renewed), led)
		}
	}
	bubble(t, map[string]func(*world){
		"that swallows everything": func(w *world) {
			lead(w)
			w.member.becomes(swallow, nil)
			began := time.Now()
			after(8 * second)
			// Those that were under way when it began, and then one after the other.
			if n := len(w.member.since(began)); n > workers+4 {
				w.t.Errorf("%d requests in 8 s of silence", n)
			}
			w.member.becomes(nil, nil)
			healed := time.Now()
			after(testTimings.Timeout + pauseSilent + time.Millisecond) // the request under way is lost
			all(w, healed)
		},
		"that refuses connections, twice": func(w *world) {
			lead(w)
			for range 2 {
				w.member.becomes(reset, nil)
				began := time.Now()
				after(8 * second)
				if n := len(w.member.since(began)); n > workers+90 {
					w.t.Errorf("%d requests in 8 s", n)
				}
				w.member.becomes(nil, nil)
				healed := time.Now()
				after(pauseSilent + time.Millisecond)
				all(w, healed)
			}
		},
		"that takes everything and answers nothing": func(w *world) {
			lead(w)
			w.member.becomes(nil, swallow)
			began := time.Now()
			after(8 * second)
			if n := len(w.member.since(began)); n > 2*workers+4 {
				w.t.Errorf("%d requests in 8 s of silence", n)
			}
			w.member.becomes(nil, nil)
			healed := time.Now()
			after(testTimings.Timeout + pauseSilent + 6*second)
			all(w, healed)
			for _, ns := range namespaces(led) {
				w.leads(ns)
			}
		},
		"whose prober has nothing to send any more": func(w *world) {
			lead(w)
			w.member.becomes(swallow, nil)
			after(8 * second)
			w.Publisher.mu.Lock()
			scout := *w.prober
			w.Publisher.mu.Unlock()
			w.StopRenewing(scout.Namespace)
			w.member.becomes(nil, nil)
			healed := time.Now()
			after(testTimings.Timeout + pauseSilent + time.Millisecond)
			renewed := map[string]bool{}
			for _, r := range w.member.since(healed) {
				if r.verb == "update" {
					renewed[r.key.Namespace] = true
				}
			}
			if len(renewed) != led-1 || renewed[scout.Namespace] {
				w.t.Errorf("%d were renewed", len(renewed))
			}
		},
	})
}

// Every renewTime is in the promises before it is sent.
func TestPromiseIsRecordedBeforeItIsSent(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			r, fates := newDice(seed), newDice(seed+1000)
			fate := func(ctx context.Context, req request) error {
				switch fates.roll(20) {
				case 0:
					return swallow(ctx, req)
				case 1:
					return errors.New("connection reset")
				}
				return nil
			}
			check := func(ctx context.Context, req request) error {
				if c := req.copy; c.Holder == "east.fleet" {
					p := w.promised(req.key.Namespace)
					if c.Deadline().After(p.Until) || p.Epoch != c.Epoch {
						t.Errorf("seed %d: %s is sent %+v, but the promises says %+v", seed, req.key, c, p)
					}
					if boot := c.RenewTime.Sub(w.began) + c.Duration; boot > p.BootUntil {
						t.Errorf("seed %d: the boot clock was not entered", seed)
					}
				}
				return fate(ctx, req)
			}
			w.member.becomes(check, fate)
			w.start()
			for _, ns := range namespaces(8) {
				w.assignLead(ns, 20)
			}
			for range 30 {
				after(time.Duration(r.roll(3000)) * time.Millisecond)
				if ns := namespaces(8)[r.roll(8)]; r.roll(3) == 0 {
					w.assignLead(ns, 20+int64(time.Since(w.began)/second))
				}
			}
			w.stop()
		})
	}
}

// After Close, what the promises says of the member is final, whatever is under way.
func TestStopRenewingIsFinal(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			r, delays := newDice(seed), newDice(seed+1000)
			delay := func(ctx context.Context, _ request) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Duration(delays.roll(400)) * time.Millisecond):
					return nil
				}
			}
			w.member.becomes(delay, delay)
			w.start()
			w.assignLead("a", 20)
			w.assignLead("b", 20)
			after(time.Duration(r.roll(12000)) * time.Millisecond)
			w.StopRenewing("a")
			final := w.promised("a")
			after(20 * second)
			if now := w.promised("a"); now != final {
				t.Errorf("seed %d: promised %+v when closed, then %+v", seed, final, now)
			}
			if c, ok := w.member.has(keyOf("a")); ok && c.Deadline().After(final.Until) {
				t.Errorf("seed %d: the Lease says %v, the promises said %v", seed, c.Deadline(), final.Until)
			}
			w.leads("b")
			w.stop()
		})
	}
}

// Whatever is under way when the publisher is stopped ends with it, and says nothing of the member.
func TestStop(t *testing.T) {
	for name, test := range map[string]struct {
		run func(*world)
	}{
		"while Leases are written": {func(w *world) {
			w.start()
			w.member.becomes(swallow, nil)
			for _, ns := range namespaces(40) {
				w.assignLead(ns, 20)
			}
			after(second)
		}},
		"while they are read for the first time": {func(w *world) {
			w.member.becomes(swallow, nil)
			w.start()
			after(firstList / 2)
		}},
		"between two attempts to read them": {func(w *world) {
			w.member.becomes(reset, nil)
			w.start()
			w.mu.Lock()
			w.reports = nil
			w.mu.Unlock()
			after(500 * time.Millisecond)
		}},
		"when nothing is under way": {func(w *world) { w.start() }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				test.run(w)
				w.stop()
				for _, err := range w.reports {
					if err != nil {
						t.Errorf("reported: %v", err)
					}
				}
				began := time.Now()
				w.assignLead("late", 20)
				after(10 * second)
				if rs := w.member.since(began.Add(1)); len(rs) > 0 {
					t.Errorf("requests after Run has returned: %v", rs)
				}
			})
		})
	}
}

// What is reported for the member's health.
func TestReport(t *testing.T) {
	bubble(t, map[string]func(*world){
		"a conflict is an answer": func(w *world) {
			w.start()
			w.assignLead("a", 20)
			after(0)
			c, _ := w.member.has(keyOf("a"))
			w.member.put(c, testKey)
			after(10 * second)
			for _, err := range w.reports {
				if err != nil {
					w.t.Errorf("reported: %v", err)
				}
			}
		},
		"a timeout is a failure": func(w *world) {
			w.start()
			w.member.becomes(swallow, nil)
			w.assignLead("a", 20)
			after(3100 * time.Millisecond)
			w.mu.Lock()
			last, changed := w.reports[len(w.reports)-1], slices.Clone(w.changed)
			w.mu.Unlock()
			if !slices.Equal(changed, []string{"", "a"}) {
				w.t.Errorf("the controller was called for %q", changed)
			}
			if !errors.Is(last, context.DeadlineExceeded) {
				w.t.Errorf("reported: %v", last)
			}
			if got := w.SyncStatus(keyOf("a")); got.Problem != reason.Unreachable {
				w.t.Errorf("facts: %+v", got)
			}
		},
	})
}
