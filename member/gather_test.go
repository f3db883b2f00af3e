package member

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
)

// gathered is the outages of a Member's watches, one for each namespace, and the lines that it tells.
type gathered struct {
	*outages
	clock *clocktest.Bubble
	mu    sync.Mutex
	lines []string
}

// gathering has f look at outages, in a bubble.
func gathering(t *testing.T, namespaces []string, f func(t *testing.T, g *gathered)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := &gathered{clock: clocktest.NewBubble(clocktest.Start)}
		m := &Member{terms: NewTerms(g.clock, time.Second), clock: g.clock, log: funcr.New(func(_, line string) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.lines = append(g.lines, line)
		}, funcr.Options{})}
		for _, ns := range namespaces {
			m.watches = append(m.watches, &watched{namespace: ns, member: m})
		}
		g.outages = newOutages(m)
		f(t, g)
	})
}

// of is the watch of a namespace.
func (g *gathered) of(namespace string) *watched {
	for _, w := range g.member.watches {
		if w.namespace == namespace {
			return w
		}
	}
	return nil
}

// fail has namespaces fail alike.
func (g *gathered) fail(what string, namespaces ...string) {
	for _, ns := range namespaces {
		g.fails(g.of(ns), what, errRefused)
	}
}

// told returns the messages and scopes that were told since the last call, after others were waited for.
func (g *gathered) told() (lines []string) {
	<-time.After(gather)
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	lines, g.lines = g.lines, nil
	return lines
}

func (g *gathered) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	got := g.told()
	if len(got) != len(want) {
		t.Errorf("%s: told\n%s\nwant %q", when, strings.Join(got, "\n"), want)
		return
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("%s: told\n%s\nwant %q", when, got[i], want[i])
		}
	}
}

func info(what, scope string) string {
	return fmt.Sprintf(`"level"=0 "msg"=%q "scope"=%q`, what, scope)
}

const onlyFails = "Cannot list"

func TestANamespaceThatFailsAnewWithinTheSecondIsNotCalledMended(t *testing.T) {
	gathering(t, []string{"a", "b"}, func(t *testing.T, g *gathered) {
		g.fail(onlyFails, "a")
		g.expect(t, "it fails", info("Cannot list; nothing is led", "namespace a"))
		g.works(g.of("a"))
		g.fail(onlyFails, "a")
		g.expect(t, "it fails anew, as people know", `"msg"="Cannot list; nothing is led" "error"="refused" "scope"="namespace a"`)
		g.works(g.of("a"))
		g.expect(t, "it does not any more", info("Follows leases again", "namespace a"))
	})
}

func TestANamespaceThatNobodyKnewToFailIsNotCalledMended(t *testing.T) {
	gathering(t, []string{"a", "b"}, func(t *testing.T, g *gathered) {
		g.works(g.of("b"))
		g.fail(onlyFails, "a")
		g.works(g.of("a"))
		g.expect(t, "it failed for less than a second")
		g.fail(onlyFails, "b")
		g.expect(t, "another fails", info("Cannot list; nothing is led", "namespace b"))
	})
}

func TestANamespaceThatIsMendedIsToldOnce(t *testing.T) {
	gathering(t, []string{"a", "b"}, func(t *testing.T, g *gathered) {
		g.fail(onlyFails, "a", "b")
		g.expect(t, "both fail", info("Cannot list; nothing is led", "2 of 2 namespaces: a, b"))
		g.works(g.of("a"))
		g.works(g.of("a"))
		g.expect(t, "one does not any more", info("Follows leases again", "namespace a"))
		g.works(g.of("a"))
		g.works(g.of("b"))
		g.expect(t, "nor does the other", info("Follows leases again", "namespace b"))
	})
}

func TestANamespaceThatFailsOtherwiseIsToldAtOnce(t *testing.T) {
	gathering(t, []string{"a", "b"}, func(t *testing.T, g *gathered) {
		g.fail("Cannot list", "a")
		g.expect(t, "one cannot be listed", info("Cannot list; nothing is led", "namespace a"))
		g.fail("Cannot watch", "b")
		g.expect(t, "the other cannot be watched", info("Cannot watch; nothing is led", "namespace b"))
		g.fail("Cannot list", "b")
		g.expect(t, "nor listed", `"msg"="Cannot list; nothing is led" "error"="refused" "scope"="2 of 2 namespaces: a, b"`)
		g.fail("Cannot list", "a", "b")
		g.expect(t, "it goes on")
		g.fail("Cannot watch", "a")
		g.expect(t, "what is over is new when it comes back", info("Cannot watch; nothing is led", "namespace a"))
	})
}

