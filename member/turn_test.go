package member

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

var errRefused = errors.New("refused")

// scripted answers lists and watches as a test says. Without that it lists nothing, and its watches say nothing.
type scripted struct {
	coordinationv1client.LeaseInterface
	list    func(ctx context.Context) (*coordinationv1.LeaseList, error)
	watch   func(ctx context.Context) (watch.Interface, error)
	watches int
}

func (s *scripted) List(ctx context.Context, _ metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	if s.list == nil {
		return listed("10"), nil
	}
	return s.list(ctx)
}

func (s *scripted) Watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	s.watches++
	if s.watch == nil {
		return watch.NewFake(), nil
	}
	return s.watch(ctx)
}

func listed(version string, items ...*coordinationv1.Lease) *coordinationv1.LeaseList {
	l := &coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
	for _, item := range items {
		l.Items = append(l.Items, *item)
	}
	return l
}

// versioned is a Lease of this version.
func versioned(t *testing.T, c *handClock, version, holder string, epoch int64) *coordinationv1.Lease {
	t.Helper()
	l := c.leaseOf(t, "shop", holder, epoch, time.Hour)
	l.ResourceVersion = version
	return l
}

const quarter = 10 * time.Second // of StaleAfter here

// turning is a watch of all namespaces that has not begun, in a bubble.
func turning(t *testing.T, f func(t *testing.T, w *watched, s *scripted, c *handClock)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		clock, s := newHandClock(), &scripted{}
		link, err := newLink(&rest.Config{})
		if err != nil {
			t.Fatal(err)
		}
		m := &Member{terms: NewTerms(clock, time.Second), clock: clock, stale: 4 * quarter, link: link}
		m.teller = newTeller(m, time.Second, false)
		w := &watched{client: s, member: m, alarm: m.terms.alarm(allNamespaces), synced: make(chan struct{})}
		defer w.drop()
		f(t, w, s, clock)
	})
}

// cut has no further connection be made.
func (l *link) cut(t *testing.T) {
	l.cfg = &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(t.TempDir(), "gone")}}
}

