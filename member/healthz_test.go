package member_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/internal/musttest"
)

// expectHealthz fails the test unless Healthz fails with these texts; without any, it must succeed.
func (r *testMember) expectHealthz(t *testing.T, when string, texts ...string) {
	t.Helper()
	err := r.Healthz(nil)
	if (err == nil) != (len(texts) == 0) {
		t.Errorf("%s: Healthz = %v, want %q", when, err, texts)
		return
	}
	if err != nil && strings.HasSuffix(err.Error(), "; ") {
		t.Errorf("%s: Healthz = %v, without a cause", when, err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: Healthz = %v\nwant %s", when, err, text)
		}
	}
}

func TestHealthz_OfTheWatch(t *testing.T) {
	const stale, dead = "member: the watch of leases in namespace shop is stale: nothing was seen for ",
		"member: the watch of leases in namespace shop is dead: the API server has not answered for "
	const refused = stale + "1m20s, want at most 40s; the Leases of namespace shop cannot be followed: " + missingRights
	late := func(*testMember) { pass(2 * staleAfter) }
	become := func(b behavior) func(r *testMember) {
		return func(r *testMember) { r.become(b); pass(2 * staleAfter) }
	}
	type row struct {
		first   behavior // of the server when the Member starts
		happens func(r *testMember)
		want    string // empty: healthy
	}
	musttest.Each(t, map[string]row{
		"a follower of a quiet cluster":  {works, func(*testMember) { pass(24 * time.Hour) }, ""},
		"it starts":                      {hangs, func(*testMember) { pass(staleAfter) }, ""},
		"it has not begun in time":       {hangs, func(*testMember) { pass(staleAfter + 1) }, stale + "40s"},
		"it is refused from the start":   {refuses, late, refused},
		"no connection is made":          {broken, late, stale + "1m20s"},
		"it is refused later":            {works, become(refuses), refused},
		"the server falls silent":        {works, become(hangs), dead},
		"the server is back":             {works, func(r *testMember) { become(hangs)(r); become(works)(r) }, ""},
		"watches begin and show nothing": {works, become(deaf), ""},
		"watches are refused":            {listsOnly, late, ""},
		"a long suspend":                 {works, func(r *testMember) { r.clock.Suspend(staleAfter + 1) }, stale},
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
		} else {
			r.expectHealthz(t, "", row.want)
		}
	})
}

// Pings find a connection that died silently, and end the watch. An API server that refuses has answered.
func TestHealthz_FailsSoonAfterAConnectionDied(t *testing.T) {
	musttest.Each(t, map[string]behavior{"silent": hangs, "refusing": refuses}, func(t *testing.T, b behavior) {
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
