package member_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasecast/leasecast/member"
)

func TestManyNamespacesThatFailAlikeAreToldInOneLine(t *testing.T) {
	var all []string
	for i := range 50 {
		all = append(all, fmt.Sprintf("team-%02d", i))
	}
	synctest.Test(t, func(t *testing.T) {
		l := &logged{}
		r := newReaderWith(t, member.Options{Namespaces: all, Logger: l.logger()})
		r.become(refuses)
		defer r.start(t)()
		pass(30 * time.Second)
		l.expect(t, "in half a minute", 1, "Cannot list leases")
		l.expect(t, "in half a minute", 1, "Cannot list leases: "+bindReader+"; nothing is led", `"scope"="50 of 50 namespaces: team-00, team-01, team-02, …"`)
		pass(5*time.Minute - 30*time.Second)
		if n := len(l.with("Cannot list leases")); n < 4 || n > 6 {
			t.Errorf("%d lines in five minutes, want one a minute", n)
		}
		r.become(answers)
		pass(time.Minute)
		if n := len(l.with("Follows leases again")); n < 1 || n > 6 { // each is tried again at its own time, one perhaps alone
			t.Errorf("%d lines that they are followed again", n)
		}
	})
}

func TestNamespacesThatFailAlikeAreAllNamedUpToThree(t *testing.T) {
	for name, tc := range map[string]struct {
		all  []string
		want string
	}{
		"two":   {[]string{"b", "a"}, "2 of 2 namespaces: a, b"},
		"three": {[]string{"c", "b", "a"}, "3 of 3 namespaces: a, b, c"},
		"four":  {[]string{"d", "c", "b", "a"}, "4 of 4 namespaces: a, b, c, …"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &logged{}
				r := newReaderWith(t, member.Options{Namespaces: tc.all, Logger: l.logger()})
				r.become(refuses)
				defer r.start(t)()
				pass(2 * time.Second)
				l.expect(t, name, 1, "Cannot list leases", fmt.Sprintf(`"scope"=%q`, tc.want))
			})
		})
	}
}

func TestOneOfTwoNamespacesThatFailsIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logged{}
		r := newReaderWith(t, member.Options{Namespaces: []string{ns, "ledger"}, StaleAfter: staleAfter, Logger: l.logger()})
		r.keepFrom("ledger")
		r.put(r.cluster.leaseOf(ns, us, 1))
		defer r.start(t)()
		pass(2 * time.Second)
		l.expect(t, "one fails", 1, "Cannot list leases: "+bindReader+"; nothing is led", `"scope"="namespace ledger"`)
		r.keepFrom("")
		pass(10 * time.Second)
		l.expect(t, "and is followed again", 1, "Follows leases again", `"scope"="namespace ledger"`)
		r.keepFrom(ns)
		pass(staleAfter) // the next list is refused, and nothing happens to the first
		l.expect(t, "the other fails", 1, "Cannot list leases", `"scope"="namespace shop"`)
		l.expect(t, "which is nothing new of the first", 1, "Follows leases again")
	})
}

func TestAWatchThatIsMendedIsToldWithinSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logged{}
		r := newReaderWith(t, member.Options{Logger: l.logger()})
		r.become(lists)
		defer r.start(t)()
		pass(500 * time.Millisecond)
		l.expect(t, "watches are refused", 1, "Cannot watch leases")
		r.become(answers)
		pass(2 * time.Second)
		l.expect(t, "mended", 1, "Follows leases again")
	})
}

// A watch that ends as soon as it has begun is not mended.
func TestAWatchThatEndsAtOnceIsNotCalledMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logged{}
		r := newReaderWith(t, member.Options{Logger: l.logger()})
		r.become(hasty)
		defer r.start(t)()
		pass(10 * time.Minute)
		l.expect(t, "it ends at once", 0, "Follows leases again")
		if n := len(l.with("Cannot follow leases")); n < 9 || n > 11 {
			t.Errorf("%d lines in ten minutes, want one a minute", n)
		}
	})
}

// An error is for people: an API server that restarts needs none, and missing rights do.
func TestARegistrationThatFailsIsAnErrorWhenItLasts(t *testing.T) {
	for name, tc := range map[string]struct {
		f      fate
		atOnce int
	}{"rights are missing": {forbidden, 1}, "the connection breaks": {dropped, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &logged{}
				r := newReaderWith(t, member.Options{Registration: registration(t), Logger: l.logger()})
				r.meet(tc.f)
				defer r.start(t)()
				pass(30 * time.Second)
				l.expect(t, "at once", tc.atOnce, `"msg"="Cannot register`, `"error"=`)
				l.expect(t, "at once", 1-tc.atOnce, `"level"=0 "msg"="Cannot register`, `"reason"="make registration`)
				pass(time.Minute)
				l.expect(t, "a minute later", tc.atOnce+1, `"msg"="Cannot register`, `"error"=`)
			})
		})
	}
}

// The same of a watch.
func TestAFailureThatMayEndByItselfIsAnErrorWhenItLasts(t *testing.T) {
	for name, tc := range map[string]struct {
		m      mode
		atOnce int
	}{"rights are missing": {refuses, 1}, "nobody answers": {hangs, 0}} {
		t.Run(name, func(t *testing.T) {
			telling(t, member.Options{}, func(t *testing.T, r *reader, l *logged) {
				r.become(tc.m)
				r.fail()
				pass(30 * time.Second)
				l.expect(t, "at once", tc.atOnce, `"msg"="Cannot list leases`, `"error"=`)
				l.expect(t, "at once", 1-tc.atOnce, `"level"=0 "msg"="Cannot list leases`, `"reason"="list leases`)
				pass(time.Minute)
				l.expect(t, "a minute later", tc.atOnce+1, `"msg"="Cannot list leases`, `"error"=`)
				r.become(answers)
				pass(time.Minute)
				r.become(tc.m)
				r.fail()
				pass(30 * time.Second)
				l.expect(t, "when it comes back", 2*(1-tc.atOnce), `"level"=0 "msg"="Cannot list leases`, `"reason"="list leases`)
			})
		})
	}
}
