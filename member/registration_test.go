package member_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/internal/musttest"
)

const (
	lasts   = 15 * time.Second // a registration, from its confirmation
	confirm = lasts / 3
)

func TestRegistration_NamesWhatItsReaderFollows(t *testing.T) {
	musttest.Each(t, map[string]struct{ namespaces, want []string }{
		"all":  {nil, nil},
		"some": {[]string{"shop", "ledger", "shop"}, []string{"ledger", "shop"}},
	}, func(t *testing.T, row struct{ namespaces, want []string }) {
		r := startTestMember(t, registering(t, row.namespaces...))
		got, l := r.registration(t), r.registered()[0]
		if !slices.Equal(got.Namespaces, row.want) || got.Account != account || got.Duration != lasts ||
			!got.Confirmed.Equal(r.clock.Now().Wall) || len(got.Released) > 0 {
			t.Errorf("registered %+v", got)
		}
		if l.Namespace != home || !strings.HasPrefix(l.Name, "leasecast-reader-") || len(l.OwnerReferences) > 0 ||
			len(l.Finalizers) != 1 {
			t.Errorf("the registration is %v", l.ObjectMeta)
		}
	})
}

// A promoted listener may act at once. So none is promoted, and no Lease is asked for, before the registration, or
// after it has run out, however fresh the Leases are.
func TestRegistration_ComesBeforeEveryTerm(t *testing.T) {
	musttest.Each(t, map[string]behavior{
		"no answer": silent, "the connection breaks": dropped, "the answer is lost": unanswered, "forbidden": forbidden,
	}, func(t *testing.T, b behavior) {
		r, made := newTestMember(t, registering(t)), &calls{}
		defer r.Listen(made.listener())()
		r.become(b)
		r.start()
		for _, step := range []struct {
			when   string
			server behavior
			over   time.Duration
			want   []string
		}{
			{"not registered yet", b, lasts, nil},
			// A request hangs for 3 s, and the longest pause follows.
			{"registered", works, 8 * time.Second, []string{ns + " promoted in 7"}},
			{"not confirmed any more", b, 2 * lasts, []string{ns + " demoted"}},
			{"registered again", works, 8 * time.Second, []string{ns + " promoted in 7"}},
		} {
			r.become(step.server)
			for range step.over / (recheck / 2) {
				r.write(ns, us, 7)
				pass(recheck / 2)
			}
			made.expect(t, step.when, step.want...)
			if step.when == "not registered yet" && len(r.requests("list"))+len(r.requests("watch")) > 0 {
				t.Errorf("asked for Leases before the registration: %q", r.requests(""))
			}
			if step.when == "registered" && len(r.registration(t).Released) > 0 { // also the one whose answer was lost
				t.Errorf("registered %+v", r.registration(t))
			}
		}
	})
}

// The hub lists the registrations after it has revoked. A registration that this list lacks must see the revocation:
// the fake server refuses a list from the API server's cache, which may be behind.
func TestRegistration_SeesARevocationBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, made := newTestMember(t, registering(t)), &calls{}
		r.write(ns, us, 7)
		r.after = func(w apiCall) {
			if w.method == http.MethodPost { // the last moment at which a list of the hub does not find it
				r.write(ns, none, 8)
			}
		}
		defer r.Listen(made.listener())()
		r.start()
		pass(20 * time.Second)
		made.expect(t, "after the revocation", ns+" does not lead")
		if got := r.registration(t); got.Released[ns] < 7 {
			t.Errorf("released %v, want epoch 7: no work of it is under way", got.Released)
		}
	})
}

func TestRegistration_IsConfirmedInTime(t *testing.T) {
	registered(t, func(t *testing.T, r *testMember) {
		for range 100 {
			pass(time.Second)
			if age := r.clock.Now().Wall.Sub(r.registration(t).Confirmed); age > confirm {
				t.Fatalf("confirmed %v ago, want at most %v", age, confirm)
			}
		}
		if writes, reads := len(r.wrote(0)), r.requests(http.MethodGet); !r.leads(ns) || writes > 22 || len(reads) > 0 {
			t.Errorf("leads = %v after %d writes in 100 s; it reads %q", r.leads(ns), writes, reads)
		}
	})
}

