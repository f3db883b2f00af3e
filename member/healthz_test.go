package member_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasecast/leasecast/member"
)

// expectHealthz fails the test unless Healthz fails with these texts; without any, it must succeed.
func (r *testMember) expectHealthz(t *testing.T, when string, texts ...string) {
	t.Helper()
	err := r.Healthz(nil)
	if (err == nil) != (len(texts) == 0) {
		t.Errorf("%s: Healthz = %v, want %q", when, err, texts)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: Healthz = %v\nwant %s", when, err, text)
		}
	}
}

func TestHealthz_OfTheWatch(t *testing.T) {
	const never, stale, dead = "member: the leases in namespace shop were never listed, ",
		"member: the watch of leases in namespace shop is stale: nothing was seen for ",
		"member: the watch of leases in namespace shop is dead: the API server has not answered for "
	late := func(*testMember) { pass(2 * staleAfter) }
	become := func(b behavior) func(r *testMember) {
		return func(r *testMember) { r.become(b); pass(2 * staleAfter) }
	}
	type row struct {
		first   behavior // of the server when the Member starts
		happens func(r *testMember)
		want    string // empty: healthy
	}
	each(t, map[string]row{
		"a follower of a quiet cluster": {works, func(*testMember) { pass(24 * time.Hour) }, ""},
		"it starts":                     {hangs, func(*testMember) { pass(staleAfter) }, ""},
		"it has not begun in time":      {hangs, func(*testMember) { pass(staleAfter + 1) }, never + "for 40s by now; "},
		"it is refused from the start":  {refuses, late, never + "for 1m20s by now; " + adviceReader + ": list leases: "},
		"no connection is made":         {broken, late, never + "for 1m20s by now; " + checkTheWay + ": list leases: "},
		"it has no credentials": {strangers, late,
			never + "for 1m20s by now; the API server does not accept the credentials of this program: list leases: "},
		"it is refused later":            {works, become(refuses), stale + "1m20s, want at most 40s; " + adviceReader},
		"the server falls silent":        {works, become(hangs), dead},
		"the server is back":             {works, func(r *testMember) { become(hangs)(r); become(works)(r) }, ""},
		"watches begin and show nothing": {works, become(deaf), ""},
		"watches are refused":            {listsOnly, func(*testMember) { pass(2 * staleAfter) }, ""},
		"a long suspend":                 {works, func(r *testMember) { r.clock.Suspend(staleAfter + 1) }, stale + "40s"},
		"some time after a long suspend": {works, func(r *testMember) { r.clock.Suspend(time.Hour); pass(staleAfter) }, ""},
		"a step of the wall clock":       {works, func(r *testMember) { r.clock.Step(time.Hour) }, ""},
	}, func(t *testing.T, row row) {
		r := newTestMember(t, member.Options{Namespaces: []string{ns}})
		r.become(row.first)
		r.start()
		synctest.Wait()
		row.happens(r)
		synctest.Wait()
		if row.want == "" {
			r.expectHealthz(t, "")
			return
		}
		r.expectHealthz(t, "", row.want)
		if _, advice, _ := strings.Cut(row.want, "; "); advice != "" && row.first != works {
			r.log.expect(t, "once a minute", 2, "Cannot follow leases: "+strings.TrimSuffix(advice, ": list leases: "))
		}
	})
	each(t, map[string]member.Options{"alone": {}, "and would register": registering(t)},
		func(t *testing.T, o member.Options) {
			r := newTestMember(t, o)
			pass(2 * staleAfter)
			r.expectHealthz(t, "not started", "member: the leases in all namespaces were never listed, because the Member is "+
				"not started: add it to the manager by mgr.Add, or call Start")
		})
}

// Pings find a connection that died silently, and end the watch. An API server that refuses has answered.
func TestHealthz_FailsSoonAfterAConnectionDied(t *testing.T) {
	each(t, map[string]behavior{"silent": hangs, "refusing": refuses}, func(t *testing.T, b behavior) {
		r := startTestMember(t, member.Options{Namespaces: []string{ns}})
		r.write(ns, them, 1)
		pass(2 * time.Second)
		r.become(b)
		r.hangUp()
		pass(duration/3 - time.Millisecond)
		r.expectHealthz(t, "after a moment")
		pass(time.Millisecond)
		if b == refuses {
			r.expectHealthz(t, "after a third of D")
			pass(staleAfter - duration)
			r.expectHealthz(t, "before StaleAfter")
		} else {
			r.expectHealthz(t, "after a third of D",
				"member: the watch of leases in namespace shop is dead: the API server has not answered for 5s; ")
		}
		r.become(works)
		pass(staleAfter)
		r.expectHealthz(t, "answered again")
	})
}

func TestHealthz_OfTheRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestMember(t, registering(t))
		r.become(forbidden)
		r.start()
		pass(staleAfter)
		r.expectHealthz(t, "it starts")
		pass(time.Second)
		r.expectHealthz(t, "it is not made",
			"member: the registration in namespace home was not confirmed for 41s, want at most 40s; "+adviceRegistration)
		r.become(works)
		pass(5 * time.Second)
		r.expectHealthz(t, "registered")
		r.become(forbidden)
		pass(staleAfter + confirm)
		r.expectHealthz(t, "not confirmed any more", "member: the registration in namespace home was not confirmed for 4",
			"s, want at most 40s; "+adviceRegistration)
	})
}