func hangs(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestATurnFailsWithAnyOfItsSteps(t *testing.T) {
	for name, happens := range map[string]func(t *testing.T, w *watched, s *scripted, c *handClock){
		"another connection is needed, and cannot be made": func(t *testing.T, w *watched, _ *scripted, _ *handClock) {
			w.hurry.on, w.line = true, w.member.link.current()
			w.member.link.cut(t)
		},
		"the list is refused": func(_ *testing.T, _ *watched, s *scripted, _ *handClock) {
			s.list = func(context.Context) (*coordinationv1.LeaseList, error) { return listed("10"), errRefused }
		},
		"its version is no number": func(_ *testing.T, _ *watched, s *scripted, _ *handClock) {
			s.list = func(context.Context) (*coordinationv1.LeaseList, error) { return listed("ten"), nil }
		},
		"it shows shorter terms, and no connection can be made for them": func(t *testing.T, w *watched, s *scripted, c *handClock) {
			s.list = func(context.Context) (*coordinationv1.LeaseList, error) {
				return listed("10", c.leaseOf(t, "shop", "us", 7, time.Second)), nil
			}
			w.member.link.cut(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			turning(t, func(t *testing.T, w *watched, s *scripted, c *handClock) {
				happens(t, w, s, c)
				if err := w.turn(t.Context()); err == nil || s.watches > 0 {
					t.Errorf("err = %v, %d watches; want an error and none", err, s.watches)
				}
			})
		})
	}
}

func TestARequestThatIsNotAnsweredInTimeHasTheNextTakeAnotherConnection(t *testing.T) {
	for name, tc := range map[string]struct {
		fails func(s *scripted)
		takes time.Duration
	}{
		"a list that hangs": {func(s *scripted) {
			s.list = func(ctx context.Context) (*coordinationv1.LeaseList, error) { return nil, hangs(ctx) }
		}, quarter},
		"a watch that hangs": {func(s *scripted) {
			s.watch = func(ctx context.Context) (watch.Interface, error) { return nil, hangs(ctx) }
		}, quarter},
		"a list that is refused": {func(s *scripted) {
			s.list = func(context.Context) (*coordinationv1.LeaseList, error) { return nil, errRefused }
		}, 0},
		"a watch that is refused": {func(s *scripted) {
			s.watch = func(context.Context) (watch.Interface, error) { return nil, errRefused }
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			turning(t, func(t *testing.T, w *watched, s *scripted, _ *handClock) {
				tc.fails(s)
				for range 3 {
					before, began := w.member.link.current(), time.Now()
					if err := w.turn(t.Context()); err == nil {
						t.Error("the turn worked")
					}
					if took := time.Since(began); took != tc.takes {
						t.Errorf("it took %v, want %v", took, tc.takes)
					}
					if left := w.member.link.current() != before; left != (tc.takes > 0) {
						t.Errorf("the connection was left = %v, want %v", left, tc.takes > 0)
					}
				}
			})
		})
	}
}

func TestNothingIsLeftOfAWatchThatIsRefused(t *testing.T) {
	turning(t, func(t *testing.T, w *watched, s *scripted, _ *handClock) {
		var asked context.Context
		s.watch = func(ctx context.Context) (watch.Interface, error) {
			asked = ctx
			return nil, errRefused
		}
		if err := w.turn(t.Context()); !errors.Is(err, errRefused) || asked.Err() == nil {
			t.Errorf("err = %v, the request goes on = %v", err, asked.Err() == nil)
		}
	})
}

func TestAWatchThatIsAnsweredInTheLastMomentIsKept(t *testing.T) {
	turning(t, func(t *testing.T, w *watched, s *scripted, _ *handClock) {
		s.watch = func(ctx context.Context) (watch.Interface, error) {
			_ = hangs(ctx)
			return watch.NewFake(), nil
		}
		if err := w.turn(t.Context()); err != nil || w.stream == nil {
			t.Errorf("err = %v, watches = %v", err, w.stream != nil)
		}
	})
}

func TestAWatchTakesTheConnectionThatSuitsTheShortestTermOfItsList(t *testing.T) {
	turning(t, func(t *testing.T, w *watched, s *scripted, c *handClock) {
		s.list = func(context.Context) (*coordinationv1.LeaseList, error) {
			return listed("10", c.leaseOf(t, "shop", "us", 7, time.Hour), c.leaseOf(t, "mail", "us", 7, 3*time.Second), c.leaseOf(t, "ledger", "us", 7, time.Minute)), nil
		}
		if err := w.turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		if line := w.member.link.current(); line.duration != 3*time.Second || w.stream.line != line {
			t.Errorf("connections are good for %v, and the watch takes them = %v", line.duration, w.stream.line == line)
		}
	})
}

func TestWhatHappensBetweenTwoListsIsNotKept(t *testing.T) {
	turning(t, func(t *testing.T, w *watched, _ *scripted, c *handClock) {
		if err := w.turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.take(watch.Event{Type: watch.Added, Object: versioned(t, c, "11", "us", 7)}, true); err != nil {
			t.Fatal(err)
		}
		if len(w.since) > 0 {
			t.Errorf("%d events are kept", len(w.since))
		}
	})
}

func TestAListThatIsOlderThanWhatHappenedSinceUndoesNothing(t *testing.T) {
	turning(t, func(t *testing.T, w *watched, s *scripted, c *handClock) {
		if err := w.turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		events := w.stream.Interface.(*watch.FakeWatcher)
		s.list = func(context.Context) (*coordinationv1.LeaseList, error) {
			events.Add(versioned(t, c, "11", "us", 7))
			synctest.Wait()
			return listed("10"), nil // the version from which it was watched
		}
		s.watch = func(context.Context) (watch.Interface, error) { return nil, errRefused }
		_ = w.turn(t.Context())
		if _, leads := w.member.terms.Term("shop"); !leads {
			t.Error("does not lead any more")
		}
	})
}

func TestWhatWasWatchedBeforeARestoreIsOver(t *testing.T) {
	turning(t, func(t *testing.T, w *watched, s *scripted, _ *handClock) {
		if err := w.turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.list = func(context.Context) (*coordinationv1.LeaseList, error) { return listed("5"), nil }
		s.watch = func(context.Context) (watch.Interface, error) {
			if w.stream != nil {
				t.Error("the past is watched on")
			}
			return watch.NewFake(), nil
		}
		if err := w.turn(t.Context()); err != nil || w.version != 5 {
			t.Errorf("err = %v, goes on from version %d", err, w.version)
		}
	})
}

func TestAListAsItIsAfterWhatHappenedSince(t *testing.T) {
	c := newHandClock()
	l := func(name, version, holder string) *coordinationv1.Lease {
		l := versioned(t, c, version, holder, 7)
		l.Name = name
		return l
	}
	event := func(kind watch.EventType, l *coordinationv1.Lease) watch.Event {
		return watch.Event{Type: kind, Object: l}
	}
	elsewhere := l("a", "12", "us")
	elsewhere.Namespace = "mail"
	for name, tc := range map[string]struct {
		since []watch.Event
		want  []string
	}{
		"nothing":                    {nil, []string{"shop/a 3", "shop/b 4"}},
		"a change that it shows":     {[]watch.Event{event(watch.Modified, l("a", "2", "us"))}, []string{"shop/a 3", "shop/b 4"}},
		"a deletion before":          {[]watch.Event{event(watch.Deleted, l("a", "2", "us"))}, []string{"shop/a 3", "shop/b 4"}},
		"a change":                   {[]watch.Event{event(watch.Modified, l("a", "12", "us"))}, []string{"shop/b 4", "shop/a 12"}},
		"a deletion":                 {[]watch.Event{event(watch.Deleted, l("a", "12", "us"))}, []string{"shop/b 4"}},
		"a new one":                  {[]watch.Event{event(watch.Added, l("c", "12", "us"))}, []string{"shop/a 3", "shop/b 4", "shop/c 12"}},
		"a new one elsewhere":        {[]watch.Event{event(watch.Added, elsewhere)}, []string{"shop/a 3", "shop/b 4", "mail/a 12"}},
		"a deletion and a new one":   {[]watch.Event{event(watch.Deleted, l("a", "12", "us")), event(watch.Added, l("a", "13", "us"))}, []string{"shop/b 4", "shop/a 13"}},
		"a change before and after":  {[]watch.Event{event(watch.Modified, l("a", "2", "us")), event(watch.Modified, l("a", "12", "us"))}, []string{"shop/b 4", "shop/a 12"}},
		"two changes, one after all": {[]watch.Event{event(watch.Modified, l("a", "12", "us")), event(watch.Modified, l("a", "13", "us"))}, []string{"shop/b 4", "shop/a 13"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, l := range with(listed("10", l("a", "3", "us"), l("b", "4", "us")).Items, 10, tc.since) {
				got = append(got, l.Namespace+"/"+l.Name+" "+l.ResourceVersion)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestAVersionIsANumberOr0(t *testing.T) {
	for text, want := range map[string]uint64{
		"": 0, "1": 1, "10": 10, "9f": 0, "18446744073709551615": 1<<64 - 1, "18446744073709551616": 0, "-1": 0,
	} {
		if got := versionOf(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: text}}); got != want {
			t.Errorf("version %q is %d, want %d", text, got, want)
		}
	}
}

func TestAWatchThatEndsTooSoonIsATrouble(t *testing.T) {
	for lasted, due := range map[time.Duration]bool{0: false, tooShort - 1: false, tooShort: true, time.Minute: true} {
		turning(t, func(t *testing.T, w *watched, _ *scripted, c *handClock) {
			if err := w.turn(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.Advance(lasted)
			err := w.take(watch.Event{}, false)
			if err == nil || errors.Is(err, errDue) != due || w.stream != nil {
				t.Errorf("after %v: %v, want the next turn: %v", lasted, err, due)
			}
		})
	}
}

func TestARequestIsGivenUpWhenAHurryBegins(t *testing.T) {
	for name, tc := range map[string]struct {
		hurried bool          // from the beginning
		rings   bool          // news are missing
		ends    bool          // what was watched ends
		answer  time.Duration // after this; the request heeds its end unless it is deaf
		deaf    bool
		fails   bool
		want    error
		takes   time.Duration
	}{
		"nothing happens":  {answer: time.Second, takes: time.Second},
		"it fails":         {answer: time.Second, fails: true, want: errRefused, takes: time.Second},
		"news are missing": {rings: true, answer: time.Second, want: errDue},
		"they are, but it is answered all the same":      {rings: true, answer: time.Second, deaf: true, takes: time.Second},
		"they are, and in a hurry that is known":         {hurried: true, rings: true, answer: 200 * time.Millisecond, takes: 200 * time.Millisecond},
		"in a hurry it fails":                            {hurried: true, answer: 200 * time.Millisecond, fails: true, want: errRefused, takes: 200 * time.Millisecond},
		"what was watched ends":                          {ends: true, answer: time.Second, takes: time.Second},
		"what was watched ends in a hurry":               {ends: true, hurried: true, answer: 200 * time.Millisecond, takes: 200 * time.Millisecond},
		"it is not answered for a quarter of StaleAfter": {answer: time.Hour, want: context.DeadlineExceeded, takes: quarter},
	} {
		t.Run(name, func(t *testing.T) {
			turning(t, func(t *testing.T, w *watched, _ *scripted, c *handClock) {
				if err := w.turn(t.Context()); err != nil {
					t.Fatal(err)
				}
				events := w.stream.Interface.(*watch.FakeWatcher)
				w.hurry.on = tc.hurried
				began := time.Now()
				answer, err := meanwhile(t.Context(), w, func(ctx context.Context) (int, error) {
					if tc.rings {
						w.alarm.ring(c.Now().Boot+1, c.Now().Boot+1)
					}
					if tc.ends {
						events.Stop()
					}
					gone := ctx.Done()
					if tc.deaf {
						gone = nil
					}
					select {
					case <-time.After(tc.answer):
					case <-gone:
						return 0, ctx.Err()
					}
					if tc.fails {
						return 0, errRefused
					}
					return 1, nil
				})
				if !errors.Is(err, tc.want) || (err == nil) != (answer == 1) || time.Since(began) != tc.takes {
					t.Errorf("answer %d, %v after %v; want %v after %v", answer, err, time.Since(began), tc.want, tc.takes)
				}
				if w.hurry.on != (tc.hurried || tc.rings) {
					t.Errorf("in a hurry = %v", w.hurry.on)
				}
			})
		})
	}
}

func TestAPauseEndsWhenAHurryBegins(t *testing.T) {
	for name, tc := range map[string]struct {
		hurried, rings bool
		takes          time.Duration
	}{
		"nothing happens":                    {takes: time.Minute},
		"news are missing":                   {rings: true},
		"they are, and the turn was a hurry": {rings: true, hurried: true, takes: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			turning(t, func(t *testing.T, w *watched, _ *scripted, c *handClock) {
				w.hurry.on = tc.hurried
				if tc.rings {
					w.alarm.ring(c.Now().Boot, c.Now().Boot)
				}
				began := time.Now()
				w.pause(t.Context(), time.Minute)
				if took := time.Since(began); took != tc.takes {
					t.Errorf("it took %v, want %v", took, tc.takes)
				}
				if waits := len(w.alarm.rings) > 0; waits != tc.hurried {
					t.Errorf("the alarm is kept for later = %v, want %v", waits, tc.hurried)
				}
			})
		})
	}
}