func TestRegistration_EndsTermsWhenItIsNotConfirmed(t *testing.T) {
	confirmedLate := func(r *testMember) { // it counts from before the request
		r.become(late)
		pass(confirm + slow)
		r.become(dropped)
		pass(lasts - slow - time.Microsecond)
	}
	type row struct {
		happens func(r *testMember)
		leads   bool
	}
	musttest.Each(t, map[string]row{
		"before its end":                      {func(*testMember) { pass(lasts - time.Microsecond) }, true},
		"at its end":                          {func(*testMember) { pass(lasts) }, false},
		"the wall clock jumps":                {func(r *testMember) { r.clock.Step(lasts); pass(recheck) }, false},
		"the machine was suspended":           {func(r *testMember) { r.clock.Suspend(lasts); pass(recheck) }, false},
		"the wall clock steps back":           {func(r *testMember) { r.clock.Step(-time.Hour); pass(lasts) }, false},
		"before the end of one answered late": {confirmedLate, true},
		"at the end of one answered late":     {func(r *testMember) { confirmedLate(r); pass(time.Microsecond) }, false},
	}, func(t *testing.T, row row) {
		r := startRegistered(t)
		r.become(dropped)
		ctx, done := contextOf(t, r, ns)
		defer done()
		row.happens(r)
		leads, cause := r.leads(ns), context.Cause(ctx)
		if leads != row.leads || (cause == nil) != row.leads || !row.leads &&
			(!errors.Is(cause, member.ErrLost) || !strings.Contains(cause.Error(), "registration")) {
			t.Errorf("leads = %v, the context's cause is %v; want leads = %v", leads, cause, row.leads)
		}
	})
}

// What may have been stored without an answer is the reader's own, and no reason to stop. After a loss, and when the
// hub may assume that this reader has stopped, another registration is made.
func TestRegistration_IsKeptOrReplaced(t *testing.T) {
	const fault = confirm + slow + 500*time.Millisecond
	repeated := func(b behavior, over time.Duration) func(r *testMember, own *apiCall) {
		return func(r *testMember, _ *apiCall) {
			for range 5 {
				r.become(b)
				pass(over)
				r.become(works)
				pass(confirm)
			}
		}
	}
	type row struct {
		happens func(r *testMember, own *apiCall)
		kept    bool
		exist   int // in the end
	}
	musttest.Each(t, map[string]row{
		"a write is stored without an answer": {repeated(unanswered, fault), true, 1},
		"a write is stored later":             {repeated(delayed, fault), true, 1},
		"a write never arrives":               {repeated(dropped, fault), true, 1},
		"a request gets no answer":            {repeated(silent, confirm+100*time.Millisecond), true, 1},
		"it cannot be read": {func(r *testMember, _ *apiCall) {
			r.become(unanswered)
			pass(confirm + time.Millisecond)
			r.become(unseen)
			pass(confirm)
			r.become(works)
		}, true, 1},
		"an edit deletes it": {func(r *testMember, own *apiCall) { own.method = http.MethodDelete; r.do(own) }, false, 2},
		"an edit removes it": {func(r *testMember, own *apiCall) { r.remove(home, own.name) }, false, 1},
		"an edit replaces it": {func(r *testMember, own *apiCall) {
			r.remove(home, own.name)
			own.method, own.sent.ResourceVersion = http.MethodPost, ""
			r.do(own)
		}, false, 2},
		"its confirmation comes too late": {func(r *testMember, _ *apiCall) {
			r.become(late)
			pass(confirm + slow/2) // the request is under way
			r.clock.Suspend(lasts - confirm + time.Second)
			if r.leads(ns) {
				r.t.Error("leads although the hub may assume that it has stopped")
			}
			r.become(works)
		}, false, 2},
		"it runs out": {func(r *testMember, own *apiCall) {
			r.become(dropped)
			pass(lasts + confirm)
			before := len(r.wrote(0))
			r.become(works)
			pass(confirm)
			for _, w := range r.wrote(before) {
				if w.name == own.name {
					r.t.Errorf("%s of the registration that ran out", w.method)
				}
			}
		}, false, 2},
		"the process is paused": {func(r *testMember, _ *apiCall) {
			term, _ := r.Term(ns)
			if r.clock.Suspend(time.Minute); term.Holds() {
				r.t.Error("the term holds after a minute")
			}
			pass(confirm)
		}, false, 2},
	}, func(t *testing.T, row row) {
		r := startRegistered(t)
		own, first := r.registered()[0].DeepCopy(), r.registration(t)
		ctx, done := contextOf(t, r, ns)
		defer done()
		row.happens(r, &apiCall{method: http.MethodPut, namespace: home, name: own.Name, sent: own.DeepCopy()})
		pass(confirm + time.Second)
		all := r.registered()
		if cause := context.Cause(ctx); !r.leads(ns) || len(all) != row.exist || (cause == nil) != row.kept ||
			cause != nil && !errors.Is(cause, member.ErrLost) {
			t.Errorf("leads = %v, the work ended because of %v, %d registrations", r.leads(ns), cause, len(all))
		}
		replaced := slices.ContainsFunc(all, func(l *coordinationv1.Lease) bool {
			return l.Name != own.Name && *l.Spec.HolderIdentity != *own.Spec.HolderIdentity
		})
		if replaced == row.kept || row.kept && !r.registration(t).Confirmed.After(first.Confirmed) {
			t.Errorf("registered under another name and identity = %v, want %v", replaced, !row.kept)
		}
	})
}

