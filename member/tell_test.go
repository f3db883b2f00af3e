package member_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/member"
)

// logged is what a Member has told people, a line each.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) logger() logr.Logger {
	return funcr.New(func(_, line string) { l.add(line) }, funcr.Options{})
}

func (l *logged) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

// with returns the lines that contain all the texts, and forgets none.
func (l *logged) with(texts ...string) (lines []string) {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			lines = append(lines, line)
		}
	}
	return lines
}

// expect fails the test unless so many lines contain all the texts.
func (l *logged) expect(t *testing.T, when string, n int, texts ...string) {
	t.Helper()
	if got := l.with(texts...); len(got) != n {
		t.Errorf("%s: %d lines with %q, want %d; all:\n%s", when, len(got), texts, n, strings.Join(l.with(), "\n"))
	}
}

// telling has f look at what a Member tells that runs meanwhile.
func telling(t *testing.T, o member.Options, f func(t *testing.T, r *reader, l *logged)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &logged{}
		o.StaleAfter, o.Logger = staleAfter, l.logger()
		r := newReaderWith(t, o)
		defer r.start(t)()
		f(t, r, l)
	})
}

func TestTheDefaultLoggerIsThatOfClientGo(t *testing.T) {
	l := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	klog.SetLogger(l)
	defer klog.ClearLogger()
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t, ns)
		defer r.start(t)()
		r.put(r.cluster.leaseOf(ns, us, 1))
		synctest.Wait()
	})
	if text := l.GetSink().(ktesting.Underlier).GetBuffer().String(); !strings.Contains(text, "This cluster leads") {
		t.Errorf("klog was told:\n%s", text)
	}
}

func TestWhatIsLoggedHasTheShapeOfControllerRuntime(t *testing.T) {
	telling(t, member.Options{}, func(t *testing.T, r *reader, l *logged) {
		r.put(r.cluster.leaseOf(ns, us, 1))
		l.expect(t, "promoted", 1, `"msg"="This cluster leads" "namespace"="shop" "epoch"=1 "cluster"="east.fleet"`)
		r.put(r.cluster.leaseOf(ns, them, 2))
		l.expect(t, "demoted", 1, `"msg"="This cluster does not lead any more" "namespace"="shop"`,
			"west.fleet leads in epoch 2")
	})
}

func TestAFollowerSaysWhoLeadsAndSaysItAgainWhenThatChanges(t *testing.T) {
	telling(t, member.Options{}, func(t *testing.T, r *reader, l *logged) {
		leads := func(who string, epoch int) []string {
			return []string{fmt.Sprintf(`"level"=0 "msg"="This cluster does not lead" "namespace"="shop" "leader"=%q "epoch"=%d`,
				who, epoch)}
		}
		r.put(r.cluster.leaseOf(ns, them, 1))
		l.expect(t, "at first", 1, leads(them, 1)...)
		r.put(r.cluster.leaseOf(ns, them, 1))
		pass(10 * staleAfter) // lists show it again
		l.expect(t, "nothing has changed", 1, leads(them, 1)...)
		r.put(r.cluster.leaseOf(ns, "south.fleet", 2))
		l.expect(t, "another leads", 1, leads("south.fleet", 2)...)
		r.put(r.cluster.leaseOf(ns, none, 3))
		l.expect(t, "nobody leads", 1,
			`"msg"="This cluster does not lead" "namespace"="shop" "reason"="no cluster leads in epoch 3"`)
		r.remove(ns, v1alpha1.DefaultLeaseName)
		l.expect(t, "the Lease is gone", 1,
			`"msg"="This cluster does not lead" "namespace"="shop" "reason"="its Lease is gone"`)
		r.put(r.cluster.leaseOf(ns, them, 4))
		l.expect(t, "it is back", 1, leads(them, 4)...)
	})
}

// Wrong rights at the start.
func TestAReaderWithoutRightsSaysSoAtOnceAndEveryMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logged{}
		r := newReaderWith(t, member.Options{Logger: l.logger()})
		r.become(refuses)
		defer r.start(t)()
		said := []string{"Cannot follow leases: bind leasecast-reader (config/reader) to the account of this program",
			`"scope"="all namespaces"`}
		l.expect(t, "at once", 1, said...)
		pass(59 * time.Second)
		l.expect(t, "within the minute", 1, said...)
		pass(9*time.Minute + 10*time.Second)
		if n := len(l.with(said...)); n < 9 || n > 10 {
			t.Errorf("%d lines in ten minutes, want one a minute", n)
		}
		_, _, err := r.Context(t.Context(), ns)
		if err == nil || !strings.Contains(err.Error(), "have not been listed yet: bind leasecast-reader") {
			t.Errorf("Context says %v", err)
		}
		r.become(answers)
		pass(2 * time.Minute)
		l.expect(t, "mended", 1, "Follows leases again")
	})
}