func TestANamespaceThatFailsLaterAsAnotherIsToldAtOnce(t *testing.T) {
	gathering(t, []string{"a", "b"}, func(t *testing.T, g *gathered) {
		g.fail(onlyFails, "a")
		g.expect(t, "one fails", info("Cannot list; nothing is led", "namespace a"))
		g.fail(onlyFails, "b", "b")
		g.expect(t, "so does the other, twice", `"scope"="2 of 2 namespaces: a, b"`)
	})
}

func TestAnOutageThatLastsIsAnErrorEachMinute(t *testing.T) {
	gathering(t, []string{"a", "b"}, func(t *testing.T, g *gathered) {
		g.fail(onlyFails, "a")
		g.expect(t, "it fails", info("Cannot list; nothing is led", "namespace a"))
		<-time.After(tellEvery - 2*gather)
		g.fail(onlyFails, "a")
		g.expect(t, "a second before a minute has passed")
		g.fail(onlyFails, "a")
		g.expect(t, "a minute later", `"msg"="Cannot list; nothing is led" "error"="refused"`)
		g.fail(onlyFails, "a")
		g.expect(t, "within the next minute")
	})
}

func TestWhatIsLedIsNamedIfAnyOfTheNamespacesThatFailIsLed(t *testing.T) {
	const led = "Cannot list; what is led ends when its term runs out"
	for name, tc := range map[string]struct {
		leads string
		want  string
	}{
		"the first is":    {"a", led},
		"the last is":     {"c", led},
		"none is":         {"", "Cannot list; nothing is led"},
		"another one is":  {"d", "Cannot list; nothing is led"},
		"one is no watch": {"e", "Cannot list; nothing is led"},
	} {
		t.Run(name, func(t *testing.T) {
			gathering(t, []string{"a", "b", "c", "d"}, func(t *testing.T, g *gathered) {
				if tc.leads != "" {
					hand := newHandClock()
					g.member.terms.Observe(hand.leaseOf(t, tc.leads, "us", 7, time.Hour))
				}
				g.fail(onlyFails, "a", "b", "c")
				g.expect(t, name, tc.want)
			})
		})
	}
}

func TestNamespacesAreNamedInOrder(t *testing.T) {
	all := []string{"h", "c", "g", "a", "f", "b", "e", "d"}
	gathering(t, all, func(t *testing.T, g *gathered) {
		g.fail(onlyFails, all...)
		g.expect(t, "all fail", info("Cannot list; nothing is led", "8 of 8 namespaces: a, b, c, …"))
		for _, ns := range all {
			g.works(g.of(ns))
		}
		g.expect(t, "none does", info("Follows leases again", "8 of 8 namespaces: a, b, c, …"))
	})
}

func TestNothingIsToldOnceAMemberStops(t *testing.T) {
	for name, namespaces := range map[string][]string{"of one watch": {"a"}, "of several": {"a", "b"}} {
		t.Run(name, func(t *testing.T) {
			gathering(t, namespaces, func(t *testing.T, g *gathered) {
				if len(namespaces) > 1 {
					g.fail(onlyFails, "a") // which is told in a second
				}
				g.stop()
				g.fail(onlyFails, "a")
				g.expect(t, "stopped")
			})
		})
	}
}

// The errors of watches that fail alike may differ. The line has that of the first, and a minute later too.
func TestALineHasTheErrorOfTheFirstNamespaceOfTheOptions(t *testing.T) {
	gathering(t, []string{"b", "a", "c"}, func(t *testing.T, g *gathered) {
		for _, ns := range []string{"c", "a", "b"} {
			g.fails(g.of(ns), onlyFails, errors.New("the error of "+ns))
		}
		g.expect(t, "all fail", `"scope"="3 of 3 namespaces: a, b, c" "reason"="the error of b"`)
	})
}