// An edit that would not have ended the term must not begin one when the Lease that did is no longer there.
func TestRegistration_BringsNoTermBackByALeaseThatIsNotBelieved(t *testing.T) {
	registered(t, func(t *testing.T, r *testMember) {
		namespaces := []string{ns, "ledger", "mail"}
		for _, name := range namespaces {
			r.write(name, us, 7)
			synctest.Wait()
			if r.write(name, none, 6); !r.leads(name) {
				t.Fatal("a lower epoch has ended the term")
			}
		}
		old := r.registered()[0].Name
		r.remove(home, old)
		pass(confirm + time.Second)
		for _, name := range namespaces {
			if r.leads(name) || r.registered()[0].Name == old {
				t.Error("leads by a Lease from before its registration that is gone")
			}
		}
	})
}

func TestRegistration_IsRemovedInTheEnd(t *testing.T) {
	type row struct {
		works    time.Duration // how long its work goes on
		server   behavior
		left     string           // why it is left to the hub; empty: it is removed
		released map[string]int64 // last
	}
	released := map[string]int64{ns: 7}
	musttest.Each(t, map[string]row{
		"its work has finished":    {0, works, "", released},
		"its work finishes soon":   {4 * time.Second, works, "", released},
		"its work goes on":         {time.Minute, works, "work goes on after its term", nil},
		"it has no right to write": {0, forbidden, "write registration", nil},
		"no answer":                {0, silent, "context deadline exceeded", nil},
		"the answer is lost":       {0, unanswered, "connection reset by peer", released},
	}, func(t *testing.T, row row) {
		r := startTestMember(t, registering(t))
		r.write(ns, us, 7)
		r.write("other", them, 8) // it has never led there, and has nothing to release
		synctest.Wait()
		ctx, done := contextOf(t, r, ns)
		time.AfterFunc(0, func() { <-ctx.Done(); pass(row.works); done() })
		r.become(row.server)
		began, left := time.Now(), 0
		r.stop()
		if took := time.Since(began); took > 5*time.Second+recheck {
			t.Errorf("Start returned %v after its end", took)
		}
		if row.left != "" {
			left = 1
		}
		r.log.expect(t, "at the end", left, "Leaves its registration to the hub", row.left)
		if got := len(r.registered()); got != left {
			t.Errorf("%d registrations are left, want %d", got, left)
		}
		var last map[string]int64
		for _, w := range r.wrote(0) {
			if w.method == http.MethodPut {
				registration := musttest.Get(wire.ReadRegistration(w.sent))(t)
				last = registration.Released
			}
		}
		if !maps.Equal(last, row.released) {
			t.Errorf("released %v, want %v", last, row.released)
		}
		pass(row.works)
	})
	musttest.Each(t, map[string]bool{"it was never made": false, "it is lost": true}, func(t *testing.T, made bool) {
		r, left := newTestMember(t, registering(t)), 0
		if !made {
			r.become(forbidden)
		}
		r.start()
		if synctest.Wait(); made {
			r.become(dropped)
			pass(lasts + confirm)
			left = 1 // to the hub
		}
		before := len(r.wrote(0))
		r.become(works)
		r.stop()
		if wrote, got := r.wrote(before), len(r.registered()); len(wrote) > 0 || got != left {
			t.Errorf("%d writes at the end, %d registrations left, want %d", len(wrote), got, left)
		}
		r.log.expect(t, "stopped", left, `"msg"="Registered"`)
	})
}