// Wrong rights later: what was led ends in time, and by then it is known why.
func TestAReaderThatLosesItsRightsSaysSo(t *testing.T) {
	telling(t, member.Options{}, func(t *testing.T, r *reader, l *logged) {
		r.put(r.cluster.leaseOf(ns, us, 1))
		synctest.Wait()
		r.become(refuses)
		r.fail()
		pass(time.Second)
		l.expect(t, "while it leads", 1, "Cannot follow leases: bind leasecast-reader")
		pass(2 * time.Minute)
		l.expect(t, "its term", 1, "This cluster does not lead any more",
			"it ran out: the last Lease was 0.0 s old on arrival, and lasts 15 s")
		if n := len(l.with("Cannot follow leases: bind leasecast-reader")); n < 2 || n > 3 {
			t.Errorf("%d lines, want one a minute", n)
		}
	})
}

func TestAMemberThatIsNotStartedIsNamed(t *testing.T) {
	const said = "is not started, so nothing is led: add it to the manager by mgr.Add, or call Start"
	synctest.Test(t, func(t *testing.T) {
		l := &logged{}
		r := newReaderWith(t, member.Options{Logger: l.logger()})
		pass(10*time.Second - time.Millisecond)
		l.expect(t, "before 10 s", 0, said)
		pass(time.Millisecond)
		l.expect(t, "after 10 s", 1, said)
		if s := r.State(ns); s.Why != "the Member is not started: add it to the manager by mgr.Add, or call Start" {
			t.Errorf("State says %q", s.Why)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.WaitForSync(short); err == nil || !strings.Contains(err.Error(), "the Member is not started") {
			t.Errorf("WaitForSync says %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		l := &logged{}
		r := newReaderWith(t, member.Options{Logger: l.logger()})
		defer r.start(t)()
		pass(time.Minute)
		l.expect(t, "started", 0, said)
	})
}

func TestStartingTwiceIsAnErrorThatSaysWhatToDo(t *testing.T) {
	telling(t, member.Options{}, func(t *testing.T, r *reader, _ *logged) {
		synctest.Wait()
		if err := r.Start(within(t)); err == nil ||
			!strings.Contains(err.Error(), "cannot be started twice: add it to one manager only") {
			t.Errorf("Start = %v", err)
		}
	})
}

// Neither the reader nor its author can tell a namespace that is missing from one in no policy.
func TestANamespaceWithoutALeaseIsNamed(t *testing.T) {
	const why = "there is no Lease of a hub (the namespace is missing, or no LeadershipPolicy selects it)"
	t.Run("among those of the options", func(t *testing.T) {
		telling(t, member.Options{Namespaces: []string{"typo", ns}}, func(t *testing.T, r *reader, l *logged) {
			r.put(r.cluster.leaseOf(ns, us, 1))
			pass(10 * staleAfter)
			l.expect(t, "once", 1, `"level"=0 "msg"="This cluster does not lead" "namespace"="typo" "reason"="`+why+`"`)
			if s := r.State("typo"); s.Why != why || s.Leads || s.Leader != "" {
				t.Errorf("State = %+v", s)
			}
		})
	})
	t.Run("when somebody wants to act there", func(t *testing.T) {
		telling(t, member.Options{}, func(t *testing.T, r *reader, l *logged) {
			r.put(r.cluster.leaseOf(ns, us, 1))
			synctest.Wait()
			for range 3 {
				if _, _, err := r.Context(t.Context(), "typo"); !errors.Is(err, member.ErrNotLeader) {
					t.Errorf("err = %v", err)
				}
			}
			l.expect(t, "once", 1, `"msg"="This cluster does not lead" "namespace"="typo" "reason"="`+why+`"`)
		})
	})
	t.Run("when Lead waits for it", func(t *testing.T) {
		telling(t, member.Options{}, func(t *testing.T, r *reader, l *logged) {
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { _ = r.Lead(ctx, "typo", func(context.Context) error { return nil }) }()
			synctest.Wait()
			l.expect(t, "while it waits", 1, `"msg"="This cluster does not lead" "namespace"="typo" "reason"="`+why+`"`)
		})
	})
	t.Run("and a cluster without any", func(t *testing.T) {
		telling(t, member.Options{}, func(t *testing.T, _ *reader, l *logged) {
			pass(10 * staleAfter)
			l.expect(t, "once", 1, "There are no Leases of a hub in this cluster")
		})
	})
}

// Options that contradict the policy.
func TestMemberLogsAPolicyThatAllowsMoreSkewThanItself(t *testing.T) {
	for name, tc := range map[string]struct {
		option, policy time.Duration
		want           int
		text           string
	}{
		"the option is the policy's": {time.Second, time.Second, 0, "MaxClockSkew"},
		"the option is more":         {2 * time.Second, time.Second, 0, "MaxClockSkew"},
		"the option is less": {
			option: time.Millisecond,
			policy: time.Second,
			want:   1,
			text:   "The policy allows clocks to differ by 1s, this reader by 1ms",
		},
		"no option, and a lenient policy": {
			policy: 2 * time.Second,
			want:   1,
			text:   "The policy allows clocks to differ by 2s, this reader by 1s",
		},
		"a Lease without the policy's bound": {0, 0, 1, "A Lease does not say how far clocks may differ by the policy"},
	} {
		t.Run(name, func(t *testing.T) {
			telling(t, member.Options{MaxClockSkew: tc.option}, func(t *testing.T, r *reader, l *logged) {
				for range 3 {
					r.put(r.cluster.allowing(tc.policy))
					pass(5 * time.Second)
				}
				l.expect(t, name, tc.want, tc.text, `"namespace"="shop"`)
			})
		})
	}
}

// allowing is a Lease that names us and says what the policy allows clocks.
func (c *cluster) allowing(skew time.Duration) *coordinationv1.Lease {
	c.t.Helper()
	l := c.leaseOf(ns, us, 1)
	read, _ := wire.Read(l)
	read.Skew = skew
	if err := wire.Write(read, "", l); err != nil {
		c.t.Fatal(err)
	}
	return l
}

func TestTheSmallerAllowanceCounts(t *testing.T) {
	for name, tc := range map[string]struct {
		option, policy, ahead time.Duration
		leads                 bool
	}{
		"the policy's, below the option":    {2 * time.Second, time.Second / 4, time.Second / 2, false},
		"the option, below the policy's":    {time.Second / 4, 2 * time.Second, time.Second / 2, false},
		"within both":                       {time.Second, time.Second, time.Second / 2, true},
		"the option alone, with an old hub": {time.Second, 0, time.Second / 2, true},
		"and it refuses, with an old hub":   {time.Second / 4, 0, time.Second / 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			telling(t, member.Options{MaxClockSkew: tc.option}, func(t *testing.T, r *reader, _ *logged) {
				l := r.cluster.allowing(tc.policy)
				r.cluster.clock.Step(-tc.ahead)
				r.put(l)
				synctest.Wait()
				if _, leads := r.Term(ns); leads != tc.leads {
					t.Errorf("leads = %v; %s", leads, r.State(ns).Why)
				}
			})
		})
	}
}

// A clock that is 2 s behind.
func TestALeaseThatIsRefusedSaysWhyOnce(t *testing.T) {
	telling(t, member.Options{}, func(t *testing.T, r *reader, l *logged) {
		said := []string{
			`"msg"="Lease shop/leasecast in epoch 7: ` +
				`its renewTime is 2.0 s ahead of this clock, allowed 1 s: not believed"`,
			`"namespace"="shop"`,
		}
		for range 5 {
			c := r.cluster.leaseOf(ns, us, 7)
			c.Spec.RenewTime.Time = c.Spec.RenewTime.Add(2 * time.Second)
			r.put(c)
			synctest.Wait()
			if s := r.State(ns); s.Leads || !strings.Contains(s.Why, "its renewTime is 2.0 s ahead of this clock") {
				t.Errorf("State = %+v", s)
			}
			pass(time.Second)
		}
		l.expect(t, "refused", 1, said...)
		r.put(r.cluster.leaseOf(ns, them, 8))
		synctest.Wait()
		r.put(r.cluster.leaseOf(ns, us, 7))
		l.expect(t, "a fallen epoch", 1, "Lease shop/leasecast in epoch 7 comes after one in epoch 8: not believed")
		absurd := r.cluster.leaseOf(ns, us, 2_000_000_000)
		r.put(absurd)
		l.expect(t, "an absurd epoch", 1,
			"Lease shop/leasecast in epoch 2000000000: no hub can have given that epoch by this clock: not believed")
	})
}

// renewing has the hub renew the term of us every third of its duration, for an hour, and counts promotions.
func renewing(t *testing.T, ahead time.Duration, f func(r *reader, l *logged, began []time.Duration)) {
	t.Helper()
	telling(t, member.Options{}, func(_ *testing.T, r *reader, l *logged) {
		var mu sync.Mutex
		var began []time.Duration
		defer r.Listen(member.Listener{Promoted: func(string, member.Term) {
			mu.Lock()
			defer mu.Unlock()
			began = append(began, r.cluster.clock.Now().Boot)
		}})()
		r.cluster.clock.Step(ahead)
		for range 720 {
			c := r.cluster.leaseOf(ns, us, 7)
			c.Spec.RenewTime.Time = c.Spec.RenewTime.Add(-ahead)
			r.put(c)
			pass(duration / 3)
		}
		mu.Lock()
		defer mu.Unlock()
		f(r, l, began)
	})
}

// A clock that is 2 s off costs 2 s of each term, and no more.
func TestAReaderWhoseClockIsAheadByLittleLeadsOn(t *testing.T) {
	renewing(t, 2*time.Second, func(_ *reader, l *logged, began []time.Duration) {
		if len(began) != 1 {
			t.Errorf("%d terms began in an hour, want 1", len(began))
		}
		l.expect(t, "it loses no term", 0, "any more")
	})
}

func TestAReaderWhoseClockIsOffAgainstDFlapsNoFasterThanOnceADAndSaysWhatIsWrong(t *testing.T) {
	renewing(t, 12*time.Second, func(r *reader, l *logged, began []time.Duration) {
		if len(began) < 100 {
			t.Errorf("%d terms began in an hour: it hardly leads", len(began))
		}
		for i := 1; i < len(began); i++ {
			if between := began[i] - began[i-1]; between < duration {
				t.Fatalf("term %d began %v after the one before, want %v at least", i, between, duration)
			}
		}
		const ranOut = "it ran out: the last Lease was 12.0 s old on arrival, and lasts 15 s; " +
			"this machine's clock is ahead of the hub's"
		if lost := l.with("any more", ranOut); len(lost) < 100 {
			t.Errorf("%d lines say why a term ran out", len(lost))
		}
		late := "A Lease was 12.0 s old on arrival, and lasts 15 s: this machine's clock is ahead of the hub's, " +
			"or the hub does not renew it"
		l.expect(t, "what is wrong is told once", 1, late)
		pass(duration)
		if s := r.State(ns); s.Leads || s.Leader != us {
			t.Errorf("State = %+v", s)
		}
	})
}

// Another epoch is another term: it does not wait for the one that ran out.
func TestATermOfAnotherEpochDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		late := func(epoch int64) {
			l := c.leaseOf(ns, us, epoch)
			l.Spec.RenewTime.Time = l.Spec.RenewTime.Add(-12 * time.Second)
			c.Observe(l)
		}
		late(7)
		pass(3*time.Second + recheck)
		late(7)
		if s := c.State(ns); s.Leads || !strings.Contains(s.Why, "the next term begins 15 s after this one began") {
			t.Errorf("State = %+v, want one that waits", s)
		}
		late(8)
		if s := c.State(ns); !s.Leads || s.Epoch != 8 {
			t.Errorf("State = %+v, want epoch 8", s)
		}
	})
}

// A term that ran out because the hub was silent goes on as soon as it is heard again.
func TestATermThatRanOutIsFollowedAtOnceByOneThatIsToldInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		late := c.leaseOf(ns, us, 7)
		late.Spec.RenewTime.Time = late.Spec.RenewTime.Add(-5 * time.Second) // as a reader that starts finds it
		c.Observe(late)
		pass(duration - 5*time.Second + recheck)
		if c.leads() {
			t.Error("it leads after the term")
		}
		c.write(ns, us, 7)
		if !c.leads() {
			t.Error(c.State(ns).Why)
		}
	})
}

func TestHealthzThatFailsIsTold(t *testing.T) {
	telling(t, member.Options{}, func(t *testing.T, r *reader, l *logged) {
		asked := func(over time.Duration) { // every second, as a kubelet may
			for range over / time.Second {
				_ = r.Healthz(nil)
				pass(time.Second)
			}
		}
		asked(5 * time.Second)
		l.expect(t, "while all is well", 0, "Healthz")
		r.become(hangs)
		r.fail()
		asked(30 * time.Second)
		l.expect(t, "when it fails", 1, `"msg"="Healthz fails"`, "the API server has not answered for")
		asked(time.Minute)
		l.expect(t, "a minute later", 2, `"msg"="Healthz fails"`)
		l.expect(t, "while it fails", 0, "Healthz succeeds again")
		r.become(answers)
		asked(30 * time.Second)
		l.expect(t, "when it does not any more", 1, `"msg"="Healthz succeeds again"`)
		asked(2 * time.Minute)
		l.expect(t, "long after that", 3, "Healthz")
	})
}
